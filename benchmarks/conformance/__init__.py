"""The laws of tundish turned outwards: the same trials for every loader (`run.py`)."""
