"""Uninitialised memory made visible: ``python -m tundish.testing.poisoned -m pytest``.

Memory that is freed and taken again often still holds the right answer, so a buffer that is never
filled hides. Here everything that is made uninitialised holds a *pattern* instead, in this process
and in all that it starts:

===================================  ==============================================================
``np.empty``, padding of structures,  glibc's malloc fills what it hands out, without its own cache
results of numpy and pyarrow          of freed memory, numpy's (`poisoned`) and Arrow's own pool
memory that was freed                 glibc's malloc fills it with the complement
slots of shared memory, new and       `Ring.acquire` fills them
recycled
===================================  ==============================================================

Every element that `collect` sees and every file in a `folder` is searched for it. An environment
variable turns it on, which only an exec reads: so it is run as a command before another, or by
``python -m tundish.testing.fuzz --poison``. It needs Linux with glibc.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.shm.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "active",
    "assert_clean",
    "environ",
    "install",
    "look_through",
    "look_through_array",
    "look_through_files",
    "run",
    "unsearched",
    "wanted",
    "watch",
]

FRESH, FREED = 0x80, 0x7F
"""What memory holds that was taken and not written, and that was freed: each the other's complement.

No text has a run of either, nor has an image that the fuzzer makes: its bytes are all 121 at most.
"""

_RUN = re.compile(rb"\x80{8}|\x7f{8}")
_SLOT_BYTES = 1 << 18
"""The bytes of a slot that are filled even if it never had that many pages."""
_TUNABLES = {"glibc.malloc.perturb": FREED, "glibc.malloc.tcache_count": 0}

_found: list[str] = []
_watched: list[str] = []
_others = [0]  # how many runs there are now of what is not ours


def environ() -> dict[str, str]:
    """Return this process's environment with the variables that poison a child process.

    Examples
    --------
    >>> environ()["TUNDISH_POISON"]
    '1'
    """
    found = dict(os.environ)
    ours = [f"{name}={value}" for name, value in _TUNABLES.items()]
    folder = str(Path(__file__).with_name("poisoned"))
    for name, parts, separator in (
        ("GLIBC_TUNABLES", ours, ":"),
        ("PYTHONPATH", [folder], os.pathsep),
    ):
        theirs = [part for part in found.get(name, "").split(separator) if part]
        found[name] = separator.join([*parts, *(part for part in theirs if part not in parts)])
    return found | {"ARROW_DEFAULT_MEMORY_POOL": "system", "TUNDISH_POISON": "1"}


def wanted() -> bool:
    """Return True if the environment requests poison."""
    return bool(os.environ.get("TUNDISH_POISON"))


def active() -> bool:
    """Return True if samples of new memory in this process contain the pattern.

    Examples
    --------
    >>> active() and not wanted()
    False
    """
    return all(_RUN.search(np.empty(size, np.uint8).tobytes()) for size in (64, 1 << 12, 1 << 20))


def run(arguments: Sequence[str]) -> int:
    """Run Python with poison, and wait for it.

    Parameters
    ----------
    arguments : sequence of str
        Arguments of the interpreter.

    Returns
    -------
    int
        Its exit status.
    """
    return subprocess.run([sys.executable, *arguments], env=environ(), check=False).returncode


def install() -> None:
    """Fill slots of shared memory too, and search elements and files for the pattern, in this process.

    Raises
    ------
    RuntimeError
        Memory here does not hold the pattern: this is no Linux with glibc, or the process was not
        started with `environ`.
    """
    if not active():
        raise RuntimeError(
            "TUNDISH_POISON is set, and new memory does not hold the pattern: that needs Linux "
            "with glibc; start the process by `python -m tundish.testing.poisoned ...`"
        )
    if Ring.acquire is not _acquire:
        Ring.acquire = _acquire  # type: ignore[method-assign]


_acquire_clean = Ring.acquire


def _acquire(self: Ring) -> int | None:
    """Take a free slot filled with the pattern, both old contents and new pages."""
    slot = _acquire_clean(self)
    if slot is not None:
        size = min(max(_SLOT_BYTES, self.allocated(slot)), self.arena.stride)
        self.arena.allocate(slot, 0, size)
        self.arena.root(slot, size)[:] = FRESH  # not counted by `grew`: budgets are as they were
    return slot


# -- searching ---------------------------------------------------------------------------------


@contextmanager
def unsearched() -> Iterator[None]:
    """Suspend the search, since elements of the reference only come from user functions.

    These may leave gaps unwritten, which the loader has to zero and the reference does not.
    """
    _others[0] += 1
    try:
        yield
    finally:
        _others[0] -= 1


def look_through(data: Any, where: str) -> None:
    """Search bytes for the pattern; `assert_clean` raises what is found.

    Parameters
    ----------
    data : bytes-like
        The bytes of an element or a file.
    where : str
        Their description, for the message.
    """
    found = None if _others[0] else _RUN.search(data)
    if found is not None:
        _found.append(f"{where} holds memory that was never written, at byte {found.start()}")


def look_through_array(array: np.ndarray[Any, Any] | np.generic) -> None:
    """Search an array, including its padding, for the pattern.

    Parameters
    ----------
    array : numpy.ndarray or numpy.generic
        One without objects.
    """
    where = f"an array of {array.dtype} {array.shape}"
    if not array.size or not array.dtype.itemsize or _others[0]:
        return
    rows = _as_they_lie(array)
    look_through(rows.tobytes(), where)
    for first, stop in _gaps(array.dtype):
        if np.isin(rows[:, first:stop], (FRESH, FREED)).all(1).any():
            _found.append(f"{where} has padding that was never written, at byte {first}")


def _as_they_lie(array: np.ndarray[Any, Any] | np.generic) -> np.ndarray[Any, Any]:
    """Return the bytes of an array's items, a row each.

    Numpy copies structs field by field, and ``np.asarray`` does so with a scalar that holds its own memory:
    the gaps that are looked at would be those of the copy.
    """
    if isinstance(array, np.generic):
        return np.frombuffer(array.tobytes(), np.uint8).reshape(1, -1)
    opaque = np.ascontiguousarray(array.view(f"V{array.dtype.itemsize}"))
    return opaque.reshape(-1).view(np.uint8).reshape(array.size, -1)


def _gaps(dtype: np.dtype[Any], base: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a structure's bytes that belong to no field."""
    if dtype.subdtype is not None:
        inner = dtype.subdtype[0]
        for start in range(base, base + dtype.itemsize, inner.itemsize or 1):
            yield from _gaps(inner, start)
    if dtype.fields is None:
        return
    at = base
    for inner, offset, *_ in sorted(dtype.fields.values(), key=lambda field: field[1]):
        if at < base + offset:
            yield at, base + offset
        yield from _gaps(inner, base + offset)
        at = max(at, base + offset + inner.itemsize)
    if at < base + dtype.itemsize:
        yield at, base + dtype.itemsize


def watch(folder: str) -> None:
    """Make `assert_clean` search a folder's files at its next call."""
    _watched.append(str(folder))


def look_through_files(folder: str | Path) -> None:
    """Search a folder's files for the pattern.

    Parameters
    ----------
    folder : path
        A folder, which is searched with all folders in it; it may be gone.
    """
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and not path.is_symlink():
            for data in _written(path):
                look_through(data, f"the file {path}")


def _written(path: Path) -> Iterator[bytes]:
    """Yield the written parts of a file, without its holes, which may be a terabyte."""
    with path.open("rb") as file:
        size, at = path.stat().st_size, 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return  # there are only holes from here on
            data = os.pread(file.fileno(), os.lseek(file.fileno(), at, os.SEEK_HOLE) - at, at)
            yield data
            at += len(data)


def assert_clean(*, files: bool = False) -> None:
    """Raise what was found since the last call.

    Parameters
    ----------
    files : bool, default False
        Whether folders that are watched are looked through first.

    Raises
    ------
    AssertionError
        An element or a file holds the pattern.
    """
    while files and _watched:
        look_through_files(_watched.pop())
    told, _found[:] = list(dict.fromkeys(_found)), []
    assert not told, "\n".join(told)
