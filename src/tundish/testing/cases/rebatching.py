"""Cases of the operators that change batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Fail, Keep, Refuse, Regroup, Sequence, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    sizes = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    few, k, drop = rng.randint(1, 4), rng.randint(1, 9), rng.random() < 0.3
    more = rng.choice(("", "", ", on_error='skip'", f", drop_remainder={drop}"))
    return {
        f".batch({few}).rebatch({sizes}, drop_remainder={drop})": 1,
        f".rebatch({sizes[0]})": 1,
        f".map_batches(Regroup({k}), {few}{more})": 1,
        f".map_batches(Draw({k}), {few}, seed={k})": 1,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "rebatch": (
        Case("rebatch", lambda d: d.range(23).batch(4).rebatch(3).repeat(2)),
        Case("rebatch-up", lambda d: d.range(23).batch(2).rebatch(7, drop_remainder=True)),
        Case("rebatch-sizes", lambda d: d.range(23).batch(5).rebatch([3, 1, 2]).map(Tag(1))),
        Case("rebatch-same", lambda d: d.range(11).map(Become("image")).batch(3).rebatch(3)),
        Case(
            "rebatch-made",
            lambda d: d.range(20).map(Draw(1), seed=2).batch(4).map(Draw(1), seed=1).rebatch(3),
        ),
        Case(
            "rebatch-augment",
            lambda d: d.range(20).batch(4).filter(Keep(1, 80)).rebatch([5, 2]).map(Draw(3), seed=1),
        ),
        Case("rebatch-errors", lambda d: failing(d, 40).batch(2).rebatch(3)),
        Case("rebatch-failing", lambda d: d.range(40).batch(3).map(Fail(1, 25)).rebatch(4)),
        Case("rebatch-scalars", lambda d: d.range(5).rebatch(2)),
        Case("rebatch-none", lambda d: d.range(0).batch(2).rebatch(2)),
        Case("rebatch-ragged", lambda d: d.range(12).map(Become("ragged")).rebatch(4)),
        Case("rebatch-swapped", lambda d: d.range(12).map(Become("swapped")).rebatch(3)),
        Case("rebatch-mixed", lambda d: d.range(24).map(Become("mixed")).rebatch(2)),
        Case("rebatch-kinds", lambda d: d.range(40).map(Sequence(4, "mixed")).rebatch([4, 7])),
        Case(
            "rebatch-uneven",
            lambda d: d.range(30).map(Become("mixed")).batch(1).rebatch(2).unbatch(),
        ),
        Case(
            "rebatch-dict",
            lambda d: d.range(13).map(Become("nested")).batch(4).rebatch(3).shuffle(3, seed=1),
        ),
        Case(
            "rebatch-words",
            lambda d: d.range(9).map(Become("words")).batch(2).rebatch(3).unbatch().unbatch(),
        ),
        Case(
            "rebatch-objects", lambda d: d.range(9).map(Become("object")).batch(2).rebatch([4, 1])
        ),
        Case(
            "rebatch-shuffle",
            lambda d: failing(d, 40).batch(2).shuffle(4, seed=1).rebatch(3).shuffle(3, seed=2),
        ),
        Case("rebatch-rebatch", lambda d: d.range(23).batch(4).rebatch(3).rebatch(5).batch(2)),
        Case(
            "rebatch-endless",
            lambda d: d.range(7).map(Tag(1)).batch(3).repeat().rebatch(4).enumerate(),
            limit=30,
        ),
        Case("rebatch-cache", lambda d: d.range(11).batch(4).rebatch(3).cache().repeat(2)),
    ),
    "map_batches": (
        Case("map_batches", lambda d: d.range(23).map_batches(Tag(1), 4).repeat(2)),
        Case("map_batches-lists", lambda d: d.range(40).map_batches(Regroup(1), 3)),
        Case(
            "map_batches-lists-skip",
            lambda d: d.range(40).map_batches(Regroup(3), 3, on_error="skip"),
        ),
        Case("map_batches-augment", lambda d: d.range(13).map_batches(Draw(1), 3, seed=4)),
        Case(
            "map_batches-str",
            lambda d: (
                d.range(30)
                .map(Become("dict"))
                .map_batches(Regroup(2), 2, drop_remainder=True)
                .map(Draw(1), seed=1)
            ),
        ),
        Case("map_batches-errors", lambda d: failing(d, 40).map_batches(Fail(1, 20), 2).batch(2)),
        Case(
            "map_batches-skip",
            lambda d: d.range(40).map_batches(Fail(1, 30), 3, on_error="skip").shuffle(4, seed=1),
        ),
        Case(
            "map_batches-skip-unfit",
            lambda d: d.range(40).map_batches(Fail(1, 30, unfit=True), 3, on_error="skip"),
        ),
        Case(
            "map_batches-retry",
            lambda d: d.range(40).map_batches(
                Refuse(1, 30), 3, num_parallel_calls=2, on_error="retry", retries=1
            ),
        ),
    ),
}
