"""The interfaces between operators and the engine, and the values that pass between them.

May import `loader.plan`, `loader.watch`, `formats` and `shm`.
"""
