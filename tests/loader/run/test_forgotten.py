"""A pass that stops early leaves nothing: its stages, blocks and slots go with it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.run.coordinating.coordinator import Coordinator
from tundish.loader.run.coordinating.store import shared_ring
from tundish.loader.run.iterator import Iterator
from tundish.loader.run.parallelengine import ParallelEngine
from tundish.shm.ring import SlotState


def double(x: Any) -> Any:
    return x * 2


def third(x: Any) -> bool:
    return bool(x % 3)


def below(x: Any) -> bool:
    return bool(x < 8)


def several(x: Any) -> Dataset:
    return Dataset.range(x, x + 3)


def many() -> Dataset:
    return Dataset.range(10**6).map(double).filter(third)


STOPPED = {
    "take": lambda: many().take(5),
    "take_while": lambda: many().take_while(below),
    "zip": lambda: Dataset.zip(Dataset.range(5), many()),
    "batch": lambda: many().batch(2).take(3).unbatch(),
    "flat_map": lambda: many().flat_map(several).take(5),
    "interleave": lambda: many().interleave(several, 3).take(5),
    "repeat": lambda: many().take(2).repeat().take(5),
    "concatenate": lambda: many().take(2).concatenate(many().take(3)),
}


def coordinator_of(iterator: Iterator) -> Coordinator:
    engine = iterator._engine
    assert isinstance(engine, ParallelEngine)
    return engine._coordinator


def held(coordinator: Coordinator) -> dict[str, int]:
    """Count each kind of thing that a pass may leave."""
    ring = coordinator.memory.ring
    assert ring is not None
    return {
        "stages": len(coordinator.stages),
        "repeats": len(coordinator.repeats),
        "blocks": len(coordinator._blocks),
        "slots": ring.arena.slots - ring.free,
        "numbers": coordinator._numbers - len(coordinator._free),
    }


@pytest.mark.parametrize("name", STOPPED)
def test_passes_that_stop_early_leave_nothing_behind(name: str) -> None:
    ds = STOPPED[name]()
    want = [str(x) for x in ds.iterator(workers=0)]
    passes = 60
    with ds.repeat(passes).iterator(workers=2) as it:
        found: list[str] = []
        early = late = {}
        for element in it:
            found.append(str(element))
            if len(found) == 5 * len(want):
                early = held(coordinator_of(it))
            if len(found) == (passes - 1) * len(want):
                late = held(coordinator_of(it))

    assert found == want * passes
    assert late
    assert all(late[what] <= 2 * early[what] + 8 for what in late), (early, late)


def test_a_restored_iterator_has_only_the_stages_of_its_place() -> None:
    ds = many().take(5).repeat(3)
    with ds.iterator(workers=2) as it:
        for _ in range(7):
            next(it)
        state = it.state_dict()
    with ds.iterator(workers=2) as it:
        it.load_state_dict(state)
        next(it)
        assert len(coordinator_of(it).stages) == 1


def held_up(x: Any) -> Any:
    if x:
        time.sleep(60)
    return np.full(100_000, x, np.float32)


def test_closing_gives_back_what_workers_still_write_for_nobody() -> None:
    ring = shared_ring()
    assert ring is not None
    before = ring.count(SlotState.GRANTED)
    with Dataset.range(100).map(held_up).iterator(workers=2) as it:
        next(it)
        coordinator = coordinator_of(it)
        coordinator.forget(coordinator.stages[0])
        assert ring.count(SlotState.GRANTED) > before

    assert ring.count(SlotState.GRANTED) == before
    assert not ring.count(SlotState.QUARANTINED)
