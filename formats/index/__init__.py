"""Indexes of files: the places of their records, found once and cached.

May import `formats.bytes` and `formats.format`.
"""

from tundish.formats.index.kept import Index
from tundish.formats.index.looking import indexes_of

__all__ = ["Index", "indexes_of"]
