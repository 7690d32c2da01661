"""Operators: one file for each family, with everything that is specific to its operators.

May import `loader.plan`, `loader.protocols`, `loader.watch`, `formats` and `snapshot`.
"""
