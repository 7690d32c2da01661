"""Compilers of plans: they turn a plan into functions from refs to elements.

May import what `loader.run` may, and the folders before it there.
"""
