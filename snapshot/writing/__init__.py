"""Writing a run: shards, the log of a writer, taking over from a dead one, the end of a run."""
