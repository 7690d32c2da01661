"""The ring: slots go round, a slot that is held is never granted, and nothing is ever lost."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tundish.errors import SharedMemoryError
from tundish.shm.memory import PAGE, Arena
from tundish.shm.ring import Ring, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.shm.conftest import Run

SLOTS = 6
STRIDE = 4 * PAGE


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(stride=STRIDE, slots=SLOTS)
    yield arena
    arena.close()


@pytest.fixture
def ring(arena: Arena) -> Ring:
    return Ring(arena)


def leased(ring: Ring) -> tuple[int, Any]:
    slot = acquired(ring)
    return slot, ring.lease(slot, 1000)


def acquired(ring: Ring) -> int:
    slot = ring.acquire()
    assert slot is not None
    return slot


# What a consumer may do with a batch and still be reading the slot.
HOLDING: dict[str, Callable[[np.ndarray[Any, Any]], object]] = {
    "itself": lambda root: root,
    "slice": lambda root: root[10:20],
    "one row": lambda root: root.reshape(100, 10)[3],
    "reshape": lambda root: root.reshape(10, 100),
    "transpose": lambda root: root.reshape(10, 100).T,
    "view of another type": lambda root: root.view(np.float64),
    "array over it": lambda root: np.ndarray((10,), np.int32, root, 128),
    "asarray": np.asarray,
    "as_strided": lambda root: np.lib.stride_tricks.as_strided(root, (3,), (2,)),
    "broadcast": lambda root: np.broadcast_to(root, (2, 1000)),
    "flat": lambda root: root.flat,
    "subclass": lambda root: root.view(np.recarray),
    "memoryview": lambda root: root.data,
    "slice of a memoryview": lambda root: root.data[5:],
    "DLPack": np.from_dlpack,
    "Arrow buffer": pa.py_buffer,
    "Arrow array": lambda root: pa.array(root.view(np.int64)),
    "Arrow buffer of a view": lambda root: pa.py_buffer(root[8:]).slice(8),
    "object that refers to it": lambda root: {"image": [root[1:]]},
}

RELEASING: dict[str, Callable[[np.ndarray[Any, Any]], object]] = {
    "copy": lambda root: root.copy(),
    "fancy index": lambda root: root[[1, 2, 3]],
    "mask": lambda root: root[root == 0],
    "scalar": lambda root: root[5],
    "bytes": lambda root: root.tobytes(),
    "arithmetic": lambda root: root + 1,
    "other type": lambda root: root.astype(np.int32),
}


@pytest.mark.parametrize("hold", HOLDING.values(), ids=HOLDING)
def test_a_view_holds_its_slot(ring: Ring, hold: Callable[[Any], object]) -> None:
    slot, root = leased(ring)
    held = hold(root)
    del root
    gc.collect()
    assert (ring.free, ring.leased) == (SLOTS - 1, 1)
    assert slot not in {ring.acquire() for _ in range(SLOTS)}
    del held
    gc.collect()
    assert ring.leased == 0
    assert ring.acquire() == slot


@pytest.mark.parametrize("hold", RELEASING.values(), ids=RELEASING)
def test_what_has_bytes_of_its_own_holds_nothing(ring: Ring, hold: Callable[[Any], object]) -> None:
    slot, root = leased(ring)
    held = hold(root)
    del root
    assert ring.free == SLOTS
    assert ring.acquire() == slot
    del held


def test_a_lease_in_a_cycle_ends_with_the_garbage_collection(ring: Ring) -> None:
    _, root = leased(ring)
    cycle: list[Any] = [root]
    cycle.append(cycle)
    del root, cycle
    gc.collect()
    assert ring.free == SLOTS


def test_a_lease_shows_the_slots_bytes(arena: Arena, ring: Ring) -> None:
    slot = acquired(ring)
    arena.allocate(slot, 0, 100)
    arena.root(slot, 100)[:] = 6
    root = ring.lease(slot, 100)
    assert root.sum() == 600
    root[0] = 1
    assert arena.root(slot, 1)[0] == 1


def test_a_lease_outlives_the_ring_and_the_arena() -> None:
    arena = Arena.create(stride=STRIDE, slots=SLOTS)
    ring = Ring(arena)
    slot = acquired(ring)
    arena.allocate(slot, 0, 100)
    root = ring.lease(slot, 100)
    root[:] = 4
    arena.close()
    del ring, arena
    gc.collect()
    assert root.sum() == 400


def test_a_lease_of_nothing_ends_like_any_other(ring: Ring) -> None:
    root = ring.lease(acquired(ring), 0)
    assert root.size == 0
    assert ring.leased == 1
    del root
    assert ring.free == SLOTS


def test_the_slot_freed_last_comes_first(ring: Ring) -> None:
    slots = [acquired(ring) for _ in range(3)]
    for slot in (slots[1], slots[0], slots[2]):
        ring.release(slot)
    assert [ring.acquire() for _ in range(3)] == [slots[2], slots[0], slots[1]]


def test_no_more_slots_are_touched_than_were_needed_at_once(ring: Ring) -> None:
    touched = set()
    held: list[Any] = []
    for _ in range(50):
        slot, root = leased(ring)
        touched.add(slot)
        held = [*held[-1:], root]
        del root
    assert len(touched) == 3


def test_when_all_are_taken_there_is_none(ring: Ring) -> None:
    assert None not in [ring.acquire() for _ in range(SLOTS)]
    assert ring.acquire() is None
    assert ring.free == 0


def test_a_slot_is_taken_with_its_pages_or_not_at_all(
    arena: Arena, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ring.free, ring.used_bytes
    with monkeypatch.context() as patched:
        patched.setattr(arena, "allocate", Mock(side_effect=SharedMemoryError("it", 4096, 0)))
        with pytest.raises(SharedMemoryError):
            ring.acquire_pages(4096)
    assert (ring.free, ring.used_bytes) == before

    slot = ring.acquire_pages(4096)
    assert slot is not None
    assert (ring.allocated(slot), ring.used_bytes - before[1]) == (4096, 4096)


def test_a_quarantined_slot_is_not_granted(ring: Ring) -> None:
    slot = acquired(ring)
    ring.quarantine(slot)
    assert slot not in [ring.acquire() for _ in range(SLOTS)]
    assert ring.count(SlotState.QUARANTINED) == 1
    ring.clear(slot)
    assert ring.acquire() == slot


def test_a_wrong_step_is_refused(ring: Ring) -> None:
    slot = acquired(ring)
    other = acquired(ring)
    ring.release(other)
    root = ring.lease(slot, 10)
    for step in (ring.release, ring.quarantine, ring.clear):
        with pytest.raises(RuntimeError, match=f"slot {slot} is LEASED"):
            step(slot)
    for step in (ring.release, ring.quarantine, ring.clear):
        with pytest.raises(RuntimeError, match=f"slot {other} is FREE"):
            step(other)
    with pytest.raises(RuntimeError, match="LEASED, not GRANTED"):
        ring.lease(slot, 10)
    del root
    assert ring.free == SLOTS


def test_bytes_are_counted_and_given_back(arena: Arena, ring: Ring) -> None:
    slots = [acquired(ring) for _ in range(3)]
    for slot in slots:
        arena.allocate(slot, 0, 2 * PAGE)
        ring.grew(slot, 2 * PAGE)
        ring.grew(slot, PAGE)
    assert [ring.allocated(slot) for slot in slots] == [2 * PAGE] * 3
    assert ring.used_bytes == 6 * PAGE
    kept = ring.lease(slots[0], 10)
    ring.release(slots[1])
    ring.release(slots[2])
    ring.trim(6 * PAGE)
    assert ring.used_bytes == 6 * PAGE
    ring.trim(5 * PAGE)
    assert ring.used_bytes == 4 * PAGE
    assert [ring.allocated(slot) for slot in slots] == [2 * PAGE, 0, 2 * PAGE]  # the coldest
    assert ring.acquire() == slots[2]
    ring.release(slots[2])
    ring.trim(0)
    assert ring.used_bytes == 2 * PAGE  # what is leased stays
    del kept


def test_trimming_all_takes_pages_that_nobody_noted(arena: Arena, ring: Ring) -> None:
    slot = acquired(ring)
    arena.allocate(slot, 0, PAGE)
    arena.root(slot, PAGE)[:] = 1
    ring.release(slot)
    ring.trim(0)
    assert not arena.root(slot, PAGE).any()


def test_where_pages_cannot_be_given_back_they_stay_counted(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = acquired(ring)
    ring.grew(slot, PAGE)
    ring.release(slot)
    monkeypatch.setattr(Arena, "discard", lambda *_: False)
    ring.trim(0)
    assert ring.used_bytes == ring.allocated(slot) == PAGE


def test_a_finalizer_may_come_in_the_middle_of_a_call(
    arena: Arena, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = acquired(ring), acquired(ring)
    ring.release(first)
    discard = arena.discard

    def release_meanwhile(slot: int, offset: int, nbytes: int) -> bool:
        if other in held:
            held.remove(other)
            ring.release(other)  # as an iterator's finalizer does when garbage is collected here
        return discard(slot, offset, nbytes)

    held = {other}
    monkeypatch.setattr(arena, "discard", release_meanwhile)
    thread = threading.Thread(target=ring.trim, args=(0,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "the ring waits for itself"
    assert ring.free == SLOTS


def test_threads_share_a_ring(arena: Arena, ring: Ring) -> None:
    for slot in range(SLOTS):
        arena.allocate(slot, 0, PAGE)
    clashes: list[object] = []

    def work(mark: int) -> None:
        for step in range(2000):
            slot = ring.acquire()
            if slot is None:
                continue
            memory = arena.root(slot, 8)
            memory[:] = mark
            if step % 3:
                root = ring.lease(slot, 8)
                if (root != mark).any():
                    clashes.append((slot, mark, root.copy()))
                del root
            else:
                if (memory != mark).any():
                    clashes.append((slot, mark, memory.copy()))
                ring.release(slot)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
    assert ring.free == SLOTS


def test_a_forked_child_grants_and_frees_nothing(run: Run) -> None:
    said = run(
        """
        import os
        from tundish.shm.memory import Arena
        from tundish.shm.ring import Ring, SlotState

        arena = Arena.create(stride=4096, slots=3)
        ring = Ring(arena)
        granted, slot, bad = ring.acquire(), ring.acquire(), ring.acquire()
        ring.quarantine(bad)
        root = ring.lease(slot, 100)
        arena.allocate(slot, 0, 100)
        root[:] = 1
        if (child := os.fork()) == 0:
            errors = []
            for step in (ring.acquire, lambda: ring.lease(granted, 10)):
                try:
                    step()
                except RuntimeError as error:
                    errors.append("forked from it" in str(error))
            ring.release(granted)
            ring.quarantine(granted)
            ring.clear(bad)
            ring.grew(slot, 5)
            del root
            ring.trim(0)
            print(errors, ring.used_bytes, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(root.sum(), ring.leased, ring.count(SlotState.GRANTED))
        """
    )
    assert said.splitlines() == ["[True, True] 0", "100 1 1"]


def test_the_interpreter_ends_quietly_with_leases_held(run: Run) -> None:
    run(
        """
        import atexit, gc, sys
        from tundish.shm.memory import Arena
        from tundish.shm.ring import Ring

        class Late:
            def __del__(self):
                self.root[:] = 1
                del self.root
                self.ring.acquire()

        gc.disable()
        arena = Arena.create(stride=4096, slots=4)
        ring = Ring(arena)
        sys.in_a_module = ring.lease(ring.acquire(), 10)
        late = Late()
        late.ring, late.self, late.root = ring, late, ring.lease(ring.acquire(), 10)
        in_a_cycle = [ring.lease(ring.acquire(), 10)]
        in_a_cycle.append(in_a_cycle)
        atexit.register(lambda root: None, ring.lease(ring.acquire(), 10))
        """
    )


class RingAgainstModel(RuleBasedStateMachine):
    """Any sequence of steps: the ring does what a few plain sets do, and no byte is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena.create(stride=STRIDE, slots=SLOTS)
        self.ring = Ring(self.arena)
        self.granted: list[int] = []
        self.quarantined: list[int] = []
        self.views: list[tuple[int, int, Any]] = []  # slot, what it was filled with, the view
        self.allocated = [0] * SLOTS
        self.written = 0

    def teardown(self) -> None:
        self.views.clear()
        assert self.ring.free == SLOTS - len(self.granted) - len(self.quarantined)
        self.arena.close()

    def taken(self) -> set[int]:
        return {*self.granted, *self.quarantined, *(slot for slot, _, _ in self.views)}

    @rule()
    def acquire(self) -> None:
        slot = self.ring.acquire()
        if slot is None:
            assert len(self.taken()) == SLOTS
            return
        assert slot not in self.taken()
        self.arena.allocate(slot, 0, PAGE)
        self.allocated[slot] = max(self.allocated[slot], PAGE)
        self.ring.grew(slot, PAGE)
        self.written = self.written % 255 + 1
        self.arena.root(slot, PAGE)[:] = self.written
        self.granted.append(slot)

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), pages=st.integers(1, 4))
    def grow(self, data: st.DataObject, pages: int) -> None:
        slot = data.draw(st.sampled_from(self.granted))
        self.arena.allocate(slot, PAGE, (pages - 1) * PAGE)
        self.ring.grew(slot, pages * PAGE)
        self.allocated[slot] = max(self.allocated[slot], pages * PAGE)

    @rule(slot=st.integers(0, SLOTS - 1))
    def note_late(self, slot: int) -> None:
        if slot not in self.taken():  # a worker's answer may come after the slot was given up
            self.ring.grew(slot, 3 * PAGE)
            self.allocated[slot] = max(self.allocated[slot], 3 * PAGE)

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), view=st.sampled_from(sorted(HOLDING)))
    def deliver(self, data: st.DataObject, view: str) -> None:
        slot = self.take(data, self.granted)
        root = self.ring.lease(slot, 1000)
        self.views.append((slot, int(root[0]), HOLDING[view](root)))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        # An index: hypothesis keeps what it has drawn, and that would hold the slot.
        self.views.append(self.views[data.draw(st.integers(0, len(self.views) - 1))])

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.views.pop(data.draw(st.integers(0, len(self.views) - 1)))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.ring.release(self.take(data, self.granted))

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        slot = self.take(data, self.granted)
        self.ring.quarantine(slot)
        self.quarantined.append(slot)

    @precondition(lambda self: self.quarantined)
    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        self.ring.clear(self.take(data, self.quarantined))

    @rule(pages=st.integers(0, 4 * SLOTS))
    def trim(self, pages: int) -> None:
        before = sum(self.allocated)
        self.ring.trim(pages * PAGE)
        taken = self.taken()
        for slot in range(SLOTS):
            if slot not in taken and not self.ring.allocated(slot):
                self.allocated[slot] = 0
        kept = sum(self.allocated)
        held = sum(self.allocated[slot] for slot in taken)
        assert kept <= max(pages * PAGE, held)
        assert kept == before or before > pages * PAGE  # no more than was asked

    @invariant()
    def agrees(self) -> None:
        leased = {slot for slot, _, _ in self.views}
        count = self.ring.count
        assert count(SlotState.FREE) == self.ring.free == SLOTS - len(self.taken())
        assert count(SlotState.GRANTED) == len(self.granted)
        assert count(SlotState.LEASED) == self.ring.leased == len(leased)
        assert count(SlotState.QUARANTINED) == len(self.quarantined)
        assert self.ring.used_bytes == sum(self.allocated)
        assert [self.ring.allocated(slot) for slot in range(SLOTS)] == self.allocated
        taken = self.taken()
        free = [self.allocated[slot] for slot in range(SLOTS) if slot not in taken]
        assert self.ring.free_bytes == sum(free)

    @invariant()
    def nothing_is_overwritten(self) -> None:
        for slot, mark, _ in self.views:
            assert (self.arena.root(slot, 1000) == mark).all()

    @staticmethod
    def take(data: st.DataObject, slots: list[int]) -> int:
        return slots.pop(data.draw(st.integers(0, len(slots) - 1)))


RingAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
TestRingAgainstModel = RingAgainstModel.TestCase
