"""Parcels: consecutive elements as a host process hands them to its consumers.

A parcel is a packet: a pickle of the elements whose large arrays stand apart, as places in the arena. Those that the
iterator delivers in a slot stay where they are, and the parcel keeps the slot leased; other arrays are copied into a slot of the
parcel's own.
"""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.service.host.wire import Packet
from tundish.shm.layout import pickled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.shm.ring import Ring

_LEAST = 64 << 10
"""Bytes from which on an array does not travel in the pickle."""
_PICKLED = 64 << 10
_ALIGN = 128
_numbers = itertools.count()

Span = tuple[int, int, int, bool]
"""A slot's number, the first byte in it, the byte after the last, and whether the array is read-only."""


@dataclass(frozen=True)
class Failed:
    """An error in the place of an element, pickled."""

    error: bytes


@dataclass(eq=False)
class Parcel:
    """Elements on their way to consumers.

    Parameters
    ----------
    number : int
        Its number, of all that this process makes.
    first, stop : int
        The numbers in the stream of its first element, and of the one after its last.
    packet : Packet
        The encoded elements.
    nbytes : int
        The bytes of its arrays in the arena, and of its packet.
    kept : object
        The references that keep the arrays there.
    """

    number: int
    first: int
    stop: int
    packet: Packet
    nbytes: int
    kept: Any


class GatheredElements:
    """Elements that are being gathered to a parcel, encoded one by one."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._bodies: list[Any] = []
        self._spans: list[Span] = []
        self._kept: list[Any] = []
        self._loose: list[tuple[int, pickle.PickleBuffer]] = []
        self._size = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def is_full(self) -> bool:
        """True if another element would make it large."""
        return bool(self._spans) or self._size >= _PICKLED

    def add(self, element: Any) -> None:
        """Append an element, or its error if it cannot be pickled."""
        try:
            body, buffers = pickled(element, _LEAST)
        except Exception as error:  # noqa: BLE001 - of the element's own
            error.add_note("tundish: an element of a pipeline that processes share is pickled")
            self.fail(error)
            return
        for buffer in buffers:
            self._place(buffer)
        self._size += len(body)
        self._bodies.append((body, len(buffers)))

    def fail(self, error: BaseException) -> None:
        """Append an error in the place of an element."""
        body = dumps_exception(error)
        self._size += len(body)
        self._bodies.append(Failed(body))

    def _place(self, buffer: pickle.PickleBuffer) -> None:
        raw = buffer.raw()
        arena = self._ring.arena
        at = _address(raw) - _address(arena.map)
        if 0 <= at < arena.reserved:
            slot, start = divmod(at, arena.stride)
            self._spans.append((slot, start, start + raw.nbytes, raw.readonly))
            self._kept.append(buffer)
            self.nbytes += raw.nbytes
        else:
            self._loose.append((len(self._spans), buffer))
            self._spans.append((0, 0, raw.nbytes, raw.readonly))

    @property
    def loose_nbytes(self) -> int:
        """The bytes of arrays that are not in the arena yet."""
        return sum(buffer.raw().nbytes + _ALIGN for _, buffer in self._loose)

    def settle(self) -> bool:
        """Copy arrays that are not in the arena to a slot; return False if none is free.

        Raises
        ------
        SharedMemoryError
            There is not so much memory.
        """
        nbytes, ring = self.loose_nbytes, self._ring
        slot = ring.acquire_pages(nbytes)
        if slot is None:
            return False
        root = ring.lease(slot, nbytes)
        end = 0
        for at, buffer in self._loose:
            raw = buffer.raw()
            root[end : end + raw.nbytes] = np.frombuffer(raw, np.uint8)
            self._spans[at] = (slot, end, end + raw.nbytes, raw.readonly)
            end += -(-raw.nbytes // _ALIGN) * _ALIGN
        self._loose.clear()
        self._kept.append(root)
        self.nbytes += nbytes
        return True

    def parcel(self, first: int, anchor: Any) -> Parcel:
        """Return the elements as a parcel; `anchor` is the position after them, or None."""
        number = next(_numbers)
        message = ("parcel", number, first, self._bodies, self._spans, anchor)
        nbytes = self.nbytes + self._size
        return Parcel(number, first, first + len(self), Packet.of(message), nbytes, self._kept)


def opened_elements(
    bodies: list[Any], spans: list[Span], buffer_of: Callable[[Span], Any]
) -> list[Any]:
    """Return a parcel's elements in the consumer, where they may be `Failed`; `buffer_of` returns the memory of a span."""
    elements: list[Any] = []
    at = 0
    for each in bodies:
        if type(each) is Failed:
            elements.append(each)
            continue
        body, count = each
        buffers = [buffer_of(span) for span in spans[at : at + count]]
        at += count
        elements.append(pickle.loads(body, buffers=buffers))
    return elements


def _address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, np.uint8, 1).__array_interface__["data"][0])
