"""Descriptions of values without parts, and of files that a pipeline reads.

Files are described by their sizes and their paths relative to their common folder.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.snapshot.fingerprint.keys import JSON, digest_of, text_of

_LONG = 256
_MANY = 64
_SIMPLE = {int, str, bool, bytes, type(None)}


def shortened(kind: str, items: list[JSON]) -> JSON:
    """Return a container's description; for many items, their number and a digest."""
    if len(items) > _MANY:
        return {kind: len(items), "digest": digest_of(text_of(items))}
    return items if kind == "list" else {kind: items}


def many_atoms(kind: str, values: list[Any] | tuple[Any, ...]) -> JSON:
    """Return the description of many plain items, at the speed of ``repr``; None for others, and for few items."""
    if len(values) <= _MANY or not set(map(type, values)) <= _SIMPLE:
        return None
    return {kind: len(values), "digest": digest_of(repr(list(values)))}


def dtype_text(dtype: np.dtype) -> str:
    """Return a dtype as text with everything that affects bytes: byte order, and offsets of fields."""
    if dtype.names is not None and dtype.fields is not None:
        fields = [f"{name}: {_field_text(*dtype.fields[name][:2])}" for name in dtype.names]
        return f"{{{', '.join(fields)}; {dtype.itemsize}}}"
    if dtype.subdtype is not None:
        return f"{dtype_text(dtype.subdtype[0])} {list(dtype.subdtype[1])}"
    return f"{dtype.name} big-endian" if dtype.byteorder == ">" else dtype.name


def _field_text(dtype: np.dtype, offset: int) -> str:
    return f"{dtype_text(dtype)} at {offset}"


def _string(value: str) -> JSON:
    if len(value) <= _LONG:
        return value
    return {"text": len(value), "digest": digest_of(value)}


def _bytes(value: bytes | bytearray) -> JSON:
    kind = type(value).__name__
    if len(value) <= _MANY:
        return {kind: value.hex()}
    return {kind: len(value), "digest": digest_of(bytes(value))}


def _float(value: float) -> JSON:
    if np.isfinite(value):
        return value
    return {"float": struct.pack(">d", value).hex() if value != value else str(value)}  # noqa: PLR0124 - a NaN, whose bits count


def _itself(value: Any) -> JSON:
    return value


ATOMS: dict[type, Callable[[Any], JSON]] = {
    type(None): _itself,
    bool: _itself,
    int: _itself,
    float: _float,
    str: _string,
    bytes: _bytes,
    bytearray: _bytes,
    complex: lambda value: {"complex": [_float(value.real), _float(value.imag)]},
    type(...): lambda _: {"constant": "..."},
    type(NotImplemented): lambda _: {"constant": "NotImplemented"},
    range: lambda value: {"range": [value.start, value.stop, value.step]},
}


_MANY_FILES = 1000


@dataclass(frozen=True)
class InputFiles:
    """The paths of files whose contents a pipeline reads.

    Parameters
    ----------
    paths : iterable of str
        The paths, in order.
    size : callable, optional
        Returns the size of a file at a URL, None if it cannot be had. They do not count: a store that cannot be reached would name another pipeline.
    """

    paths: Iterable[str]
    size: Callable[[str], int | None] | None = None

    def description(self) -> JSON:
        """Return each file with its size; for many, each folder with number, total size and a digest."""
        paths = list(self.paths)
        folder, names = _relative(paths)
        stats = [self._stat(path) for path in paths]
        about = {} if folder is None else {"folder": folder}
        if len(paths) <= _MANY_FILES:
            files = [[name, size] for name, (size, _) in zip(names, stats, strict=True)]
            return {"files": files, "about": {"written": [at for _, at in stats], **about}}
        folders: dict[str, list[tuple[str, int | None, int | None]]] = {}
        for name, (size, at) in zip(names, stats, strict=True):
            folders.setdefault(os.path.dirname(name), []).append((name, size, at))  # noqa: PTH120 - it may be a URL
        told, written = [], []
        for folder, held in folders.items():
            sizes = [size or 0 for _, size, _ in held]
            digest = digest_of(repr([(name, size) for name, size, _ in held]))
            told.append([folder, len(held), sum(sizes), digest])
            times = [at for _, _, at in held]
            written.append(None if None in times else digest_of(repr(times)))
        # If folders are mixed, the order of the files counts, too.
        return {
            "folders": told,
            "order": digest_of(repr(names)),
            "about": {"written": written, **about},
        }

    def _stat(self, path: str) -> tuple[int | None, int | None]:
        """Return a file's size and modification time; of one at a URL None and the size."""
        if self.size is not None and "://" in path:
            return None, self.size(path)
        return _stat(path)


def file_behind(array: np.ndarray) -> JSON:
    """Return the file and range that an array maps; None for other arrays.

    Such arrays are often larger than memory, so they are described by their files.
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


def _relative(paths: list[str]) -> tuple[str | None, list[str]]:
    """Return the common folder of paths, and the paths relative to it, so that moving all of them together changes nothing."""
    if not paths or any("://" in path for path in paths):
        return None, paths
    full = [os.path.abspath(path) for path in paths]  # noqa: PTH100 - of text, for speed
    shared = os.path.commonpath({os.path.dirname(path) for path in full})  # noqa: PTH120 - of text, for speed
    cut = len(os.path.join(shared, ""))  # noqa: PTH118 - of text, for speed
    return shared, [path[cut:].replace(os.sep, "/") for path in full]


def _stat(path: str) -> tuple[int | None, int | None]:
    """Return a file's size and modification time; None for a file that is missing, or at a URL."""
    try:
        found = os.stat(path)  # noqa: PTH116 - of text, for speed
    except (OSError, ValueError):
        return None, None
    return found.st_size, found.st_mtime_ns
