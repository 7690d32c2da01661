"""The DataLoader: torch's loader on numpy alone, with its samplers, orders, collate rules and states.

May import `loader.dataset`, `loader.plan`, `loader.protocols`, `loader.run`, `loader.watch` and `shm`.
"""
