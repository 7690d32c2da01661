"""Complete snapshots: what lies in their files together is given as it lies, whatever chooses among it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tundish as td

CHOSEN: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "all": lambda ds: ds,
    "skip": lambda ds: ds.skip(4),
    "take": lambda ds: ds.take(12),
    "prefetch": lambda ds: ds.prefetch(2),
    "options": lambda ds: ds.with_options(td.Options()),
}
SCATTERED: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "shard": lambda ds: ds.shard(2, 1),
    "shuffle": lambda ds: ds.shuffle(None, seed=3),
    "window": lambda ds: ds.shuffle(4, seed=3),
    "repeat": lambda ds: ds.repeat(2).skip(14),
}


def kept(tmp_path: Path) -> td.Dataset:
    ds = td.Dataset.range(16).map(lambda x: np.full(3, x)).snapshot(tmp_path, compression=None)
    assert sum(1 for _ in ds) == 16
    return ds


def first(ds: td.Dataset) -> np.ndarray:
    with ds.iterator(workers=0) as elements:
        batch: np.ndarray = next(elements)
    return batch


@pytest.mark.parametrize("chosen", CHOSEN)
def test_batches_of_neighbours_are_slices_of_the_file(tmp_path: Path, chosen: str) -> None:
    batches = CHOSEN[chosen](kept(tmp_path)).batch(4)

    one, other = first(batches), first(batches)

    assert np.shares_memory(one, other)
    assert not one.flags.writeable


@pytest.mark.parametrize("scattered", SCATTERED)
def test_batches_of_others_are_those_of_their_elements(tmp_path: Path, scattered: str) -> None:
    chosen = SCATTERED[scattered](kept(tmp_path))

    with chosen.iterator(workers=0) as elements:
        rows = [next(elements) for _ in range(4)]

    assert np.array_equal(first(chosen.batch(4)), np.stack(rows))


@pytest.mark.parametrize("chosen", [*CHOSEN, *SCATTERED])
def test_elements_are_read_only(tmp_path: Path, chosen: str) -> None:
    made = (CHOSEN | SCATTERED)[chosen](kept(tmp_path))

    assert not first(made).flags.writeable
    assert not first(made.batch(2)).flags.writeable
