"""Agents: processes that start workers for trainers on other machines.

May import what `loader.service` may, and the folders before it there.
"""
