"""Cases of the operators that enforce what a dataset should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Emit, Fail, Inner, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    k, few = rng.randint(1, 9), rng.randint(1, 5)
    # What says how many there are must be right about it: no batch that is given up below.
    padded = f"D.range({few}).shuffle(3, {k}).map(Become('dict')).map(Fail({k}, 20))"
    return {
        ".ignore_errors()": 2,
        f".assert_cardinality({rng.choice((-1, 0, 3, 8, 16))})": 1,
        f".concatenate({padded}.pad_to_cardinality({few + 2}))": 1,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "ignore_errors": (
        Case("ignore_errors", lambda d: failing(d).ignore_errors().repeat(2)),
        Case("ignore_errors-log", lambda d: failing(d).ignore_errors(log_warning=True).batch(2)),
        Case("ignore_errors-batch", lambda d: failing(d, 40).batch(2).ignore_errors().map(Tag(1))),
        Case(
            "ignore_errors-shuffled",
            lambda d: (
                failing(d)
                .shuffle(5, seed=1)
                .ignore_errors()
                .map(Draw(1), seed=1)
                .shuffle(4, seed=2)
                .map(Fail(1, 30), on_error="skip")
                .batch(3)
            ),
        ),
        Case(
            "ignore_errors-filtered",
            lambda d: (
                d.range(30).filter(Keep(1, 60, 20)).ignore_errors().filter(Keep(2, 80)).enumerate()
            ),
        ),
        Case(
            "ignore_errors-inner",
            lambda d: failing(d).flat_map(Inner(d, 3)).ignore_errors().batch(2),
        ),
        Case("ignore_errors-all", lambda d: d.range(9).map(Fail(1, 100)).ignore_errors().repeat()),
        Case(
            "ignore_errors-twice",
            lambda d: failing(d).ignore_errors().batch(2).map(Fail(1, 40)).ignore_errors(),
        ),
    ),
    "assert_cardinality": (
        Case("assert_cardinality", lambda d: failing(d).assert_cardinality(23).batch(2)),
        Case(
            "assert_cardinality-true",
            lambda d: d.range(20).filter(Keep(1, 100)).assert_cardinality(20).repeat(2),
        ),
        Case(
            "assert_cardinality-short",
            lambda d: d.range(9).map(Tag(1)).assert_cardinality(12).repeat(2).batch(5),
        ),
        Case(
            "assert_cardinality-long",
            lambda d: (
                d.range(20)
                .filter(Keep(1, 90))
                .map(Draw(1), seed=1)
                .assert_cardinality(7)
                .map(Draw(2), seed=1)
                .shuffle(3, seed=1)
                .repeat(2)
                .shuffle(9, seed=2)
            ),
        ),
        Case(
            "assert_cardinality-repeated",
            lambda d: d.range(4).repeat(3).filter(Keep(1)).assert_cardinality(5).shuffle(9, seed=2),
        ),
        Case(
            "assert_cardinality-joined",
            lambda d: (
                d.range(3)
                .concatenate(d.from_generator(Emit(4, 1)).map(Tag(2)).assert_cardinality(6))
                .enumerate()
                .shuffle(8, seed=1)
                .map(Tag(1))
            ),
        ),
        Case(
            "assert_cardinality-nothing",
            lambda d: d.range(0).assert_cardinality(1).cache().repeat(2),
        ),
        Case("assert_cardinality-endless", lambda d: d.range(4).repeat(2).assert_cardinality(-1)),
    ),
    "pad_to_cardinality": (
        Case(
            "pad_to_cardinality",
            lambda d: d.range(5).map(Become("dict")).pad_to_cardinality(8).repeat(2).batch(4),
        ),
        Case(
            "pad_to_cardinality-full",
            lambda d: (
                d.range(5).map(Become("dict")).pad_to_cardinality(5, "here").shuffle(None, seed=1)
            ),
            modelled=False,
        ),
        Case(
            "pad_to_cardinality-errors",
            lambda d: (
                d.range(9)
                .map(Become("dict"))
                .map(Fail(4, 40))
                .pad_to_cardinality(12)
                .shuffle(5, seed=1)
            ),
        ),
    ),
}
