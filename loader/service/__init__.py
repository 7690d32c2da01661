"""The data service: a trainer's workers on other machines, and what starts, finds and shares them.

The folders import one way: `connections`, `dispatching`, `jobs`, `agents`, `servers`, `distributing`, `host`, then `ray`.

May import all of `loader` but `loader.files`, and `shm`, `formats` and `snapshot`; nothing of `loader` imports it.
"""
