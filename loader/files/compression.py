"""How files are compressed: as it is said, or by their names."""

from __future__ import annotations

from typing import Any

from tundish.formats.bytes.stream import check_compression
from tundish.loader.files.dataset import filenames_node

__all__ = ["compression_of"]

_BY_NAME = {".gz": "GZIP", ".tgz": "GZIP", ".zst": "ZSTD", ".tzst": "ZSTD"}


def compression_of(compression_type: Any, filenames: Any) -> str:
    """The argument `compression_type` of files whose names tell it; None is what they tell.

    Raises
    ------
    ValueError
        The names do not agree.
    """
    if compression_type is not None:
        return check_compression(compression_type)
    paths = filenames_node(filenames).listed_paths
    if paths is None:  # names that nobody knows yet
        return ""
    found = {_told_by(path): path for path in reversed(paths)}
    if len(found) > 1:
        first, second, *_ = sorted(found)
        raise ValueError(
            f"compression_type is to be told by the names of the files, and they differ: {found[first]!r} "
            f"is {first or 'not compressed'}, {found[second]!r} is {second}; make a dataset of each kind"
        )
    return next(iter(found), "")


def _told_by(path: str) -> str:
    for suffix, compression in _BY_NAME.items():
        if path.lower().endswith(suffix):
            return compression
    return ""
