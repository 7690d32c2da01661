"""Cases of the operator that sorts within windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Class, Draw, Emit, Fail, Keep, Size, Tag, Uneven

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    window, k, fails = rng.choice((1, 2, 3, 5, 40)), rng.randint(1, 9), rng.choice((0, 0, 20))
    key = rng.choice((f"Size({k}, {fails})", f"Class({k}, 3, {fails})", "Become('mixed')"))
    return {f".sort_within({window}, {key}, reverse={rng.random() < 0.3})": 2}


def odd(x: Any) -> Any:
    """Give numbers of every kind, and values that are not numbers."""
    kinds: list[Any] = [
        *(3, 2.5, True, np.int8(-4), np.float32(7.5), np.array(6), np.uint64(2**64 - 1)),
        *(float("inf"), -np.inf, -0.0, 0, 2**53 + 1, float(2**53), np.float16(2)),
        *(float("nan"), np.float32("nan"), "3", None, 1j, [1], np.array([1]), (1, 2), {"a": 1}),
    ]
    return kinds[int(x) % len(kinds)]


CASES: dict[str, tuple[Case, ...]] = {
    "sort_within": (
        Case("sort_within", lambda d: d.range(23).map(Tag(1)).sort_within(5, Size(1)).repeat(2)),
        Case("sort_within-reverse", lambda d: d.range(20).sort_within(6, Class(1), reverse=True)),
        Case(
            "sort_within-padded",
            lambda d: d.range(40).map(Uneven(1)).sort_within(12, len).padded_batch(4),
        ),
        Case(
            "sort_within-errors",
            lambda d: failing(d, 40).sort_within(7, Class(2, 4, 20)).map(Tag(2)).batch(2),
        ),
        Case("sort_within-odd", lambda d: d.range(46).sort_within(23, odd)),
        Case("sort_within-whole", lambda d: d.range(30).sort_within(10**12, Class(1, 5)).repeat(2)),
        Case(
            "sort_within-shuffled",
            lambda d: (
                d.range(40)
                .map(Draw(1), seed=3)
                .filter(Keep(1, 80))
                .shuffle(5, seed=1)
                .sort_within(6, Size(2))
                .map(Draw(2), seed=1)
                .shuffle(4, seed=2)
            ),
        ),
        Case(
            "sort_within-twice",
            lambda d: d.range(40).sort_within(8, Class(1)).sort_within(5, Class(2), reverse=True),
        ),
        Case(
            "sort_within-skipped",
            lambda d: (
                d.range(40).map(Fail(1, 30), on_error="skip").sort_within(4, Class(1, 9)).take(17)
            ),
        ),
        Case(
            "sort_within-generator",
            lambda d: d.from_generator(Emit(21, fails=17)).sort_within(6, int).enumerate(),
        ),
        Case(
            "sort_within-scanned",
            lambda d: (
                d.range(20)
                .scan(np.int64(0), lambda state, x: (state + x, state))
                .sort_within(6, Class(1), reverse=True)
            ),
        ),
        Case(
            "sort_within-batches",
            lambda d: (
                d.range(40).map(Become("ragged")).padded_batch(3).sort_within(4, np.size).unbatch()
            ),
        ),
        Case(
            "sort_within-tuples",
            lambda d: d.range(20).enumerate().sort_within(7, lambda n, x: -(int(n) % 3) * int(x)),
        ),
        Case("sort_within-nothing", lambda d: d.range(0).sort_within(3, int)),
        Case(
            "sort_within-endless",
            lambda d: d.range(7).repeat().sort_within(5, Size(1)).batch(2),
            limit=30,
        ),
    ),
}
