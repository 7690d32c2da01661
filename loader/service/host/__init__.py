"""One pipeline for all processes of a host: its process, its consumers, and the memory between them.

May import what `loader.service` may, and the folders before it there.
"""
