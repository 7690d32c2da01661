"""Keep worker processes, and hear of their deaths."""
