"""The dispatcher: its state and decisions, its journal, its answers to calls, and its client.

May import what `loader.service` may, and the folders before it there.
"""
