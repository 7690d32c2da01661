"""The coordinator, in the consumer's process: it hands out work and takes in results.

May import what `loader.run` may, and the folders before it there.
"""
