"""Reading of elements by index, as views of the files if possible.

May import `snapshot` except `snapshot.writing` and `snapshot.upkeep`.
"""
