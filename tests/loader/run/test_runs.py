"""Rows that workers have made, taken in runs by what comes after: streams that a map reads, batches of several runs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.protocols.pieces import Braid, Pieces
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)


def test_pieces_are_a_sequence() -> None:
    rng = random.Random(1)
    source = list(range(100))
    for _ in range(50):
        stretches = []
        for _ in range(rng.randrange(1, 6)):
            first = rng.randrange(90)
            stretches.append((source, first, first + rng.randrange(1, 10)))
        meant = [x for _, first, stop in stretches for x in source[first:stop]]
        pieces = Pieces(stretches)
        assert len(pieces) == len(meant)
        assert list(pieces) == [pieces[k] for k in range(len(pieces))] == meant
        first = rng.randrange(len(meant))
        stop = rng.randrange(first, len(meant)) + 1
        assert list(pieces[first:stop]) == meant[first:stop]
        assert list(pieces[first:stop][:1]) == meant[first : first + 1]


@pytest.mark.parametrize("each", [1, 2, 3])
def test_a_braid_takes_turns(each: int) -> None:
    braid = Braid([("abcdefgh", 1), ("ABCDEFGH", 2)], each)
    rounds = 6 // each
    meant = ""
    for k in range(rounds):
        meant += "abcdefgh"[1 + k * each :][:each] + "ABCDEFGH"[2 + k * each :][:each]
    assert "".join(braid[k] for k in range(len(meant))) == meant


class Inner:
    """A dataset of numbers, dicts, large rows, or ones of which some fail or differ in shape."""

    def __init__(self, kind: str, sizes: tuple[int, ...]) -> None:
        self.kind, self.sizes = kind, sizes

    def __call__(self, outer: Any) -> Dataset:
        first = 1000 * int(outer)
        count = self.sizes[int(outer) % len(self.sizes)]
        return Dataset.range(first, first + count).map(Made(self.kind))


class Made:
    """An element of some kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, x: Any) -> Any:
        if self.kind == "numbers":
            return x
        if self.kind == "fields":
            return {"a": np.full(5, x), "s": str(x), "n": x}
        if self.kind == "nothing":
            return {}
        if self.kind == "large":
            return np.full((40, 50), x, np.float32)
        if x % 97 == 41:
            raise ValueError(f"no {x}")
        return np.full(1 + int(x) % 97 // 90, x)


class Shown:
    """A map function that shows all there is of its argument."""

    def __call__(self, x: Any) -> Any:
        if isinstance(x, dict):
            return {"b": x.get("a", np.zeros(2)) + 1, "shown": repr(x)}
        if isinstance(x, np.ndarray) and x.size > 1:
            x += 1  # it may change what it is given
            return x.ravel()[:3]
        return x + 1


KINDS = ("numbers", "fields", "large", "nothing", "some fail")
SHAPES = {
    "flat_map": lambda inner: Dataset.range(3).flat_map(inner),
    "in turn": lambda inner: Dataset.range(5).interleave(inner, cycle_length=3),
    "twos": lambda inner: Dataset.range(3).interleave(inner, cycle_length=2, block_length=2),
    "long turns": lambda inner: Dataset.range(3).interleave(inner, cycle_length=2, block_length=90),
    "fewer than slots": lambda inner: Dataset.range(2).interleave(inner, cycle_length=16),
}


def of_streams(shape: str, kind: str) -> Dataset:
    return SHAPES[shape](Inner(kind, (130, 7, 0, 125))).map(Shown())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_map_after_streams(shape: str, kind: str) -> None:
    assert_workers_do_not_show(of_streams(shape, kind), (0, 2))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_state(shape: str) -> None:
    """Each state of workers is that of none, and goes on with either."""
    numbers = of_streams(shape, "numbers")
    with numbers.iterator(workers=0) as alone, numbers.iterator(workers=2) as many:
        for element in alone:
            assert next(many) == element
            assert many.state_dict() == alone.state_dict()

    assert_resumes_anywhere(numbers, (0, 2), steps=3)


@pytest.mark.parametrize("shape", ["flat_map", "in turn"])
def test_kills(shape: str) -> None:
    assert_survives_kills(of_streams(shape, "numbers"), kills=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["flat_map", "in turn"])
def test_batches_of_several_runs(shape: str, kind: str) -> None:
    """A batch reaches over chunks: a worker puts their rows together."""
    streams = SHAPES[shape](Inner(kind, (130, 7, 0, 125)))
    assert_workers_do_not_show(streams.batch(33), (0, 2))
    assert_workers_do_not_show(streams.map(Shown()).batch(33), (0, 2))
