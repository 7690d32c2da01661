"""Pipelines with snapshots in several sessions: stopped anywhere, continued, resumed, read."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.testing.compare import Outcome, collect, difference

Make = Callable[[str], td.Dataset]


def numbers(x: np.int64) -> dict[str, Any]:
    return {"a": np.full((3,), x), "b": x * 2}


def noisy(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"a": element["a"] + rng.integers(100), "b": element["b"]}


def failing(x: np.int64) -> np.int64:
    if x % 7 == 3:
        raise ValueError(f"bad {x}")
    return x


def uneven(x: np.int64) -> tuple[Any, ...]:
    return (np.arange(x % 5), "s" * int(x % 4))


def even(element: dict[str, Any]) -> bool:
    return bool(element["b"] % 3)


def base(n: int = 40) -> td.Dataset:
    return td.Dataset.range(n)


MAKES: dict[str, Make] = {
    "elements": lambda p: base().map(numbers).snapshot(p, batch_bytes=200, shard_bytes=1000),
    "augmented": lambda p: (
        base()
        .map(numbers)
        .map(noisy, seed=3)
        .snapshot(p, batch_bytes=300)
        .map(noisy, seed=4)
        .batch(4)
    ),
    "filtered": lambda p: (
        base().map(numbers).filter(even).snapshot(p, batch_bytes=300).shuffle(7, seed=1).repeat(2)
    ),
    "repeated": lambda p: base().map(numbers).filter(even).snapshot(p).repeat(3).batch(7),
    "errors": lambda p: base().map(failing).snapshot(p, batch_bytes=100).skip(3).take(30).batch(4),
    "uneven": lambda p: (
        base().map(uneven).shuffle(9, seed=2).snapshot(p, batch_bytes=300).map(pair)
    ),
    "batches": lambda p: base().map(numbers).batch(3).snapshot(p, batch_bytes=300, shard_bytes=900),
    "rebatched": lambda p: base().map(numbers).batch(3).snapshot(p).unbatch().batch(4),
    "taken": lambda p: base().map(numbers).snapshot(p, batch_bytes=300).take(10).repeat(2),
    "two": lambda p: (
        base()
        .shuffle(None, seed=4)
        .map(numbers)
        .snapshot(p + "/a", batch_bytes=300)
        .map(noisy, seed=5)
        .snapshot(p + "/b", batch_bytes=400)
        .shard(2, 1)
    ),
    "zipped": lambda p: td.Dataset.zip(
        (base(100), base().map(numbers).snapshot(p, batch_bytes=300))
    ).batch(5),
    "twice": lambda p: both(base().map(numbers).snapshot(p, batch_bytes=300)),
    "flat": lambda p: base(10).flat_map(base).snapshot(p, batch_bytes=64).batch(6),
    "sorted": lambda p: base().map(numbers).snapshot(p, shard_func=third).batch(5),
    "compressed": lambda p: base().map(numbers).snapshot(p, compression="lz4").batch(5),
    "joined": lambda p: (
        base().map(numbers).snapshot(p).enumerate().concatenate(base(3).map(numbers).enumerate())
    ),
    "prefetched": lambda p: base().map(numbers).snapshot(p, batch_bytes=300).batch(3).prefetch(1),
}


def pair(a: Any, b: str) -> tuple[Any, ...]:
    return (a, b + "x")


def third(element: dict[str, Any]) -> np.int64:
    return np.int64(element["b"] % 3)


def both(ds: td.Dataset) -> td.Dataset:
    return td.Dataset.zip((ds, ds.map(lambda e: e["b"])))


def outcomes(make: Make, folder: str, workers: int, limit: int = 10_000) -> list[Outcome]:
    with make(folder).iterator(workers=workers) as it:
        return collect(it, limit=limit)


def same(expected: list[Outcome], found: list[Outcome], what: str) -> None:
    told = difference(expected, found, ("uninterrupted", what))
    assert told is None, told


@pytest.mark.parametrize("name", MAKES)
def test_sessions(name: str, tmp_path: Path) -> None:
    make, rng = MAKES[name], random.Random(name)
    expected = outcomes(make, str(tmp_path / "reference"), 0)
    kept = str(tmp_path / "kept")
    for _ in range(2):
        stop = rng.randrange(len(expected) + 1)
        same(expected[:stop], outcomes(make, kept, rng.choice([0, 2]), stop), f"up to {stop}")
    same(expected, outcomes(make, kept, rng.choice([0, 2])), "continued")
    same(expected, outcomes(make, kept, rng.choice([0, 2])), "read")

    # A state that was taken while it was written: restored there, where it is complete, where nothing is.
    at = rng.randrange(len(expected) + 1)
    begun = str(tmp_path / "begun")
    with make(begun).iterator(workers=2) as it:
        collect(it, limit=at)
        state = json.loads(json.dumps(it.state_dict()))
    for folder in (begun, kept, str(tmp_path / "nowhere")):
        with make(folder).iterator(workers=rng.choice([0, 2])) as it:
            it.load_state_dict(state)
            assert it.state_dict()["position"] == state["position"]
            same(expected[at:], collect(it), f"resumed at {at}")


def test_a_state_of_a_reader_where_nothing_stands(tmp_path: Path) -> None:
    def make() -> td.Dataset:
        return base().map(numbers).snapshot(tmp_path / "s").skip(2).batch(4).repeat(2)

    with make().iterator(workers=0) as it:
        expected = collect(it)
    with make().iterator(workers=0) as it:
        collect(it, limit=13)
        assert it.stats.snapshots[0].doing == "read"
        state = it.state_dict()
    shutil.rmtree(tmp_path / "s")
    with make().iterator(workers=2) as it:
        it.load_state_dict(state)
        same(expected[13:], collect(it), "resumed")


def test_states_of_other_draws_are_refused(tmp_path: Path) -> None:
    def make(folder: str) -> td.Dataset:
        return base().shuffle(9).snapshot(tmp_path / folder)

    states = []
    for folder in ("one", "other"):
        with make(folder).iterator() as it:
            next(it)
            states.append(it.state_dict())
            collect(it)
    with make("one").iterator() as it:
        it.load_state_dict(states[0])
        with pytest.raises(td.errors.IncompatibleCheckpointError, match=r"drew .* in the state"):
            it.load_state_dict(states[1])


def test_a_continued_run_draws_as_it_did(tmp_path: Path) -> None:
    def make() -> td.Dataset:
        return base().shuffle(9).snapshot(tmp_path / "s", batch_bytes=64)

    with make().iterator() as it:
        first = [int(x) for x in (next(it) for _ in range(11))]
    with make().iterator(workers=2) as it:
        whole = [int(x) for x in it]
    assert whole[:11] == first
    assert sorted(whole) == list(range(40))
    assert [int(x) for x in make()] == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_who_reads_along_goes_on_in_the_writer_s_order(tmp_path: Path, workers: int) -> None:
    """Without a seed each iterator draws an order of its own, and the durable part is in the writer's."""

    def make() -> td.Dataset:
        return base().shuffle(None).map(numbers).snapshot(tmp_path / "s", batch_bytes=64)

    with make().iterator(workers=0) as writer:
        whole = collect(writer, limit=11)
        writer.save(tmp_path / "state.json")
        with make().iterator(workers=workers) as other:
            assert other.stats.snapshots[0].doing == "pass"
            found = collect(other, limit=20)
            state = json.loads(json.dumps(other.state_dict()))
            found += collect(other)
        whole += collect(writer)
    same(whole, found, "read along")
    with make().iterator(workers=workers) as it:
        it.load_state_dict(state)
        same(whole[20:], collect(it), "resumed")


def test_all_snapshots_of_a_plan_have_one_seed(tmp_path: Path) -> None:
    """Each of two was begun by an iterator of its own, with another seed."""

    def make(name: str) -> td.Dataset:
        return base().shuffle(None).snapshot(tmp_path / name, batch_bytes=64)

    def both() -> td.Dataset:
        return td.Dataset.zip((make("a"), make("b")))

    for ds in (make("a"), make("b"), both()):
        with ds.iterator() as it:
            collect(it, limit=9)
    for _ in range(2):
        for part in zip(*both(), strict=True):
            assert sorted(map(int, part)) == list(range(40))
