"""Writing of runs: shards, a writer's log, taking over from a dead writer, finishing a run.

May import `snapshot` except `snapshot.reading` and `snapshot.upkeep`, and `formats`.
"""
