"""Cases of the operators that batch elements of different shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Fail, Keep, Size, Tag, Uneven

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    few, k, drop = rng.randint(1, 4), rng.randint(1, 9), rng.random() < 0.3
    side, multiple = rng.choice(("left", "right")), rng.randint(1, 4)
    shape = rng.choice(("[None]", "[5]", "[2]", "[]", "[None, 3]", "[4, None]"))
    most = rng.choice(("", "", f", max_elements={few}"))
    # The reference does not know which shapes the plan tells: none after a function.
    unknown = f".map(Tag({k}))"
    return {
        f".padded_batch({few}, drop_remainder={drop}, side={side!r})": 2,
        f".padded_batch({few}, pad_to_multiple_of={multiple}, side={side!r})": 1,
        f".map(Uneven({k})).padded_batch({few}, {shape}, side={side!r})": 1,
        f"{unknown}.ragged_batch({few}, drop_remainder={drop})": 2,
        f".map(Become('ragged')).ragged_batch({few}).map(Tag({k}))": 1,
        f".sparse_batch({few}, {shape})": 1,
        f".batch_by_cost({rng.randint(3, 30)}, Size({k}), drop_remainder={drop}{most})": 1,
        f".batch_by_cost({rng.randint(3, 30)}, Size({k}), True, side={side!r}{most})": 2,
    }


def uneven(d: Any, n: int = 23, k: int = 1) -> Any:
    """Arrays of different lengths."""
    return d.range(n).map(Uneven(k))


CASES: dict[str, tuple[Case, ...]] = {
    "padded_batch": (
        Case("padded_batch", lambda d: d.range(23).map(Become("ragged")).padded_batch(4)),
        Case("padded_batch-values", lambda d: uneven(d).padded_batch(4, [None], -1).repeat(2)),
        Case("padded_batch-too-long", lambda d: uneven(d, 40).padded_batch(3, [4])),
        Case(
            "padded_batch-left",
            lambda d: uneven(d).padded_batch(
                5, pad_to_multiple_of=4, side="left", drop_remainder=True
            ),
        ),
        Case("padded_batch-errors", lambda d: failing(d, 40).map(Uneven(2)).padded_batch(3)),
        Case(
            "padded_batch-augment",
            lambda d: uneven(d).map(Draw(1), seed=1).padded_batch(3).map(Draw(2), seed=1),
        ),
        Case("padded_batch-mixed", lambda d: d.range(40).map(Become("mixed")).padded_batch(2)),
        Case("padded_batch-words", lambda d: d.range(9).map(Become("words")).padded_batch(2, [4])),
        Case("padded_batch-nested", lambda d: d.range(9).map(Become("nested")).padded_batch(4)),
        Case("padded_batch-image", lambda d: d.range(9).map(Become("image")).padded_batch(4)),
        Case("padded_batch-swapped", lambda d: d.range(9).map(Become("swapped")).padded_batch(4)),
        Case(
            "padded_batch-batches",
            lambda d: d.range(23).filter(Keep(1)).batch(3).padded_batch(2),
        ),
        Case(
            "padded_batch-filtered",
            lambda d: uneven(d, 40).filter(Keep(1)).padded_batch(3, drop_remainder=True).repeat(2),
        ),
        Case(
            "padded_batch-shuffled",
            lambda d: uneven(d).shuffle(5, seed=1).padded_batch(2).shuffle(3, seed=2).unbatch(),
        ),
        Case(
            "padded_batch-zipped",
            lambda d: d.zip(
                (uneven(d).padded_batch(2), uneven(d).padded_batch(3, side="left"))
            ).enumerate(),
        ),
        Case(
            "padded_batch-odd",
            lambda d: (
                failing(d, 60).map(Become("mixed")).padded_batch(2, side="left").shuffle(4, seed=1)
            ),
        ),
        Case("padded_batch-scalars", lambda d: d.range(9).padded_batch(4)),
        Case("padded_batch-none", lambda d: d.range(0).padded_batch(4)),
        Case("padded_batch-endless", lambda d: uneven(d, 5).repeat().padded_batch(3), limit=20),
    ),
    "ragged_batch": (
        Case("ragged_batch", lambda d: d.range(23).map(Become("ragged")).ragged_batch(4)),
        Case("ragged_batch-map", lambda d: uneven(d).ragged_batch(4, True).map(Tag(1)).repeat(2)),
        Case("ragged_batch-splits", lambda d: uneven(d).ragged_batch(4, False, np.int32).repeat(2)),
        Case("ragged_batch-unbatch", lambda d: uneven(d).ragged_batch(4).unbatch().repeat(2)),
        Case(
            "ragged_batch-batch",
            lambda d: d.range(12).map(Become("array")).ragged_batch(2).batch(3).unbatch().unbatch(),
        ),
        Case("ragged_batch-scalars", lambda d: d.range(9).ragged_batch(4)),
        Case("ragged_batch-errors", lambda d: uneven(d, 40).map(Fail(3, 20)).ragged_batch(3)),
        Case("ragged_batch-mixed", lambda d: d.range(40).map(Become("mixed")).ragged_batch(2)),
        Case("ragged_batch-words", lambda d: d.range(9).map(Become("words")).ragged_batch(2)),
        Case("ragged_batch-image", lambda d: d.range(9).map(Become("image")).ragged_batch(2)),
        Case("ragged_batch-dict", lambda d: d.range(9).map(Become("dict")).ragged_batch(2)),
        Case(
            "ragged_batch-shuffled",
            lambda d: uneven(d).ragged_batch(2).shuffle(4, seed=3).cache().repeat(2),
        ),
    ),
    "sparse_batch": (
        Case("sparse_batch", lambda d: uneven(d).sparse_batch(4, [9])),
        Case("sparse_batch-unknown", lambda d: uneven(d).sparse_batch(4, [None]).repeat(2)),
        Case("sparse_batch-too-long", lambda d: uneven(d, 40).sparse_batch(3, [4])),
        Case("sparse_batch-errors", lambda d: uneven(d, 40).map(Fail(3)).sparse_batch(3, [9])),
        Case(
            "sparse_batch-image",
            lambda d: d.range(9).map(Become("image")).sparse_batch(2, [4, None, 5]),
        ),
        Case("sparse_batch-mixed", lambda d: d.range(40).map(Become("mixed")).sparse_batch(2, [3])),
        Case("sparse_batch-scalars", lambda d: d.range(5).sparse_batch(2, [])),
    ),
    "batch_by_cost": (
        Case("batch_by_cost", lambda d: d.range(30).batch_by_cost(12, Size(1))),
        Case(
            "batch_by_cost-shapes",
            lambda d: uneven(d, 30).batch_by_cost(12, len, True, padded_shapes=[8]),
        ),
        Case("batch_by_cost-pad", lambda d: uneven(d, 30).batch_by_cost(12, len, True)),
        Case(
            "batch_by_cost-padding",
            lambda d: uneven(d, 30).batch_by_cost(
                20, len, True, padding_values=-1, pad_to_multiple_of=4, side="left"
            ),
        ),
        Case(
            "batch_by_cost-most",
            lambda d: d.range(30).batch_by_cost(20, Size(1), max_elements=3, drop_remainder=True),
        ),
        Case("batch_by_cost-too-dear", lambda d: d.range(40).batch_by_cost(5, Size(2)).repeat(2)),
        Case("batch_by_cost-errors", lambda d: failing(d, 40).batch_by_cost(12, Size(1, 10))),
        Case(
            "batch_by_cost-mixed",
            lambda d: d.range(40).map(Become("mixed")).batch_by_cost(20, Size(1)),
        ),
        Case(
            "batch_by_cost-augment",
            lambda d: (
                uneven(d, 30)
                .map(Draw(1), seed=1)
                .filter(Keep(1))
                .batch_by_cost(15, len, True)
                .map(Draw(2), seed=2)
                .shuffle(4, seed=1)
                .repeat(2)
            ),
        ),
        Case(
            "batch_by_cost-retried",
            lambda d: (
                d.range(30)
                .map(Fail(2, 30), on_error="skip")
                .batch_by_cost(12, Size(1), drop_remainder=True)
            ),
        ),
        Case(
            "batch_by_cost-odd",
            lambda d: (
                failing(d, 60)
                .map(Become("mixed"))
                .batch_by_cost(8, Size(3, 20), True)
                .shuffle(4, seed=1)
            ),
        ),
        Case("batch_by_cost-none", lambda d: d.range(0).batch_by_cost(1, Size(1))),
        Case(
            "batch_by_cost-endless",
            lambda d: d.range(7).repeat().batch_by_cost(15, Size(1)),
            limit=15,
        ),
    ),
}
