"""The rows of a small table stay for the next iterator over the same dataset, and no longer."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tundish as td
from tundish.formats.tables import files
from tundish.formats.tables.reader import BatchReader

ROWS = 3000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of what was decoded."""
    found: list[Any] = []
    around = BatchReader.keep

    def noted(self: BatchReader, key: Any, batch: Any) -> None:
        found.append(key)
        around(self, key, batch)

    monkeypatch.setattr(BatchReader, "keep", noted)
    return found


def written(path: Path, first: int = 0, rows: int = ROWS) -> str:
    words = [f"w{k}" for k in range(first, first + rows)]
    table = pa.table({"x": np.arange(first, first + rows), "word": words})
    pq.write_table(table, path, row_group_size=1000)
    return str(path)


def shuffled(*paths: str) -> td.Dataset:
    ds = td.ParquetDataset(list(paths)).shuffle(None, seed=1, reshuffle_each_iteration=False)
    return ds.batch(64)


def epoch(ds: td.Dataset) -> list[Any]:
    with ds.iterator(workers=0) as it:
        return [(batch["x"].tolist(), batch["word"].tolist()) for batch in it]


def test_the_next_epoch_decodes_nothing(tmp_path: Path, decoded: list[Any]) -> None:
    ds = shuffled(written(tmp_path / "a"), written(tmp_path / "b", ROWS))
    want = epoch(ds)
    assert len(decoded) == 6
    assert epoch(ds) == want
    assert len(decoded) == 6
    assert sorted(x for xs, _ in want for x in xs) == list(range(2 * ROWS))


def test_what_a_receiver_does_to_a_batch_is_not_seen_again(tmp_path: Path) -> None:
    ds = shuffled(written(tmp_path / "a"))
    want = epoch(ds)
    for _ in range(2):
        with ds.iterator(workers=0) as it:
            for batch in it:
                for column in batch.values():
                    assert column.flags.owndata
                    column.flags.writeable = True
                batch["x"][:] = -1
                batch["word"][:] = "?"
    assert epoch(ds) == want


def test_a_changed_file_is_read(tmp_path: Path, decoded: list[Any]) -> None:
    path = written(tmp_path / "a")
    ds = shuffled(path)
    old, before = epoch(ds), Path(path).stat()
    written(tmp_path / "a", 10_000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    new = epoch(ds)
    assert [[x + 10_000 for x in xs] for xs, _ in old] == [xs for xs, _ in new]
    assert len(decoded) == 6


def test_another_table_frees_them(tmp_path: Path, decoded: list[Any]) -> None:
    one, other = shuffled(written(tmp_path / "a")), shuffled(written(tmp_path / "b", ROWS))
    epoch(one)
    kept = list(files._between)
    assert len(kept) == 1
    epoch(other)
    assert len(files._between) == 1
    assert not len(kept[0]._kept)
    epoch(one)
    assert len(decoded) == 9


def test_a_large_table_is_freed(
    tmp_path: Path, decoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROOM", 1000)
    ds = shuffled(written(tmp_path / "a"))
    epoch(ds)
    assert not any(len(each._kept) for each in files._between)
    epoch(ds)
    assert len(decoded) == 6


def test_a_smaller_budget_frees_them(tmp_path: Path) -> None:
    ds = shuffled(written(tmp_path / "a"))
    want = epoch(ds)
    (source,) = files._between
    source.keep(1000)
    assert not len(source._kept)
    assert epoch(ds) == want


def test_they_go_with_the_dataset(tmp_path: Path) -> None:
    ds = shuffled(written(tmp_path / "a"))
    epoch(ds)
    assert len(files._between) == 1
    del ds
    gc.collect()
    assert not len(files._between)


def test_an_iterator_that_runs_keeps_its_rows_when_another_is_closed(
    tmp_path: Path, decoded: list[Any]
) -> None:
    ds = shuffled(written(tmp_path / "a"))
    want = epoch(ds)
    with ds.iterator(workers=0) as it:
        found = [next(it)["x"].tolist() for _ in range(5)]
        assert epoch(ds) == want
        found += [batch["x"].tolist() for batch in it]
    assert found == [xs for xs, _ in want]
    assert len(decoded) == 3
