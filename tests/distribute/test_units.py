"""Processes that deal the units of `shuffle(None, units=)`: what each reads, and how they end together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.distribute.together import each, globally, run, with_policy

import tundish as td
from tundish.errors import IncompatibleCheckpointError

ROWS = 10
Make = Callable[[int], td.Dataset]


@pytest.fixture
def shuffled(tmp_path: Path) -> Make:
    """So many numbers, in row groups of 10, shuffled by 2 of them."""

    def make(count: int) -> td.Dataset:
        path = tmp_path / f"{count}.parquet"
        pq.write_table(pa.table({"x": np.arange(count)}), path, row_group_size=ROWS)
        rows = td.ParquetDataset(str(path)).map(number)
        return rows.shuffle(None, seed=1, units=2)

    return make


def number(row: dict[str, Any]) -> Any:
    return row["x"]


def form(ds: td.Dataset, **arguments: Any) -> str:
    with each(ds, 2, **arguments)[0].iterator() as iterator:
        return str(iterator.state_dict()["distributed"]["form"])


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("total", [200, 201, 199, 7])
def test_every_row_once_and_few_units_each(shuffled: Make, count: int, total: int) -> None:
    found = run(shuffled(total).map(np.negative).batch(12), count)
    units = [
        {-row // ROWS for step in process for part in step for row in part} for process in found
    ]

    assert sorted(-row for step in globally(found) for row in step) == list(range(total))
    assert sum(map(len, units)) <= -(-total // ROWS) + count - 1


@pytest.mark.parametrize("total", [199, 200, 201, 203, 239, 240, 241])
def test_a_rest_that_is_dropped_is_that_of_the_whole(shuffled: Make, total: int) -> None:
    found = globally(run(shuffled(total).batch(12, drop_remainder=True), 3))

    assert len(found) == total // 12
    assert all(len(step) == 12 for step in found)


def test_what_auto_chooses(shuffled: Make) -> None:
    ds = shuffled(200)

    assert form(ds.batch(12)) == "own"
    assert form(ds.repeat().batch(12)) == "own"
    assert form(ds.take(90).batch(12)) == "share"  # of the first 90 over all
    assert form(with_policy(ds.batch(12), "data")) == "share"
    assert form(with_policy(ds.batch(12), "file")) == "own"


def test_where_the_last_step_would_be_missing_all_share(shuffled: Make) -> None:
    """One process has 13 of 25 rows, two steps of 12 rows, and the other 12."""
    ds = shuffled(25).batch(24)

    assert form(ds) == "share"
    assert form(ds, uneven="pad") == "own"
    assert [len(step) for step in globally(run(ds, 2))] == [24, 1]


def test_a_state_belongs_to_its_process(shuffled: Make) -> None:
    ds = shuffled(200).batch(12)
    first, second = each(ds, 2)
    with first.iterator() as iterator:
        next(iterator)
        state = iterator.state_dict()
        rest = [step.tolist() for step in iterator]
    with first.iterator() as iterator:
        iterator.load_state_dict(state)
        assert [step.tolist() for step in iterator] == rest
    with second.iterator() as iterator, pytest.raises(IncompatibleCheckpointError, match="units"):
        iterator.load_state_dict(state)


def test_without_a_seed_all_have_one_order(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(95)}), tmp_path / "a", row_group_size=ROWS)
    ds = td.ParquetDataset(str(tmp_path / "a")).map(number).shuffle(None, units=2).batch(8)

    assert sorted(row for step in globally(run(ds, 2)) for row in step) == list(range(95))
