"""Slots a device copies from: registered once, and not granted again before the copies have ended."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tundish.shm.memory import Arena
from tundish.shm.pinned import PinnedSlots
from tundish.shm.ring import Ring, SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.shm.pinned import DeviceMark

PAGE = 4096


class FakeStream:
    """A queue of a device: what was asked for, and how much of it is done."""

    def __init__(self) -> None:
        self.asked = self.done = 0


class FakeMark:
    def __init__(self, stream: FakeStream) -> None:
        self.stream, self.place = stream, stream.asked

    def passed(self) -> bool:
        return self.stream.done >= self.place


class FakeDriver:
    """Keeps what a driver would be told."""

    def __init__(self, *, limit: int = 1 << 40) -> None:
        self.streams = [FakeStream(), FakeStream()]
        self.registered: dict[int, int] = {}
        self.calls: list[str] = []
        self.limit = limit

    def register(self, address: int, nbytes: int) -> bool:
        assert address not in self.registered
        if sum(self.registered.values()) + nbytes > self.limit:
            return False
        self.registered[address] = nbytes
        self.calls.append("register")
        return True

    def unregister(self, address: int) -> None:
        del self.registered[address]
        self.calls.append("unregister")

    def mark(self) -> list[DeviceMark]:
        return [FakeMark(stream) for stream in self.streams if stream.asked > stream.done]


@pytest.fixture
def ring() -> Iterator[Ring]:
    arena = Arena.create(stride=16 * PAGE, slots=3)
    yield Ring(arena)
    arena.close()


def filled(ring: Ring, nbytes: int) -> int:
    slot = ring.acquire()
    assert slot is not None
    ring.arena.allocate(slot, 0, nbytes)
    ring.grew(slot, nbytes)
    return slot


def test_a_slot_is_registered_once(ring: Ring) -> None:
    driver = FakeDriver()
    ring.pinned = pinned = PinnedSlots(ring.arena, driver)
    slot = -1
    for _ in range(5):
        slot = filled(ring, 2 * PAGE)
        assert pinned.lend(slot, 2 * PAGE)
        root = ring.lease(slot, PAGE)
        del root
    assert driver.calls == ["register"]
    assert driver.registered == {ring.arena.root(slot, 1).ctypes.data: 2 * PAGE}


def test_one_that_grew_is_registered_anew(ring: Ring) -> None:
    driver = FakeDriver()
    ring.pinned = pinned = PinnedSlots(ring.arena, driver)
    slot = filled(ring, PAGE)
    assert pinned.lend(slot, PAGE)
    assert pinned.lend(slot, 3 * PAGE)
    assert driver.calls == ["register", "unregister", "register"]
    assert pinned.nbytes == 3 * PAGE


def test_not_granted_before_the_copies_have_ended(ring: Ring) -> None:
    driver = FakeDriver()
    ring.pinned = pinned = PinnedSlots(ring.arena, driver)
    first, second = driver.streams
    slot = filled(ring, PAGE)
    pinned.lend(slot, PAGE)
    root = ring.lease(slot, PAGE)
    first.asked, second.asked = 3, 1  # copies from the slot, on two streams
    del root
    gc.collect()
    assert ring.free == 2, "its last view is gone, the copies are not"
    assert ring._states[slot] is SlotState.DRAINING
    first.asked = 9  # what was asked for later is not waited for
    second.done = 1
    assert ring.free == 2
    first.done = 3
    assert ring.free == 3
    assert ring.acquire() == slot, "the warmest"


def test_an_idle_device_holds_nothing(ring: Ring) -> None:
    ring.pinned = pinned = PinnedSlots(ring.arena, FakeDriver())
    slot = filled(ring, PAGE)
    pinned.lend(slot, PAGE)
    ring.lease(slot, PAGE)
    gc.collect()
    assert ring.free == 3


def test_a_slot_that_is_not_registered_waits_for_no_device(ring: Ring) -> None:
    driver = FakeDriver()
    ring.pinned = PinnedSlots(ring.arena, driver)
    driver.streams[0].asked = 5
    ring.lease(filled(ring, PAGE), PAGE)
    gc.collect()
    assert ring.free == 3


def test_pages_are_not_given_back_while_they_are_registered(ring: Ring) -> None:
    driver = FakeDriver()
    ring.pinned = pinned = PinnedSlots(ring.arena, driver)
    slot = filled(ring, PAGE)
    pinned.lend(slot, PAGE)
    ring.release(slot)
    ring.trim(0)
    assert driver.registered == {}
    slot = filled(ring, PAGE)
    pinned.lend(slot, PAGE)
    ring.empty(slot)
    assert driver.registered == {}


def test_a_driver_that_will_not(ring: Ring) -> None:
    pinned = PinnedSlots(ring.arena, FakeDriver(limit=PAGE))
    assert pinned.lend(0, PAGE)
    assert not pinned.lend(1, PAGE)
    assert pinned.refused
    assert pinned.lend(0, PAGE), "what is registered stays so"
