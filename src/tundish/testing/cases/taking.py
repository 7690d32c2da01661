"""Cases of the operators that end a dataset by a predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Draw, Keep, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    return {
        f".take_while(Keep({rng.randint(1, 9)}, {rng.choice((60, 95))}{rng.choice(('', ', 10'))}))": 1
    }


CASES: dict[str, tuple[Case, ...]] = {
    "take_while": (
        Case("take_while", lambda d: d.range(20).map(Tag(1)).take_while(Keep(3, 80)).repeat(2)),
        Case("take_while-errors", lambda d: failing(d).take_while(Keep(2, 80, 30)).batch(2)),
        Case(
            "take_while-shuffled",
            lambda d: (
                d.range(40)
                .map(Draw(1), seed=3)
                .take_while(Keep(4, 95))
                .shuffle(4, seed=1)
                .concatenate(d.range(9).filter(Keep(1)).take_while(Keep(3, 80)))
            ),
        ),
        Case(
            "take_while-unsure",
            lambda d: failing(d, 30).take_while(Keep(2, 97, 30)).shuffle(6, seed=1).map(Tag(1)),
        ),
        Case("take_while-never", lambda d: d.range(9).batch(2).take_while(Keep(1, 100))),
        Case("take_while-endless", lambda d: d.range(5).repeat().take_while(Keep(3, 80))),
    ),
}
