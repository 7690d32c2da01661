"""Indexes of where the records of files are: found out once, and kept."""

from tundish.formats.index.kept import Index
from tundish.formats.index.looking import indexes_of

__all__ = ["Index", "indexes_of"]
