"""Slots that a device's driver has locked into memory, so that it copies from them by itself.

A copy to a device may still run when the batch it was made from is dropped. So a slot that is
registered is not free when its last view dies, but when everything that the device had been asked
for by then is done: a *mark* is put into the device's queues, and looked at before the slot is
granted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tundish.shm.memory import Arena


class Mark(Protocol):
    """A place in a device's queues."""

    def passed(self) -> bool:
        """Return True if everything before it is done."""
        ...


class Driver(Protocol):
    """The interface that locks memory for a device."""

    def register(self, address: int, nbytes: int) -> bool:
        """Lock a range of memory; False if the driver would not."""
        ...

    def unregister(self, address: int) -> None:
        """Let go of a range that begins there."""
        ...

    def mark(self) -> list[Mark]:
        """Return marks after everything that all queues have been asked for and not yet done."""
        ...


class PinnedSlots:
    """The slots of an arena that are registered, and with how many bytes.

    Parameters
    ----------
    arena : Arena
        The memory.
    driver : Driver
        Of the device.
    """

    def __init__(self, arena: Arena, driver: Driver) -> None:
        self._driver = driver
        self._address = arena.root(0, 1).__array_interface__["data"][0]
        self._stride = arena.stride
        self._nbytes: dict[int, int] = {}
        self.refused = False

    def lend(self, slot: int, nbytes: int) -> bool:
        """Have a slot's first bytes registered, once; False if the driver will not.

        Parameters
        ----------
        slot : int
            It is granted: nobody copies from it.
        nbytes : int
            How many of its bytes have pages.
        """
        if self._nbytes.get(slot, 0) >= nbytes:
            return True
        if self.refused:
            return False
        self.forget(slot)
        if not self._driver.register(self._at(slot), nbytes):
            self.refused = True
            return False
        self._nbytes[slot] = nbytes
        return True

    def mark(self, slot: int) -> list[Mark]:
        """Return what a slot whose last view has died has to wait for."""
        return self._driver.mark() if slot in self._nbytes else []

    def forget(self, slot: int) -> None:
        """Let go of a slot, before its pages are given back: the device would keep the old ones."""
        if self._nbytes.pop(slot, 0):
            self._driver.unregister(self._at(slot))

    @property
    def nbytes(self) -> int:
        """Bytes that are registered."""
        return sum(self._nbytes.values())

    def _at(self, slot: int) -> int:
        return int(self._address) + slot * self._stride
