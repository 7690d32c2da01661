"""Pickling of arrays over mapped files: by path, not by content."""

from __future__ import annotations

import functools
import mmap
import platform
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
    machine : str
        The machine on which it was mapped.
    device, inode, size : int
        The device, inode and size of the file when it was mapped.
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
    machine: str
    device: int
    inode: int
    size: int
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
        status = Path(path).stat()
        if sys.platform.startswith("linux") and _mapped_inode(low) != status.st_ino:
            return None
    except OSError:
        return None
    return MappedRange(
        path=path,
        machine=this_machine(),
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
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

    On another machine, or in a container with another filesystem at this path, a file of the same size is accepted.

    Raises
    ------
    FileNotFoundError, ValueError
        The file has been moved or replaced since, or the file on this machine is a different one.
    """
    status = Path(place.path).stat()
    if (place.machine, place.device) == (this_machine(), status.st_dev):
        if status.st_ino != place.inode:
            raise ValueError(f"{place.path} was replaced after a dataset got an array over it")
    elif status.st_size != place.size:
        raise ValueError(
            f"{place.path} has {status.st_size:,} bytes on {platform.node()} and {place.size:,} where a dataset got "
            "an array over it; workers on other machines need the same file at the same path"
        )
    if not place.plain:
        return np.memmap(place.path, place.dtype, place.mode, place.offset, place.shape)
    memory = np.memmap(place.path, np.uint8, place.mode, place.offset, (place.nbytes,))
    return np.ndarray(place.shape, place.dtype, memory, place.first, place.strides)


@functools.cache
def this_machine() -> str:
    """Return an id of this machine that changes when it is restarted, or its name if there is no such id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _mapped_inode(address: int) -> int | None:
    """Return the inode of the file that is mapped at an address."""
    for line in Path("/proc/self/maps").read_bytes().split(b"\n")[:-1]:  # names may be any bytes
        span, _, _, _, inode, *_ = line.split()
        start, end = (int(bound, 16) for bound in span.split(b"-"))
        if start <= address < end:
            return int(inode)
    return None
