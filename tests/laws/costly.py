"""Pipelines with one costly function, at every place of every operator that calls functions or opens datasets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish import Dataset
from tundish.experimental import Reducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Slow:
    """Sleeps, notes the call in a file, and then calls a function, or passes on what it is given.

    Parameters
    ----------
    path : Path
        Receives one byte for each call, in any process.
    seconds : float
        How long each call sleeps.
    then : callable, optional
        The function.
    """

    def __init__(self, path: Path, seconds: float, then: Any = None) -> None:
        self._path, self._seconds, self._then = path, seconds, then

    def __call__(self, *args: Any) -> Any:
        time.sleep(self._seconds)
        with self._path.open("ab") as file:
            file.write(b"x")
        if self._then is not None:
            return self._then(*args)
        return args[0] if len(args) == 1 else args


def four(x: Any) -> np.ndarray:
    return np.full(4, x)


def half(x: Any) -> bool:
    return bool(x % 2 == 0)


def few(x: Any) -> bool:
    return bool(x % 10 == 0)


def parity(x: Any) -> np.int64:
    return np.int64(x % 2)


def several(x: Any) -> Dataset:
    return Dataset.range(4)


def total(state: Any, x: Any) -> Any:
    return state + x, x


def ranged(n: int = 60) -> Dataset:
    return Dataset.range(n)


def rows(slow: Any) -> Dataset:
    return ranged().map(four).map(slow)


def reducer(reduce: Any) -> Reducer:
    return Reducer(lambda key: np.int64(0), reduce, lambda state: state)


def generated(slow: Any) -> Dataset:
    call = slow()
    return Dataset.from_generator(lambda: (call(k) for k in range(60)))


class Items:
    """Records that are costly to read."""

    def __init__(self, slow: Slow) -> None:
        self._slow = slow

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return self._slow(index)


class Several(Items):
    """Records that are read several at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self._slow(index) for index in indices]


PLACES: dict[str, tuple[str, Callable[[Any], Dataset]]] = {
    # before an operator that makes datasets, in it, in what it makes, and after it
    "flat_map, before": (
        "map#2",
        lambda slow: rows(slow()).flat_map(Dataset.from_tensor_slices).batch(4),
    ),
    "flat_map, many rows": (
        "map#1",
        lambda slow: (
            ranged()
            .map(slow(lambda x: np.full(50, x)))
            .flat_map(Dataset.from_tensor_slices)
            .batch(100)
        ),
    ),
    "flat_map": ("flat_map#1", lambda slow: ranged().flat_map(slow(several)).batch(4)),
    "flat_map, nothing in most": (
        "flat_map#1",
        lambda slow: (
            ranged().flat_map(slow(lambda x: Dataset.range(9 * bool(x % 9 == 0)))).batch(4)
        ),
    ),
    "flat_map, within": (
        "flat_map#1",
        lambda slow: ranged(8).flat_map(lambda _: Dataset.range(8).map(slow())).batch(4),
    ),
    "flat_map, rarely": (
        "flat_map#1",
        lambda slow: ranged(60).flat_map(slow(lambda _: Dataset.range(1500))).batch(100),
    ),
    "flat_map, within twice": (
        "flat_map#1",
        lambda slow: ranged(5).flat_map(
            lambda _: Dataset.range(6).flat_map(lambda _: Dataset.range(4).map(slow()))
        ),
    ),
    "flat_map, after": ("map#2", lambda slow: ranged(15).flat_map(several).map(slow()).batch(4)),
    "interleave, before": (
        "map#1",
        lambda slow: ranged().map(slow()).interleave(several, 4).batch(4),
    ),
    "interleave": ("interleave#1", lambda slow: ranged().interleave(slow(several), 4).batch(4)),
    "interleave, within": (
        "interleave#1",
        lambda slow: ranged(8).interleave(lambda _: Dataset.range(8).map(slow()), 4).batch(4),
    ),
    "interleave, after": (
        "map#2",
        lambda slow: ranged(15).interleave(several, 4).map(slow()).batch(4),
    ),
    "group_by_window, before": (
        "map#1",
        lambda slow: ranged().map(slow()).group_by_window(parity, lambda _, g: g.batch(4), 4),
    ),
    "group_by_window": (
        "groups#1",
        lambda slow: ranged().group_by_window(slow(parity), lambda _, g: g.batch(4), 4),
    ),
    "group_by_window, its datasets": (
        "group_by_window#2",
        lambda slow: ranged(200).group_by_window(parity, slow(lambda _, g: g.batch(4)), 4),
    ),
    "group_by_window, within": (
        "group_by_window#2",
        lambda slow: ranged().group_by_window(parity, lambda _, g: g.map(slow()).batch(4), 4),
    ),
    "window, within": (
        "flat_map#2",
        lambda slow: ranged().window(4).flat_map(lambda w: w.map(slow()).batch(4)),
    ),
    "window, before": (
        "map#1",
        lambda slow: ranged().map(slow()).window(4).flat_map(lambda w: w.batch(4)),
    ),
    # in one of several inputs
    "zip, first": ("map#1", lambda slow: Dataset.zip(ranged().map(slow()), ranged()).batch(4)),
    "zip, second": ("map#2", lambda slow: Dataset.zip(ranged(), ranged().map(slow())).batch(4)),
    "zip, filtered": (
        "map#2",
        lambda slow: Dataset.zip(ranged(), ranged().map(slow()).filter(half)).batch(4),
    ),
    "zip, after": ("map#3", lambda slow: Dataset.zip(ranged(), ranged()).map(slow()).batch(4)),
    "concatenate, first": (
        "map#1",
        lambda slow: ranged().map(slow()).concatenate(ranged()).batch(4),
    ),
    "concatenate, second": (
        "map#2",
        lambda slow: ranged().concatenate(ranged().map(slow())).batch(4),
    ),
    "concatenate, filtered": (
        "map#2",
        lambda slow: ranged().concatenate(ranged().map(slow()).filter(half)).batch(4),
    ),
    "sample_from_datasets": (
        "map#1",
        lambda slow: Dataset.sample_from_datasets([ranged().map(slow()), ranged()], seed=1).batch(
            8
        ),
    ),
    "choose_from_datasets": (
        "map#1",
        lambda slow: Dataset.choose_from_datasets(
            [ranged().map(slow()), ranged()], ranged(120).map(parity)
        ).batch(4),
    ),
    "choose_from_datasets, the choice": (
        "map#3",
        lambda slow: Dataset.choose_from_datasets(
            [ranged(), ranged()], ranged(120).map(slow(parity))
        ).batch(4),
    ),
    # in an operator's own function
    "map": ("map#1", lambda slow: ranged().map(slow()).batch(4)),
    "filter": ("filter#1", lambda slow: ranged().filter(slow(half)).batch(4)),
    "filter, few": ("filter#1", lambda slow: ranged(150).filter(slow(few))),
    "filter, few, before": ("map#1", lambda slow: ranged(150).map(slow()).filter(few)),
    "filter, few, batched": ("map#1", lambda slow: ranged(200).map(slow()).filter(few).batch(2)),
    "map_batches": ("map#2", lambda slow: ranged(120).map_batches(slow(), 2)),
    "take_while": (
        "take_while#1",
        lambda slow: ranged().take_while(slow(lambda x: x < 55)).batch(4),
    ),
    "scan": ("scan#1", lambda slow: ranged().scan(np.int64(0), slow(total)).batch(4)),
    "scan, before": ("map#1", lambda slow: ranged().map(slow()).scan(np.int64(0), total).batch(4)),
    "scan, after": ("map#2", lambda slow: ranged().scan(np.int64(0), total).map(slow()).batch(4)),
    "group_by_reducer": (
        "group_by_reducer#1",
        lambda slow: ranged().group_by_reducer(lambda x: x % 12, reducer(slow(lambda s, x: s + x))),
    ),
    "group_by_reducer, keys": (
        "group_by_reducer#1",
        lambda slow: ranged().group_by_reducer(slow(lambda x: x % 12), reducer(lambda s, x: s + x)),
    ),
    "sort_within": ("sort_key#1", lambda slow: ranged().sort_within(8, slow(float)).batch(4)),
    "rejection_resample": (
        "map#1",
        lambda slow: ranged().rejection_resample(slow(parity), [0.4, 0.6], seed=1),
    ),
    "bucket_by_sequence_length": (
        "groups#2",
        lambda slow: ranged().map(four).bucket_by_sequence_length(slow(len), [50], [4, 4]),
    ),
    "batch_by_cost": ("cost#1", lambda slow: ranged().batch_by_cost(8, slow(lambda _: 1))),
    "from_generator": ("from_generator#0", lambda slow: generated(slow).batch(4)),
    "from_source": ("from_source#0", lambda slow: Dataset.from_source(Items(slow())).batch(4)),
    "from_source, several": (
        "from_source#0",
        lambda slow: Dataset.from_source(Several(slow())).batch(4),
    ),
}
"""By place: the name of the operator that calls the costly function, and the pipeline, made of what makes that function."""
