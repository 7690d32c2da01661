"""Stages: machines whose items workers compute, delivered in input order.

May import what `loader.run` may, and the folders before it there.
"""
