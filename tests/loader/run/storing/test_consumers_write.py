"""Whoever gets an element of a snapshot that is being written cannot change what is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import Dataset


def large(index: Any) -> np.ndarray:
    """An array that is delivered as a view of shared memory."""
    return np.full((300, 100), int(index) + 1)


def words(index: Any) -> np.ndarray:
    """An array that has no place in shared memory."""
    return np.array(["a" * int(index), "b"], object)


def chosen(ds: Dataset) -> Dataset:
    return Dataset.choose_from_datasets([ds], Dataset.range(9).map(lambda _: 0))


OPERATORS: dict[str, Callable[[Dataset], Dataset]] = {
    "itself": lambda ds: ds,
    "concatenate": lambda ds: ds.concatenate(ds.take(0)),
    "choose": chosen,
    "cache": lambda ds: ds.cache(),
    "unbatch": lambda ds: ds.batch(2).unbatch(),
}


@pytest.mark.parametrize("make", [large, words])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_consumer_that_writes_changes_nothing(
    tmp_path: Path, name: str, make: Callable[[Any], np.ndarray]
) -> None:
    ds = Dataset.range(9).map(make).snapshot(tmp_path)
    with OPERATORS[name](ds).iterator(workers=2) as it:
        for element in it:
            if element.flags.writeable:
                element[...] = 0

    assert [x.tolist() for x in ds.iterator(workers=0)] == [make(k).tolist() for k in range(9)]
