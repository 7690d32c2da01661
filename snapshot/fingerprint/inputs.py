"""Files that a pipeline reads: by their names from the folder they share, and their sizes.

When they were written is told beside, and does not count: a copy is the same data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.snapshot.fingerprint.digests import digest_of

JSON = Any

_MANY = 1000


@dataclass(frozen=True)
class InputFiles:
    """Paths of files whose contents a pipeline reads.

    Parameters
    ----------
    paths : iterable of str
        In their order.
    """

    paths: Iterable[str]

    def description(self) -> JSON:
        """Each with its size; of many, each folder with the number, the bytes and a digest."""
        paths = list(self.paths)
        names, stats = _relative(paths), [_stat(path) for path in paths]
        if len(paths) <= _MANY:
            files = [[name, size] for name, (size, _) in zip(names, stats, strict=True)]
            return {"files": files, "about": {"written": [at for _, at in stats]}}
        folders: dict[str, list[tuple[str, int | None, int | None]]] = {}
        for name, (size, at) in zip(names, stats, strict=True):
            folders.setdefault(os.path.dirname(name), []).append((name, size, at))  # noqa: PTH120 - it may be a URL
        told, written = [], []
        for folder, held in folders.items():
            sizes = [size or 0 for _, size, _ in held]
            digest = digest_of(repr([(name, size) for name, size, _ in held]))
            told.append([folder, len(held), sum(sizes), digest])
            written.append(digest_of(repr([at for _, _, at in held])))
        # Which of them comes when counts, too, where folders are mixed.
        return {"folders": told, "order": digest_of(repr(names)), "about": {"written": written}}


def file_behind(array: np.ndarray) -> JSON:
    """What an array shows of a mapped file: the file, and where in it; None for other arrays.

    Such arrays are often larger than memory: they count as the files they are.
    """
    base: Any = array
    while not isinstance(base, np.memmap) or isinstance(base.base, np.ndarray):
        base = getattr(base, "base", None)
        if not isinstance(base, np.ndarray):
            return None
    if base.filename is None or base.mode == "c":  # copy on write: memory may differ
        return None
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = list(array.strides) if not array.flags.c_contiguous else None
    return {
        **InputFiles([str(base.filename)]).description(),
        "at": base.offset + start,
        "strides": strides,
    }


def _relative(paths: list[str]) -> list[str]:
    """Names from the folder that all share; moved together, files are the same."""
    if not paths or any("://" in path for path in paths):
        return paths
    full = [os.path.abspath(path) for path in paths]  # noqa: PTH100 - of text, for speed
    shared = os.path.commonpath({os.path.dirname(path) for path in full})  # noqa: PTH120 - of text, for speed
    cut = len(os.path.join(shared, ""))  # noqa: PTH118 - of text, for speed
    return [path[cut:].replace(os.sep, "/") for path in full]


def _stat(path: str) -> tuple[int | None, int | None]:
    """Size and time of writing; None for what is not there, or elsewhere."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of text, for speed
    except (OSError, ValueError):
        return None, None
    return found.st_size, found.st_mtime_ns
