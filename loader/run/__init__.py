"""How a plan is computed, so that workers do not show.

Without workers the machines of a plan run in the caller's process: that is each operator's
meaning. With workers the same machines decide, and only the work per element goes elsewhere.
"""
