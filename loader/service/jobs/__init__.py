"""Shared jobs: one iterator whose elements a server deals to several trainers.

May import what `loader.service` may, and the folders before it there.
"""
