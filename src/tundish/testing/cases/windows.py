"""Cases of windows: elements that are datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Emit, Keep, Open, Tag
from tundish.testing.values import Give

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    size, shift, stride = (
        rng.randint(1, 4),
        rng.choice((None, 1, 2, 3, 6)),
        rng.choice((1, 1, 2, 3)),
    )
    window = f".window({size}, {shift}, {stride}, {rng.random() < 0.3})"
    return {
        window: 1,
        f"{window}.flat_map(Open(D, {rng.randint(1, 9)}))": 2,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "window": (
        Case("window", lambda d: d.range(23).window(4).repeat(2)),
        Case("window-overlap", lambda d: d.range(12).map(Tag(1)).window(3, shift=1)),
        Case("window-gaps", lambda d: failing(d).window(2, shift=5).flat_map(Open(d, 1))),
        Case("window-stride", lambda d: failing(d).window(3, 2, 2).flat_map(Open(d, 2))),
        Case(
            "window-drop",
            lambda d: d.range(14).window(3, 1, 2, drop_remainder=True).flat_map(Open(d, 3)),
        ),
        Case("window-errors", lambda d: failing(d).window(2).batch(3)),
        Case("window-read", lambda d: failing(d).window(3, 2).map(Become("int")).batch(2)),
        Case(
            "window-nested",
            lambda d: d.range(20).map(Become("nested")).window(3, shift=2).map(Draw(1), seed=1),
        ),
        Case(
            "window-tuple",
            lambda d: d.range(20).map(Become("tuple")).window(3, shift=2).flat_map(Open(d, 1)),
        ),
        Case(
            "window-structs",  # they reach a function one by one: each by its own pickle
            lambda d: (
                d.range(12).map(Give("struct")).window(3).flat_map(Open(d, 2)).map(Draw(1), seed=1)
            ),
        ),
        Case(
            "window-ragged",
            lambda d: d.range(20).map(Become("ragged")).window(4, 3).flat_map(Open(d, 4)),
        ),
        Case(
            "window-mixed",
            lambda d: d.range(24).map(Become("mixed")).window(4, shift=3).flat_map(Open(d, 3)),
        ),
        Case("window-batches", lambda d: failing(d, 40).batch(2).window(3, 1).flat_map(Open(d, 5))),
        Case(
            "window-shuffled",
            lambda d: (
                d.range(40)
                .map(Draw(1), seed=3)
                .filter(Keep(4, 80))
                .shuffle(4, seed=1)
                .window(3, shift=2)
                .shuffle(3, seed=2)
                .flat_map(Open(d, 1))
                .map(Draw(2), seed=1)
            ),
        ),
        Case("window-windows", lambda d: d.range(13).window(2).window(2, 1).flat_map(Open(d, 1))),
        Case(
            "window-generator",
            lambda d: d.zip(d.from_generator(Emit(13)).window(4, 1), d.range(20)),
        ),
        Case("window-cached", lambda d: failing(d, 9).window(2, 1).cache().repeat(2)),
        Case(
            "window-endless",
            lambda d: d.range(5).repeat().map(Draw(1), seed=1).window(4, 3).enumerate(),
            limit=30,
        ),
        Case("window-empty", lambda d: d.range(0).window(3)),
    ),
}
