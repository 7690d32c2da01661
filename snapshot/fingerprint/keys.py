"""Keys of descriptions: a digest of the part that counts.

Large values count by digests: of text, of bytes, and of arrays, which are cached while the array lives.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tundish.forked import renewed
from tundish.snapshot.files.checksum import crc32

_CHUNK = 16 << 20
_SMALL = 1 << 16

_KNOWN: dict[int, tuple[weakref.ref[Any], int, str]] = {}
_LOCK = renewed(threading.Lock())


def digest_of(data: bytes | str | memoryview) -> str:
    """Return 16 hex digits of bytes or text."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_of_array(array: np.ndarray) -> str:
    """Return a digest of an array's values in C order; its dtype and shape do not count.

    The digest of a large array is cached as long as the array lives. The array may have been written to
    since, so its crc is compared, which takes a fraction of the time.
    """
    data = _plain_bytes(array)
    if len(data) <= _SMALL:
        return digest_of(data)
    check = crc32(data)
    with _LOCK:
        known = _KNOWN.get(id(array))
    if known is not None and known[0]() is array and known[1] == check:
        return known[2]
    digest = _digest_of_chunks(data)
    try:
        reference = weakref.ref(array, _Forget(id(array)))
    except TypeError:
        return digest
    with _LOCK:
        _KNOWN[id(array)] = (reference, check, digest)
    return digest


class _Forget:
    """Drops the cached digest of an array that was collected."""

    def __init__(self, key: int) -> None:
        self.key = key

    def __call__(self, reference: weakref.ref[Any]) -> None:
        # No lock: this may run wherever memory is freed, also in a thread that holds it.
        known = _KNOWN.get(self.key)
        if known is not None and known[0] is reference:
            _KNOWN.pop(self.key, None)


def _digest_of_chunks(data: memoryview) -> str:
    """Return a digest of the digests of chunks, so that several cores share the work."""
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    if len(chunks) == 1:
        return digest_of(data)
    with ThreadPoolExecutor(min(len(chunks), os.cpu_count() or 1)) as pool:
        return digest_of("".join(pool.map(digest_of, chunks)))


def _plain_bytes(array: np.ndarray) -> memoryview:
    """Return the values in C order, with padding zeroed."""
    array = np.ascontiguousarray(array)
    if _has_padding(array.dtype):
        array = _without_padding(array)
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _has_padding(dtype: np.dtype) -> bool:
    if dtype.subdtype is not None:
        return _has_padding(dtype.subdtype[0])
    if dtype.names is None:
        return dtype.char in "gG"  # an extended double fills 10 of its 16 bytes
    inner = [dtype.fields[name][0] for name in dtype.names]  # type: ignore[index]  # it has names
    return sum(d.itemsize for d in inner) != dtype.itemsize or any(map(_has_padding, inner))


def _without_padding(array: np.ndarray) -> np.ndarray:
    if array.dtype.names is not None:
        parts = [digest_of_array(array[name]) for name in array.dtype.names]
        return np.frombuffer("".join(parts).encode(), np.uint8)
    plain = array.reshape(-1).view(np.uint8).copy()
    if np.finfo(np.longdouble).nmant == 63:  # x86
        plain.reshape(-1, np.dtype(np.longdouble).itemsize)[:, 10:] = 0
    return plain


JSON = Any

_TOLD = "about"  # its contents do not count
# The contents of these are keyed by names of arguments, attributes or variables, which are no tags.
_NAMED = frozenset(
    [
        *("args", "attributes", "captured", "code", "defaults", "fields", "globals", "keywords"),
        "members",
    ]
)
_BY_VERSION = frozenset(
    [
        *("again", "cached", "class", "code of", "dispatch", "function", "installed", "made by"),
        *("method", "module", "object", "partial", "property", "undescribed"),
    ]
)


class Walk(Protocol):
    """The interface through which the description of a value describes the value's parts."""

    @property
    def lenient(self) -> bool:
        """True to accept values without a description, and not to read arrays."""
        ...

    def value(self, value: Any, step: str = "") -> JSON:
        """Describe any value; `step` leads to it from the value that contains it."""
        ...

    def module(self, name: str) -> JSON:
        """Describe a module, loaded or not."""
        ...

    def keep(self, value: Any) -> Any:
        """Keep a value alive until the walk ends, since values are told apart by identity; return it."""
        ...

    def refuse(self, value: Any, problem: Exception | None = None) -> JSON:
        """Raise that a value has no description, or if `lenient` describe it as such."""
        ...


def key_of(description: JSON, version: str | None = None) -> str:
    """Return a description's key, 16 hex digits.

    Parameters
    ----------
    description : JSON
        The result of `describe` or ``describe_pipeline``.
    version : str, optional
        Stands for all functions, objects and contents of arrays, and for Python's own version; the
        rest still counts.

    Examples
    --------
    >>> key_of([{"op": "range", "version": 1, "args": {"start": 0, "stop": 3, "step": 1}}])
    '7a63af1dcdade3a3'
    """
    if version is not None:
        return digest_of(text_of([_beside_version(description), version]))
    python = describe_interpreter() if _has_code(description) else None
    return digest_of(text_of([description, None, python]))


def text_of(description: JSON) -> str:
    """Return the part of a description that counts, as text."""
    return json.dumps(counted(description), sort_keys=True, separators=(",", ":"))


def counted(description: JSON) -> JSON:
    """Return a description without the parts that are only information."""
    return _rebuilt(description, counted)


def inner(description: JSON) -> Iterator[JSON]:
    """Yield the descriptions inside one, without those that are only information."""
    if isinstance(description, list):
        yield from description
    elif isinstance(description, dict):
        for tag, part in description.items():
            if tag in _NAMED and isinstance(part, dict):
                yield from part.values()
            elif tag != _TOLD:
                yield part


def _rebuilt(description: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """Return a description with each one inside it changed."""
    if isinstance(description, list):
        return [change(part) for part in description]
    if not isinstance(description, dict):
        return description
    return {
        tag: {name: change(each) for name, each in part.items()}
        if tag in _NAMED and isinstance(part, dict)
        else change(part)
        for tag, part in description.items()
        if tag != _TOLD
    }


def _beside_version(description: JSON) -> JSON:
    if isinstance(description, dict):
        if not _BY_VERSION.isdisjoint(description):
            return None
        gone = {"code", *(("digest",) if "array" in description else ())}
        description = {tag: part for tag, part in description.items() if tag not in gone}
    return _rebuilt(description, _beside_version)


def describe_interpreter() -> str:
    """Return the interpreter's name and version, within which functions' code can be compared."""
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def _has_code(description: JSON) -> bool:
    if isinstance(description, dict) and "code" in description:
        return True
    return any(map(_has_code, inner(description)))
