"""Measurements of a pipeline and conclusions from them: what happened, how fast, and where it waits.

It works on numbers and names, not on plans or processes: `loader.run` measures and calls it.

May import only `tundish.errors` and the modules next to it.
"""
