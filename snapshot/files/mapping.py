"""A file mapped for reading."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

from tundish.errors import SnapshotCorruptError

__all__ = ["Mapping"]

# The mapping would keep a descriptor of its own: thousands of shards, thousands of descriptors.
_UNTRACKED = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class Mapping(mmap.mmap):
    """A whole file, mapped for reading; what numpy views of it have at their base.

    Attributes
    ----------
    path : str
        The file; "" for memory without one.
    immutable : bool
        Nobody changes the bytes, so views of them need no copy to be given away.
    """

    path = ""
    immutable = True

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Mapping:
        """Map a file.

        Raises
        ------
        FileNotFoundError
            It is not there.
        SnapshotCorruptError
            It is empty.
        """
        with Path(path).open("rb", buffering=0) as file:
            if not os.fstat(file.fileno()).st_size:
                raise SnapshotCorruptError(os.fspath(path), "is empty")
            mapping = cls(file.fileno(), 0, access=mmap.ACCESS_READ, **_UNTRACKED)
        mapping.path = os.fspath(path)
        return mapping
