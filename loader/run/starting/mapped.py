"""Pickling of arrays over mapped files: by path, not by content."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class MappedRange(NamedTuple):
    """The location of an array in a file.

    Attributes
    ----------
    path : str
        The file.
    inode : int
        The file's inode when it was mapped.
    mode : str
        The mode of the mapping, ``r`` or ``r+``.
    offset, nbytes : int
        The range of the file that the array spans.
    first : int
        The offset of the array's first element in that range.
    dtype, shape, strides : object
        The array's attributes.
    plain : bool
        True to make an `np.ndarray` over the mapping, not an `np.memmap`.
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


def mapped_file(array: Array) -> MappedRange | None:
    """Return the location for `open_mapped`; None for an array that has to be pickled by content.

    That is an array that is not over an `np.memmap`, whose memory is a private copy (copy on write),
    or whose file is no longer at its path.
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
    return MappedRange(
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


def open_mapped(place: MappedRange) -> Array:
    """Map a file again and return the array over it.

    Raises
    ------
    FileNotFoundError, ValueError
        The file has been moved or replaced since.
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
