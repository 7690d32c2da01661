"""Measurements of a pipeline and conclusions from them: what happened, how fast, and where it waits.

It knows numbers and names, neither plans nor processes: `loader.run` measures and asks.

May import nothing but the modules beside `tundish.errors`.
"""
