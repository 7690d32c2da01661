"""Arrays over mapped files travel as the name of their file."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

__all__ = ["mapped_file", "open_mapped"]

Array = np.ndarray[Any, np.dtype[Any]]


class Place(NamedTuple):
    """The place of an array: in which file, and where in it.

    Attributes
    ----------
    path : str
        The file.
    inode : int
        Which file that was.
    mode : str
        ``r`` or ``r+``.
    offset, nbytes : int
        The range of the file that the array reaches over.
    first : int
        Where in it the array's first element is.
    dtype, shape, strides
        The array's.
    plain : bool
        Whether to make no `np.memmap` but an array over one.
    """

    path: str
    inode: int
    mode: Literal["r", "r+"]
    offset: int
    nbytes: int
    first: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    plain: bool


def mapped_file(array: Array) -> Place | None:
    """Return how `open_mapped` makes this array again; None for one that must travel by contents.

    That is one that is not over an `np.memmap`, or whose memory is not the file's (copy on write),
    or whose file is not at its path any more.
    """
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or not isinstance(root.base, mmap.mmap) or array.size == 0:
        return None
    if root.filename is None or root.mode == "c":
        return None
    path = str(root.filename)
    memory = np.frombuffer(root.base, np.uint8)
    first = array.ctypes.data
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = first + sum(min(0, way) for way in reach)
    nbytes = first + sum(max(0, way) for way in reach) + array.itemsize - low
    mapping = root.offset - root.offset % mmap.ALLOCATIONGRANULARITY
    try:
        inode = Path(path).stat().st_ino
        if sys.platform.startswith("linux") and _mapped_inode(low) != inode:
            return None
    except OSError:
        return None
    return Place(
        path=path,
        inode=inode,
        mode="r" if root.mode == "r" else "r+",
        offset=mapping + low - memory.ctypes.data,
        nbytes=nbytes,
        first=first - low,
        dtype=array.dtype,
        shape=array.shape,
        strides=array.strides,
        plain=not (isinstance(array, np.memmap) and array.flags.c_contiguous),
    )


def open_mapped(place: Place) -> Array:
    """Map a file again and return the array over it.

    Raises
    ------
    FileNotFoundError, ValueError
        When the file has been moved or replaced since.
    """
    if Path(place.path).stat().st_ino != place.inode:
        raise ValueError(f"{place.path} was replaced after a dataset got an array over it")
    if not place.plain:
        return np.memmap(place.path, place.dtype, place.mode, place.offset, place.shape)
    memory = np.memmap(place.path, np.uint8, place.mode, place.offset, (place.nbytes,))
    return np.ndarray(place.shape, place.dtype, memory, place.first, place.strides)


def _mapped_inode(address: int) -> int | None:
    """Return the inode of the file that is mapped at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *_ = line.split()
        start, end = (int(bound, 16) for bound in span.split("-"))
        if start <= address < end:
            return int(inode)
    return None
