"""Writing of runs: shards, a writer's log, taking over from a dead writer, finishing a run."""
