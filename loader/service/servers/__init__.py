"""Dispatcher and worker servers as a user starts them, and the fleets that keep a number of agents running.

May import what `loader.service` may, and the folders before it there.
"""
