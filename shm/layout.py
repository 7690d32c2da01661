"""The layout of a block's arrays in a slot, and Python values as one piece of bytes.

A block is n elements of one structure. Leaves of a fixed size are columns, ``(n, *shape)``, one
after another, each aligned to 128 bytes, so that several workers can write their rows at
once; leaves without a fixed size (str, bytes, objects) are sent separately.

A piece is a small table, the pickle, then each buffer aligned to 64 bytes. Decoded over shared
memory, arrays (and Arrow tables) are views of it: only small things are copied.
"""

from __future__ import annotations

import math
import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from tundish.spec import Tree

ALIGN = 128

MOST_DIMENSIONS = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32
"""The most dimensions of an array of numpy."""

Key = tuple[Any, tuple[int, ...]] | type


def is_fixed(key: Key) -> TypeGuard[tuple[Any, tuple[int, ...]]]:
    """Return True if rows of a leaf can form one array in shared memory.

    ``str``, ``bytes`` and objects cannot, since they have no fixed size, nor can an array with so many dimensions that
    none is left for the rows.
    """
    return not isinstance(key, type) and not key[0].hasobject and len(key[1]) < MOST_DIMENSIONS


@dataclass(frozen=True)
class Layout:
    """The columns of a block in a slot.

    Parameters
    ----------
    tree : Tree
        The elements' structure.
    keys : tuple of ((dtype, shape) or type)
        The key of every leaf; a type for one that is not an array.
    rows : int
        The number of elements.
    """

    tree: Tree
    keys: tuple[Key, ...]
    rows: int
    offsets: tuple[int | None, ...] = field(init=False, compare=False)
    sizes: tuple[int, ...] = field(init=False, compare=False)
    """The bytes of a row of each column; 0 for leaves that have none."""
    nbytes: int = field(init=False, compare=False)
    row_nbytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        offsets: list[int | None] = []
        sizes: list[int] = []
        end = 0
        for key in self.keys:
            if not is_fixed(key):
                offsets.append(None)
                sizes.append(0)
                continue
            start = -(-end // ALIGN) * ALIGN
            sizes.append(key[0].itemsize * math.prod(key[1]))
            offsets.append(start)
            end = start + sizes[-1] * self.rows
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "sizes", tuple(sizes))
        object.__setattr__(self, "nbytes", end)
        object.__setattr__(self, "row_nbytes", sum(sizes))

    def columns(self, root: np.ndarray) -> list[np.ndarray | None]:
        """Return the columns over a slot's root array; None for leaves without a fixed size.

        Examples
        --------
        >>> layout = Layout(None, ((np.dtype("i2"), (3,)),), 2)
        >>> layout.columns(np.zeros(layout.nbytes, np.uint8))[0].shape
        (2, 3)
        """
        return [
            None if offset is None else np.ndarray((self.rows, *key[1]), key[0], root, offset)  # type: ignore[index]
            for key, offset in zip(self.keys, self.offsets, strict=True)
        ]

    def spans(self, first: int, count: int) -> list[tuple[int, int]]:
        """Return the byte ranges (offset, length) of some rows, one for each column."""
        return [
            (offset + first * size, count * size)
            for offset, size in zip(self.offsets, self.sizes, strict=True)
            if offset is not None
        ]


_HEAD = struct.Struct("<II")
_ALIGN = 64
_LEAST = 4096


def pickled(value: Any, least: int) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle a value, by cloudpickle if pickle cannot; return its larger buffers separately."""
    buffers: list[pickle.PickleBuffer] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        # True keeps a buffer in the pickle: small ones, and what has no contiguous memory.
        try:
            if buffer.raw().nbytes < least:
                return True
        except BufferError:
            return True
        buffers.append(buffer)
        return False

    try:
        return pickle.dumps(value, protocol=5, buffer_callback=aside), buffers
    except Exception:  # noqa: BLE001 - whatever pickle cannot take, cloudpickle may
        buffers.clear()
        from tundish.shm.cloud import dumps  # noqa: PLC0415 - takes a while, and few elements need it

        return dumps(value, aside), buffers


class Encoded:
    """A value, pickled and ready to be written.

    Parameters
    ----------
    value : object
        Anything that pickle, or else cloudpickle, can handle.
    """

    __slots__ = ("_buffers", "_head", "nbytes")

    def __init__(self, value: Any) -> None:
        main, buffers = pickled(value, _LEAST)
        raws = [b.raw() for b in buffers]
        sizes = struct.pack(f"<{len(raws)}Q", *[r.nbytes for r in raws])
        self._head = _HEAD.pack(len(raws), len(main)) + sizes + main
        self._buffers = raws
        end = len(self._head)
        for raw in raws:
            end = -(-end // _ALIGN) * _ALIGN + raw.nbytes
        self.nbytes = end

    def write(self, target: memoryview | bytearray) -> None:
        """Write the piece into the first `nbytes` of a buffer."""
        view = memoryview(target)
        end = len(self._head)
        view[:end] = self._head
        for raw in self._buffers:
            start = -(-end // _ALIGN) * _ALIGN
            end = start + raw.nbytes
            view[start:end] = raw

    def to_bytes(self) -> bytes:
        """Return the piece as separate bytes."""
        if not self._buffers:
            return self._head
        target = bytearray(self.nbytes)
        self.write(target)
        return bytes(target)


def decode(root: np.ndarray | bytes | bytearray) -> Any:
    """Decode a piece; arrays are views of `root`, writable if it is.

    Examples
    --------
    >>> decode(bytearray(Encoded({"a": 1}).to_bytes()))
    {'a': 1}
    """
    view = root.data if isinstance(root, np.ndarray) else memoryview(root)
    count, size = _HEAD.unpack_from(view)
    sizes = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    start = _HEAD.size + 8 * count
    end = start + size
    main = view[start:end]
    buffers = []
    for nbytes in sizes:
        first = -(-end // _ALIGN) * _ALIGN
        end = first + nbytes
        buffers.append(root[first:end] if isinstance(root, np.ndarray) else view[first:end])
    return pickle.loads(main, buffers=buffers)
