"""Measuring a running iterator: times, statistics and their readers, and the number of workers that follows.

May import what `loader.run` may, and the folders before it there.
"""
