"""Python values as one piece of bytes: pickle protocol 5 with the large buffers out of band.

The piece is a little table, the pickle, then each buffer on a 64-byte line. Decoded over shared
memory, arrays (and Arrow tables) are views of it: nothing is copied but small things.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

import cloudpickle
import numpy as np

_HEAD = struct.Struct("<II")
_ALIGN = 64
_LEAST = 4096


class Encoded:
    """A value, ready to be written.

    Parameters
    ----------
    value : object
        Anything that pickle, or else cloudpickle, can take.
    """

    __slots__ = ("_buffers", "_head", "nbytes")

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []

        def aside(buffer: pickle.PickleBuffer) -> bool:
            # True keeps a buffer in the pickle: small ones, and what has no contiguous memory.
            try:
                raw = buffer.raw()
            except BufferError:
                return True
            if raw.nbytes < _LEAST:
                return True
            buffers.append(buffer)
            return False

        try:
            main = pickle.dumps(value, protocol=5, buffer_callback=aside)
        except Exception:  # noqa: BLE001 - whatever pickle cannot take, cloudpickle may
            buffers.clear()
            main = cloudpickle.dumps(value, protocol=5, buffer_callback=aside)
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
        """The piece as bytes of its own."""
        if not self._buffers:
            return self._head
        target = bytearray(self.nbytes)
        self.write(target)
        return bytes(target)


def decode(root: np.ndarray | bytes | bytearray) -> Any:
    """The value of a piece; arrays are views of `root`, writable if it is.

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
