"""Pinned slots: locked in memory by a device's driver, so that the device copies from them directly.

A copy to a device may still be running when its batch is released. So a slot that is
registered is not free when its last view is gone, but when everything that the device was asked
for by then is done: a *mark* is put into the device's queues, and checked before the slot is
granted again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tundish.shm.memory import Arena


class DeviceMark(Protocol):
    """A marker in a device's queues."""

    def passed(self) -> bool:
        """Return True if everything before it is done."""
        ...


class Driver(Protocol):
    """Locks memory for a device."""

    def register(self, address: int, nbytes: int) -> bool:
        """Lock a range of memory; return False if the driver refuses."""
        ...

    def unregister(self, address: int) -> None:
        """Unlock the range that begins at an address."""
        ...

    def mark(self) -> list[DeviceMark]:
        """Return marks after all unfinished work in all queues."""
        ...


MakeDriver = Callable[[], Driver | None]
"""Makes a device's driver; None where there is no device."""

_OFFERED: list[MakeDriver] = []


def offer_driver(make: MakeDriver) -> None:
    """Let a device's driver be found; a bridge to a framework does so when it is imported."""
    _OFFERED.append(make)


def find_driver() -> Driver | None:
    """Return the driver of the first device that a bridge knows; None if there is none."""
    return next((found for make in _OFFERED if (found := make()) is not None), None)


class PinnedSlots:
    """The registered slots of an arena, with their registered sizes.

    Parameters
    ----------
    arena : Arena
        The memory.
    driver : Driver
        The device's driver.
    """

    def __init__(self, arena: Arena, driver: Driver) -> None:
        self._driver = driver
        self._address = arena.root(0, 1).__array_interface__["data"][0]
        self._stride = arena.stride
        self._nbytes: dict[int, int] = {}
        self.refused = False

    def lend(self, slot: int, nbytes: int) -> bool:
        """Register a slot's first bytes, once; return False if the driver refuses.

        Parameters
        ----------
        slot : int
            A granted slot, from which nobody copies.
        nbytes : int
            The number of its bytes that have pages.
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

    def mark(self, slot: int) -> list[DeviceMark]:
        """Return the marks that a slot has to wait for after its last view is gone."""
        return self._driver.mark() if slot in self._nbytes else []

    def forget(self, slot: int) -> None:
        """Unregister a slot, before its pages are released: the device would keep the old ones."""
        if self._nbytes.pop(slot, 0):
            self._driver.unregister(self._at(slot))

    @property
    def nbytes(self) -> int:
        """The total of registered bytes."""
        return sum(self._nbytes.values())

    def _at(self, slot: int) -> int:
        return int(self._address) + slot * self._stride
