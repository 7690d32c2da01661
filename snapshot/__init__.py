"""What outlives a run: preprocessed elements on disk, as sharded Arrow IPC files.

Uses `tundish.formats` and `tundish.spec`. Empty for now.
"""
