"""Cases of the operators that measure elements, which change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Draw, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    tag = rng.choice(("a", "b"))
    return {f".latency_stats({tag!r})": 1, f".bytes_produced_stats({tag!r})": 1}


def measured(d: Any) -> Callable[[Any], Any]:
    """A function that makes a dataset of which every element is measured."""
    return lambda x: (
        d.range(int(x), int(x) + 3).map(Tag(2)).latency_stats("in").bytes_produced_stats("in")
    )


CASES: dict[str, tuple[Case, ...]] = {
    "latency_stats": (
        Case("latency_stats", lambda d: d.range(20).latency_stats("a").map(Tag(1)).batch(3)),
        Case(
            "latency_stats-chain",
            lambda d: (
                failing(d, 30)
                .latency_stats("made")
                .filter(Keep(3))
                .latency_stats("kept")
                .map(Draw(1), seed=2)
                .latency_stats("drawn")
                .repeat(2)
            ),
        ),
        Case(
            "latency_stats-window",
            lambda d: (
                d.range(25)
                .map(Tag(1))
                .latency_stats("a")
                .filter(Keep(1))
                .shuffle(6, seed=3)
                .latency_stats("b")
                .map(Tag(2))
                .latency_stats("c")
                .take(11)
            ),
        ),
        Case(
            "latency_stats-computed",
            lambda d: (
                d.range(17)
                .map(Tag(1))
                .batch(4)
                .latency_stats("a")
                .prefetch(2)
                .latency_stats("b")
                .unbatch()
                .latency_stats("c")
                .cache()
                .latency_stats("d")
                .repeat(2)
                .latency_stats("e")
            ),
        ),
        Case(
            "latency_stats-mixed",
            lambda d: (
                d.range(9)
                .filter(Keep(1))
                .concatenate(d.range(7).map(Tag(1)))
                .latency_stats("a")
                .enumerate()
                .latency_stats("b")
                .batch(3)
                .latency_stats("c")
            ),
        ),
        Case(
            "latency_stats-inside",
            lambda d: d.range(6).flat_map(measured(d)).latency_stats("a").map(Tag(1)).batch(4),
        ),
        Case(
            "latency_stats-positions",
            lambda d: (
                d.range(24).latency_stats("a").shuffle(None, seed=4).batch(5).latency_stats("b")
            ),
        ),
    ),
    "bytes_produced_stats": (
        Case(
            "bytes_produced_stats",
            lambda d: (
                d.range(20)
                .map(Tag(1))
                .bytes_produced_stats("a")
                .batch(3)
                .bytes_produced_stats("b")
                .shuffle(3, seed=1)
                .bytes_produced_stats("b")
            ),
        ),
        Case(
            "bytes_produced_stats-text",
            lambda d: (
                d.from_list(["a", "bcd", "", "ef"])
                .bytes_produced_stats("a")
                .batch(3)
                .bytes_produced_stats("b")
            ),
        ),
        Case(
            "bytes_produced_stats-inside",
            lambda d: d.range(6).interleave(measured(d), 2).bytes_produced_stats("a"),
        ),
    ),
}
