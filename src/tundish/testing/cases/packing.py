"""Cases of the operator that packs sequences into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Fail, Keep, Sequence

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

EOS = {"tokens": 1, "labels": -100}


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    length, k, rows = rng.randint(1, 12), rng.randint(1, 9), rng.randint(1, 4)
    kind = rng.choice(("", "", ", 'dict'", ", 'dict'", ", 'mixed'"))
    ends = rng.choice(("", "", ", separator=7", ", separator={'tokens': 1, 'labels': -1}"))
    drop = rng.choice(("", ", drop_remainder=True"))
    too_long = rng.choice(("split", "truncate", "error"))
    return {
        f".map(Sequence({k}{kind})).pack({length}{ends}{drop})": 1,
        f".map(Sequence({k}{kind})).pack({length}, method='first_fit', open_rows={rows},"
        f" too_long={too_long!r}{ends}, pad_value=-1)": 1,
        f".pack({length}, positions=None)": 1,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "pack": (
        Case("pack", lambda d: d.range(23).map(Sequence(1)).pack(8).repeat(2)),
        Case(
            "pack-separator",
            lambda d: d.range(23).map(Sequence(1)).pack(5, separator=99, drop_remainder=True),
        ),
        Case(
            "pack-dict",
            lambda d: d.range(23).map(Sequence(2, "dict")).pack(7, separator=EOS, pad_value=EOS),
        ),
        Case(
            "pack-first_fit",
            lambda d: d.range(40).map(Sequence(1)).pack(10, method="first_fit", open_rows=3),
        ),
        Case(
            "pack-truncate",
            lambda d: (
                d.range(40)
                .map(Sequence(1))
                .pack(5, method="first_fit", open_rows=2, too_long="truncate", separator=7)
            ),
        ),
        Case(
            "pack-too-long",
            lambda d: (
                d.range(40)
                .map(Sequence(1, "dict"))
                .pack(5, method="first_fit", too_long="error", segment_ids=None)
                .shuffle(3, seed=1)
            ),
        ),
        Case(
            "pack-names",
            lambda d: (
                d.range(23)
                .map(Sequence(2, "dict"))
                .pack(7, tokens="labels", segment_ids="of", positions="at")
            ),
        ),
        Case("pack-ragged", lambda d: d.range(23).map(Become("ragged")).pack(4)),
        Case(
            "pack-augment",
            lambda d: (
                d.range(23)
                .map(Sequence(1))
                .map(Draw(1), seed=3)
                .pack(6, method="first_fit", open_rows=2)
                .map(Draw(2), seed=4)
            ),
        ),
        Case(
            "pack-errors",
            lambda d: failing(d, 40).map(Sequence(1)).map(Fail(2, 20)).pack(6).batch(2),
        ),
        Case(
            "pack-errors-first_fit",
            lambda d: (
                failing(d, 40)
                .shuffle(5, seed=1)
                .map(Sequence(1))
                .pack(6, method="first_fit", open_rows=3)
                .shuffle(3, seed=2)
            ),
        ),
        Case("pack-mixed", lambda d: d.range(40).map(Sequence(5, "mixed")).pack(6)),
        Case(
            "pack-mixed-first_fit",
            lambda d: (
                d.range(40)
                .map(Sequence(4, "mixed"))
                .pack(6, method="first_fit", open_rows=2, separator=3)
                .shuffle(2, seed=1)
            ),
        ),
        Case("pack-scalars", lambda d: d.range(5).pack(2)),
        Case("pack-batches", lambda d: d.range(23).batch(5).pack(3)),
        Case("pack-kinds", lambda d: d.range(23).map(Become("mixed")).pack(3)),
        Case("pack-empty", lambda d: d.range(0).map(Sequence(1)).pack(4)),
        Case("pack-token", lambda d: d.range(9).map(Sequence(1)).pack(4, separator=2**40)),
        Case(
            "pack-filtered",
            lambda d: (
                d.range(40)
                .map(Sequence(1))
                .filter(Keep(1, 60))
                .pack(9, method="first_fit", open_rows=4)
                .unbatch()
            ),
        ),
        Case(
            "pack-endless",
            lambda d: d.range(7).map(Sequence(1)).repeat().pack(9, method="first_fit", open_rows=2),
            limit=30,
        ),
    ),
}
