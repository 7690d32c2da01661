"""Give what workers made, in order."""
