"""Machines that compute in the consumer's process, on demand.

May import what `loader.run` may, and the folders before it there.
"""
