"""Cases of the operators that group elements by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Emit, Keep, Key, Reduce, Tag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def steps(rng: random.Random, _: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    k, keys, fails = rng.randint(1, 9), rng.randint(1, 4), rng.choice((0, 0, 10))
    size = rng.choice((f"{rng.randint(1, 4)}", f"None, Key({k}, 5, 5)"))
    buckets = f"Key({k}, 9, {fails}), [3, 6], [{rng.randint(1, 3)}, 2, 1]"
    drop = rng.random() < 0.3
    padding = rng.choice((", no_padding=True", ""))
    return {
        f".group_by_window(Key({k}, {keys}, {fails}), Reduce(D, {k}), {size})": 2,
        f".bucket_by_sequence_length({buckets}{padding}, drop_remainder={drop})": 1,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "group_by_window": (
        Case(
            "group_by_window",
            lambda d: d.range(23).group_by_window(Key(1, 3), Reduce(d, 1), 4).repeat(2),
        ),
        Case(
            "group_by_window-sizes",
            lambda d: d.range(30).group_by_window(
                Key(2, 4), Reduce(d, 2), window_size_func=Key(3, 5)
            ),
        ),
        Case(
            "group_by_window-errors",
            lambda d: failing(d, 30).group_by_window(Key(1, 3, 20), Reduce(d, 3), 3).batch(2),
        ),
        Case(
            "group_by_window-shuffled",
            lambda d: (
                d.range(40)
                .map(Draw(1), seed=3)
                .filter(Keep(1, 80))
                .shuffle(5, seed=1)
                .group_by_window(Key(1, 3), Reduce(d, 4), 4)
                .map(Draw(2), seed=1)
                .shuffle(4, seed=2)
            ),
        ),
        Case(
            "group_by_window-nested",
            lambda d: d.range(20).map(Become("nested")).group_by_window(Key(1, 2), Reduce(d, 5), 3),
        ),
        Case(
            "group_by_window-mixed",
            lambda d: (
                d.range(24)
                .map(Become("mixed"))
                .window(2)
                .group_by_window(Key(1, 2), Reduce(d, 6), 3)
            ),
        ),
        Case(
            "group_by_window-generator",
            lambda d: (
                d.from_generator(Emit(17))
                .map(Tag(1))
                .group_by_window(Key(4, 2), Reduce(d, 7), 5)
                .enumerate()
            ),
        ),
        Case(
            "group_by_window-twice",
            lambda d: (
                d.range(30)
                .group_by_window(Key(1, 3), Reduce(d, 1), 3)
                .group_by_window(Key(2, 2), Reduce(d, 8), 2)
            ),
        ),
        Case(
            "group_by_window-endless",
            lambda d: d.range(7).repeat().group_by_window(Key(1, 3), Reduce(d, 9), 2).batch(2),
            limit=30,
        ),
        Case(
            "group_by_window-empty", lambda d: d.range(0).group_by_window(Key(1), Reduce(d, 1), 2)
        ),
    ),
    "bucket_by_sequence_length": (
        Case(
            "bucket_by_sequence_length",
            lambda d: (
                d.range(30)
                .map(Become("ragged"))
                .bucket_by_sequence_length(len, [1, 3], [3, 2, 4])
                .repeat(2)
            ),
        ),
        Case(
            "bucket_by_sequence_length-boundary",
            lambda d: (
                failing(d, 30)
                .map(Become("ragged"))
                .bucket_by_sequence_length(
                    len, [2, 3], [3, 2, 2], padding_values=-1, pad_to_bucket_boundary=True
                )
            ),
        ),
        Case(
            "bucket_by_sequence_length-shapes",
            lambda d: (
                d.range(30)
                .map(Become("array"))
                .bucket_by_sequence_length(
                    Key(2, 6),
                    [4, 9],
                    [3, 2, 2],
                    padded_shapes=[-1],
                    pad_to_bucket_boundary=True,
                )
            ),
        ),
        Case(
            "bucket_by_sequence_length-equal",
            lambda d: (
                d.range(30)
                .map(Become("image"))
                .bucket_by_sequence_length(Key(1, 9), [3, 6], [2, 3, 2], no_padding=True)
            ),
        ),
        Case(
            "bucket_by_sequence_length-drop",
            lambda d: failing(d, 30).bucket_by_sequence_length(
                Key(1, 9, 10), [3, 6], [2, 3, 2], no_padding=True, drop_remainder=True
            ),
        ),
    ),
}
