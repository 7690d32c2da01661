"""Cases of the operators that carry a state from element to element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import (
    Become,
    Carry,
    Class,
    Draw,
    Emit,
    Fail,
    Inner,
    Keep,
    Tag,
    totals,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    k, percent = rng.randint(1, 9), rng.choice((0, 0, 20))
    return {
        f".scan(0, Carry({k}, {percent}))": 2,
        f".group_by_reducer(Class({k}, 3, {percent}, -1), totals({k}, {percent}))": 1,
    }


def alternate(state: Any, element: Any) -> Any:
    """A state whose dtype is now and then another: those elements are errors."""
    total = state["total"] + np.int64(len(repr(element)))
    if total % 3 == 0:
        total = total.astype(np.float32)
    return {"shape": np.ones(int(total) % 4, np.int8), "total": total}, state


ALTERNATING = {"total": 1, "shape": np.zeros(0, np.int8)}

CASES: dict[str, tuple[Case, ...]] = {
    "scan": (
        Case("scan", lambda d: d.range(12).map(Tag(1)).scan(0, Carry(1)).repeat(2)),
        Case("scan-errors", lambda d: failing(d).scan(0, Carry(2, 20)).batch(2)),
        Case(
            "scan-shuffled",
            lambda d: (
                d.range(30)
                .map(Draw(1), seed=3)
                .shuffle(5, seed=2)
                .scan(0, Carry(1, 10))
                .shuffle(6, seed=1)
                .map(Draw(2), seed=1)
            ),
        ),
        Case(
            "scan-filtered",
            lambda d: (
                d.range(30)
                .map(Fail(3, 30), on_error="skip")
                .filter(Keep(1))
                .scan(0, Carry(3))
                .map(Tag(1))
                .shuffle(4, seed=2)
                .batch(3)
                .shuffle(2, seed=1)
            ),
        ),
        Case("scan-state", lambda d: d.range(15).scan(ALTERNATING, alternate)),
        Case(
            "scan-images", lambda d: d.range(9).map(Become("image")).scan(0, Carry(1)).map(Tag(2))
        ),
        Case(
            "scan-mixed", lambda d: d.range(20).map(Become("mixed")).scan(0, Carry(1)).shuffle(4, 1)
        ),
        Case(
            "scan-batches",
            lambda d: d.range(20).map(Tag(2)).batch(3).scan(0, Carry(1)).shuffle(3, 1),
        ),
        Case(
            "scan-scanned",
            lambda d: (
                d.range(12)
                .scan(0, Carry(1))
                .shuffle(3, 1)
                .scan(0, Carry(2))
                .repeat(2)
                .shuffle(5, 1)
            ),
        ),
        Case(
            "scan-joined",
            lambda d: d.zip(
                d.from_generator(Emit(9, 2)).scan(0, Carry(1)).shuffle(3, seed=1),
                d.range(8).flat_map(Inner(d, 3)).scan(0, Carry(2)).concatenate(d.range(3)),
            ).shuffle(3, seed=2),
        ),
        Case("scan-nothing", lambda d: d.range(0).scan(0, Carry(1)).repeat()),
        Case("scan-endless", lambda d: d.range(5).repeat().scan(0, Carry(1)), limit=30),
        Case("scan-cached", lambda d: d.range(7).scan(0, Carry(1, 20)).cache().repeat(2)),
    ),
    "group_by_reducer": (
        Case(
            "group_by_reducer",
            lambda d: (
                d.range(30).map(Tag(1)).group_by_reducer(Class(1, 4, 0, -2), totals(1)).repeat(2)
            ),
        ),
        Case(
            "group_by_reducer-errors",
            lambda d: failing(d, 40).group_by_reducer(Class(2, 5, 10), totals(2, 20)).enumerate(),
        ),
        Case(
            "group_by_reducer-shuffled",
            lambda d: (
                d.range(40)
                .shuffle(7, seed=1)
                .group_by_reducer(Class(1, 9), totals(3))
                .map(Draw(1), seed=1)
                .shuffle(4, seed=1)
            ),
        ),
        Case(
            "group_by_reducer-nothing",
            lambda d: d.range(0).group_by_reducer(Class(1), totals()).concatenate(d.range(2)),
        ),
    ),
}
