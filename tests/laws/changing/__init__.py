"""A user's package whose globals are changed at run time."""
