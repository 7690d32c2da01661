"""Starting worker processes: the zygote that forks them, their payload, and their environment.

May import what `loader.run` may.
"""
