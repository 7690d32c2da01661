"""Cases of the operator that removes repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Class, Draw, Fail, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    return {".unique()": 1, f".map(Class({rng.randint(1, 9)}, 6, 10)).unique()": 1}


KINDS = ("small", "str", "bytes", "array", "image", "ragged", "words", "swapped", "mixed")


def twice(kind: str) -> Callable[[Any], Any]:
    """Elements of a kind, each twice."""
    return lambda d: d.range(12).repeat(2).map(Become(kind)).unique()


CASES: dict[str, tuple[Case, ...]] = {
    "unique": (
        Case("unique", lambda d: d.range(30).map(Class(1, 7)).unique().repeat(2)),
        Case("unique-errors", lambda d: failing(d).map(Class(2, 5, 20)).unique().batch(2)),
        Case("unique-none-twice", lambda d: d.range(9).map(Tag(1)).unique()),
        Case(
            "unique-shuffled",
            lambda d: (
                d.range(30)
                .shuffle(6, seed=1)
                .map(Class(3, 9))
                .unique()
                .map(Draw(1), seed=1)
                .shuffle(4, seed=2)
                .map(Tag(2))
                .batch(2)
            ),
        ),
        Case("unique-filtered", lambda d: d.range(40).filter(Keep(1)).map(Class(1, 9)).unique()),
        Case(
            "unique-skipped",
            lambda d: d.range(40).map(Fail(1, 30), on_error="skip").map(Class(1, 9)).unique(),
        ),
        *(Case(f"unique-{kind}", twice(kind)) for kind in KINDS),
        Case(
            "unique-refused", lambda d: d.range(20).map(Become("mixed")).unique().shuffle(5, seed=1)
        ),
        Case("unique-nothing", lambda d: d.range(0).unique().repeat()),
        Case("unique-endless", lambda d: d.range(5).repeat().unique().take(5).repeat(2)),
        Case("unique-batches", lambda d: d.range(5).repeat(4).batch(5).unique().unbatch()),
    ),
}
