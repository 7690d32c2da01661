"""Cases of the operator that gives classes another distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Class, Draw, Fail, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    k, initial = rng.randint(1, 9), rng.choice(("None", "(0.2, 0.3, 0.5)"))
    return {
        f".rejection_resample(Class({k}, {rng.choice((3, 3, 4))}), (0.5, 0.4, 0.1), {initial}, seed={k})": 1
    }


CASES: dict[str, tuple[Case, ...]] = {
    "rejection_resample": (
        Case(
            "rejection_resample",
            lambda d: (
                d.range(40)
                .map(Tag(1))
                .rejection_resample(Class(1), (0.7, 0.2, 0.1), seed=1)
                .repeat(2)
            ),
        ),
        Case(
            "rejection_resample-known",
            lambda d: (
                d.range(40).rejection_resample(Class(1, 2), [1, 3], [0.5, 0.5], seed=-2).batch(4)
            ),
        ),
        Case(
            "rejection_resample-errors",
            lambda d: (
                failing(d, 40)
                .rejection_resample(Class(2, 4, 20), (0.5, 0.3, 0.2), seed=1)
                .shuffle(4, seed=1)
            ),
        ),
        Case(
            "rejection_resample-shuffled",
            lambda d: (
                d.range(40)
                .shuffle(6, seed=1)
                .map(Fail(3, 20), on_error="skip")
                .map(Become("tuple"))
                .rejection_resample(Class(3), (1, 1, 0), seed=5)
                .shuffle(5, seed=1)
                .map(Draw(1), seed=1)
            ),
        ),
        Case(
            "rejection_resample-unseeded",
            lambda d: d.range(40).rejection_resample(Class(1), (1, 1, 4)).repeat(2),
            modelled=False,
        ),
        Case(
            "rejection_resample-nothing",
            lambda d: d.range(0).rejection_resample(Class(1), (1, 1, 1), seed=1).repeat(),
        ),
        Case(
            "rejection_resample-endless",
            lambda d: d.range(50).repeat().rejection_resample(Class(1), (1, 1, 9), seed=1),
            limit=40,
        ),
    ),
}
