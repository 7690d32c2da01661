"""States: one for all processes and for any number of them, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distribute.together import each, globally, plain, steps

import tundish as td
from tundish.distribute.state import DistributedPlace, StateKind, to_state
from tundish.errors import CheckpointError, IncompatibleCheckpointError


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x * 1000 + rng.integers(1000)


PLANS: dict[str, Callable[[], td.Dataset]] = {
    "permuted": lambda: td.Dataset.range(50).shuffle(None, seed=2).map(drawn, seed=1).batch(12),
    "window": lambda: td.Dataset.range(50).map(drawn, seed=1).shuffle(9, seed=3).batch(12),
    "unseeded": lambda: td.Dataset.range(50).shuffle(9).batch(12),
    "filtered": lambda: (
        td.Dataset.range(90).filter(lambda x: x % 2 == 0).map(drawn, seed=1).batch(12)
    ),
    "generated": lambda: td.Dataset.from_generator(
        lambda: iter(range(50)), output_signature=td.ArraySpec((), np.int64)
    ).batch(12),
    "repeated": lambda: td.Dataset.range(20).shuffle(None, seed=1).batch(12).repeat(3),
    "batches": lambda: td.Dataset.range(50).batch(12).map(lambda x: x[::-1]).shuffle(2, seed=1),
    "flat": lambda: td.Dataset.range(10).flat_map(lambda x: td.Dataset.range(int(x))).batch(12),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 3), (2, 5)])
def test_others_go_on_from_the_state_of_any(plan: str, before: int, after: int) -> None:
    """Every batch whole, the rest exactly, at every step."""
    build = PLANS[plan]
    whole = globally([steps(one.iterator(workers=0)) for one in each(build(), 1)])
    assert len(whole) >= 4
    for at in range(len(whole) + 1):
        states, head = [], []
        for one in each(build(), before):
            with one.iterator(workers=0) as iterator:
                head.append(steps(iterator, at))
                states.append(json.loads(json.dumps(iterator.state_dict())))
        if at < len(whole):  # of the last one some processes may have no row
            assert all(state == states[0] for state in states)
        rest = []
        for one in each(build(), after, 2):
            with one.iterator(workers=0) as iterator:
                iterator.load_state_dict(states[-1])
                rest.append(steps(iterator))

        assert [*(globally(head) if at else []), *globally(rest)] == whole


def test_saving_and_restoring(tmp_path: Path) -> None:
    build = PLANS["permuted"]
    with iter(each(build(), 2)[0]) as iterator:
        assert not iterator.restore(tmp_path / "none.json", missing_ok=True)
        steps(iterator, 2)
        iterator.save(tmp_path / "one.json")
        iterator.save(tmp_path / "series", keep=2)
        rest = steps(iterator)
    for path in ("one.json", "series"):
        with iter(each(build(), 2)[0]) as iterator:
            assert iterator.restore(tmp_path / path)
            assert steps(iterator) == rest
    with pytest.raises(FileNotFoundError):
        iter(each(build(), 2)[0]).restore(tmp_path / "none.json")
    with pytest.raises(ValueError, match="keep must be at least 1"):
        iter(each(build(), 2)[0]).save(tmp_path / "series", keep=0)


def state_of(ds: td.distribute.DistributedDataset) -> Any:
    with ds.iterator(workers=0) as iterator:
        next(iterator)
        return iterator.state_dict()


def test_what_is_refused() -> None:
    one = each(td.Dataset.range(9).batch(4), 2)[0]
    for state, error, says in [
        ({}, CheckpointError, "not an iterator state"),
        (iter(td.Dataset.range(9).batch(4)).state_dict(), CheckpointError, "states of its own"),
        (
            state_of(each(td.Dataset.range(9).batch(6), 2)[0]),
            IncompatibleCheckpointError,
            "4 here, 6 in",
        ),
        (
            state_of(each(td.Dataset.range(9).batch(4).map(lambda x: x), 2)[0]),
            IncompatibleCheckpointError,
            "computes every batch",
        ),
    ]:
        with one.iterator(workers=0) as iterator, pytest.raises(error, match=says):
            iterator.load_state_dict(state)


def test_what_came_out_of_turn_belongs_to_its_process() -> None:
    state = state_of(each(td.Dataset.range(9).batch(4), 2)[0])
    state["position"] = {"ahead": [[1, 2]], "up": state["position"]}
    kind = StateKind("share", (td.Dataset.range(2)._node,), (), (2, 1), True)
    assert to_state(kind, [state], DistributedPlace(1, False))["distributed"]["process"] == [2, 1]


def test_the_end_is_in_the_state() -> None:
    one = each(td.Dataset.range(4).batch(4), 2)[1]
    with one.iterator(workers=0) as iterator:
        assert steps(iterator) == [[[2, 3]]]
        state = iterator.state_dict()
    with one.iterator(workers=0) as iterator:
        iterator.load_state_dict(state)
        assert list(iterator) == []


@pytest.mark.parametrize("uneven", [None, "pad"])
def test_a_state_taken_behind_the_with_block_goes_on(uneven: str | None) -> None:
    ds = td.Dataset.range(10).map(lambda x: {"x": x}).batch(4)
    for one in each(ds, 2, uneven=uneven):
        with one.iterator(workers=0) as iterator:
            steps(iterator, 1)
            before = iterator.state_dict()
        assert steps(iterator) == []  # it is closed
        assert iterator.state_dict() == before
        with one.iterator(workers=0) as other:
            other.load_state_dict(iterator.state_dict())
            assert len(steps(other)) == 2
        iterator.load_state_dict(before)  # as an iterator of a dataset does
        assert len(steps(iterator)) == 2


def test_resuming_before_a_step_without_rows() -> None:
    """The form of an array without rows is learnt from the dataset."""

    def build() -> td.Dataset:
        return td.Dataset.range(9).map(lambda x: np.full(2, x)).batch(8)

    state = state_of(each(build(), 3)[0])
    with each(build(), 3)[2].iterator(workers=0) as iterator:
        iterator.load_state_dict(state)
        (step,) = list(iterator)
    assert step.shape == (0, 2)
    assert plain(step) == []


@pytest.mark.parametrize("missing", ["form", "steps", "ended", "plan", "position"])
def test_a_state_that_somebody_has_cut_is_refused(missing: str) -> None:
    one = each(td.Dataset.range(9).batch(4), 2)[0]
    with one.iterator(workers=0) as iterator:
        state = iterator.state_dict()
        for part in (state, state["distributed"]):
            part.pop(missing, None)
        with pytest.raises(CheckpointError, match="malformed"):
            iterator.load_state_dict(state)
