"""Cases of the operator that reads several datasets in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Emit, Fail, Inner, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    k, cycle, block = rng.randint(1, 9), rng.choice((1, 2, 3, 5, 16)), rng.choice((1, 1, 2, 3, 9))
    return {f".interleave(Inner(D, {k}), {cycle}, {block})": 3}


def counting(d: Any) -> Callable[[Any], Any]:
    """A function that makes a dataset of as many elements as the element says."""
    return lambda x: d.range(10 * int(x), 10 * int(x) + int(x))


def emitting(d: Any) -> Callable[[Any], Any]:
    """A function that makes a dataset of a generator."""
    return lambda x: d.from_generator(Emit(1 + int(x) % 5, int(x)))


def endless(d: Any) -> Callable[[Any], Any]:
    """A function that makes a dataset without end."""
    return lambda x: d.range(int(x), int(x) + 3).map(Draw(1), seed=1).repeat()


CASES: dict[str, tuple[Case, ...]] = {
    "interleave": (
        Case("interleave", lambda d: d.range(9).interleave(counting(d), 3)),
        Case("interleave-blocks", lambda d: d.range(9).interleave(counting(d), 2, 3).batch(4)),
        Case("interleave-default", lambda d: d.range(22).interleave(Inner(d, 1))),
        Case("interleave-one", lambda d: d.range(6).interleave(counting(d), 1, 4)),
        Case("interleave-wide", lambda d: d.range(4).interleave(counting(d), 9, 20)),
        Case("interleave-empty", lambda d: d.range(5).interleave(lambda _: d.range(0), 2)),
        Case(
            "interleave-runs",  # of more rows than the first chunks have
            lambda d: d.range(3).interleave(lambda x: d.range(50 - 20 * int(x)), 2, 3).map(Tag(1)),
        ),
        Case("interleave-nothing", lambda d: d.range(0).interleave(counting(d), 2)),
        Case(
            "interleave-parallel",
            lambda d: d.range(9).interleave(counting(d), 4, 2, num_parallel_calls=2).map(Tag(1)),
        ),
        Case("interleave-errors", lambda d: failing(d, 14).interleave(Inner(d, 2), 3, 2)),
        Case(
            "interleave-failing",
            lambda d: (
                d.range(12)
                .interleave(
                    lambda x: (
                        d.range(int(x), int(x) + 6).map(Fail(4, 30)) if x % 4 else Fail(1, 100)(x)
                    ),
                    3,
                    2,
                )
                .batch(3)
            ),
        ),
        Case(
            "interleave-augment",
            lambda d: (
                d.range(8)
                .map(Draw(1), seed=2)
                .interleave(Inner(d, 3), 3)
                .map(Draw(1), seed=2)
                .repeat(2)
            ),
        ),
        Case(
            "interleave-retried",
            lambda d: (
                d.range(30)
                .map(Fail(2, 30), on_error="retry", retries=1)
                .interleave(Inner(d, 3), 4)
                .map(Tag(1))
            ),
        ),
        Case(
            "interleave-filtered",
            lambda d: d.range(30).filter(Keep(1)).interleave(Inner(d, 2), 3).filter(Keep(2)),
        ),
        Case(
            "interleave-shuffled",
            lambda d: (
                d.range(14).shuffle(5, seed=1).interleave(Inner(d, 4), 3, 2).shuffle(6, seed=2)
            ),
        ),
        Case(
            "interleave-nested",
            lambda d: (
                d.range(5)
                .interleave(Inner(d, 1), 2)
                .interleave(lambda *x: d.range(3).interleave(counting(d), 2).map(Tag(len(x))), 3, 2)
            ),
        ),
        Case(
            "interleave-flat_map",
            lambda d: (
                d.range(6)
                .interleave(lambda x: d.range(int(x)).flat_map(counting(d)), 2)
                .flat_map(Inner(d, 2))
            ),
        ),
        Case(
            "interleave-generator",
            lambda d: d.from_generator(Emit(9)).interleave(emitting(d), 3, 2).shuffle(4, seed=1),
        ),
        Case(
            "interleave-endless",
            lambda d: d.range(5).interleave(endless(d), 3, 2).take(40).batch(3),
        ),
        Case(
            "interleave-forever", lambda d: d.range(3).repeat().interleave(counting(d), 4), limit=40
        ),
        Case(
            "interleave-batches",
            lambda d: d.range(30).batch(4).interleave(d.from_tensor_slices, 3).batch(2),
        ),
        Case(
            "interleave-kinds",
            lambda d: (
                d.range(9).interleave(lambda x: d.range(int(x)).map(Become("mixed")), 3).map(Tag(1))
            ),
        ),
        Case(
            "interleave-stopped",
            lambda d: d.range(40).interleave(Inner(d, 1), 3).filter(Keep(1)).take(5).repeat(3),
        ),
    ),
}
