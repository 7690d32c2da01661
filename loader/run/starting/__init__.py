"""Starting worker processes: the zygote that forks them, their payload, and their environment."""
