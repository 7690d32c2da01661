"""The pool of worker processes: starting, messages, deaths, replacements.

May import what `loader.run` may, and the folders before it there.
"""
