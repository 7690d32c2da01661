"""Snapshots as Ray Data's sources and sinks: what each task does, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tundish as td

pytest.importorskip("ray")

from ray.data.block import BlockAccessor
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

from tundish.errors import IncompleteSnapshotError, SnapshotCorruptError, SnapshotError, SpecError
from tundish.ray import SnapshotDatasink, SnapshotDatasource
from tundish.snapshot.catalog import Catalog

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray warns of its own code


def element(n: Any) -> dict[str, Any]:
    k = int(n)
    return {
        "n": k,
        "text": f"é{k}",
        "image": np.full((3, 2), k, np.float32),
        "boxes": {"at": np.arange(k % 3, dtype=np.int16)},
        "when": np.datetime64(k, "s"),
        "half": np.float16(k / 2),
        "yes": np.bool_(k % 2),
    }


def tables_of(source: SnapshotDatasource, parallelism: int) -> list[pa.Table]:
    return [table for task in source.get_read_tasks(parallelism) for table in task()]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, str):
        return bool(one == other)
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def write(sink: SnapshotDatasink, tasks: Sequence[Sequence[Any]], order: Sequence[int]) -> None:
    """Do what Ray does: each task in some order, and all results at the end."""
    sink.on_write_start(None)
    found = [sink.write(iter(tasks[k]), SimpleNamespace(task_idx=k)) for k in order]
    sink.on_write_complete(SimpleNamespace(write_returns=found))


@pytest.mark.parametrize("parallelism", [1, 3, 64])
def test_a_snapshot_is_read(tmp_path: Path, parallelism: int) -> None:
    snapshot = td.Dataset.range(1000).map(element).snapshot(tmp_path, batch_bytes=8 << 10)
    elements = list(snapshot)
    source = SnapshotDatasource(tmp_path)
    tasks = source.get_read_tasks(parallelism)
    found = tables_of(source, parallelism)

    assert len(tasks) <= parallelism
    assert sum(task.metadata.num_rows for task in tasks) == 1000
    assert sum(task.metadata.size_bytes for task in tasks) <= source.estimate_inmemory_data_size()
    table = pa.concat_tables(found)
    assert table.column_names == ["n", "text", "image", "boxes.at", "when", "half", "yes"]
    numpy = BlockAccessor.for_block(table.combine_chunks()).to_numpy()
    for k in (0, 1, 500, 999):
        row = {name: column[k] for name, column in numpy.items()}
        row["boxes"] = {"at": row.pop("boxes.at")}
        assert same({name: row[name] for name in elements[k]}, dict(elements[k])), k


def test_what_is_written_is_what_was_read(tmp_path: Path) -> None:
    ds = (
        td.Dataset.range(300)
        .map(element)
        .map(lambda x: {k: v for k, v in x.items() if k != "boxes"})
    )
    ds.save(tmp_path / "a")
    tables = tables_of(SnapshotDatasource(tmp_path / "a"), 1)
    (table,) = tables
    tasks = [[table.slice(0, 100), table.slice(100, 1)], [table.slice(101, 0)], [table.slice(101)]]
    sink = SnapshotDatasink(str(tmp_path / "b"), batch_bytes=1000)

    write(sink, tasks, [2, 0, 1])
    found = list(td.Dataset.load(tmp_path / "b"))

    assert len(found) == 300
    for one, other in zip(found, ds, strict=True):
        assert same(one, other)


def test_rays_tensors_and_nests(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    ragged = np.empty(4, object)
    ragged[:] = [np.full((k + 1, 2), k, np.float32) for k in range(4)]
    table = pa.table(
        {
            "image": ArrowTensorArray.from_numpy(images),
            "ragged": ArrowVariableShapedTensorArray.from_numpy(ragged),
            "nest": pa.array([{"a": k, "b": [k] * k} for k in range(4)]),
            "words": pa.array(["a", "b", "a", "c"]).dictionary_encode(),
        }
    )

    write(SnapshotDatasink(tmp_path), [[table.slice(0, 1)], [table.slice(1)]], [0, 1])

    for k, found in enumerate(td.Dataset.load(tmp_path)):
        nest = {"a": np.int64(k), "b": np.full(k, k, np.int64)}
        wanted = {"image": images[k], "ragged": ragged[k], "nest": nest, "words": "abac"[k]}
        assert same(found, wanted), k


def test_pandas_blocks(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write(SnapshotDatasink(tmp_path), [[pandas.DataFrame({"x": [1.5, 2.5], "s": ["a", "b"]})]], [0])

    assert [(float(x["x"]), x["s"]) for x in td.Dataset.load(tmp_path)] == [(1.5, "a"), (2.5, "b")]


def test_a_task_that_runs_again(tmp_path: Path) -> None:
    """The first attempt is cut off at each block; only the second one counts."""
    blocks = [pa.table({"x": np.arange(10 * k, 10 * k + 10)}) for k in range(4)]
    sink = SnapshotDatasink(tmp_path, batch_bytes=16)

    def cut(stop: int) -> Iterator[Any]:
        yield from blocks[:stop]
        raise OSError("the node is gone")

    sink.on_write_start(None)
    for stop in range(5):
        with pytest.raises(OSError, match="the node is gone"):
            sink.write(cut(stop), SimpleNamespace(task_idx=0))
    lost = sink.write(iter(blocks), SimpleNamespace(task_idx=0))  # its answer is lost
    assert lost[1] is not None
    sink.on_write_failed(OSError())
    with pytest.raises(IncompleteSnapshotError, match="no complete snapshot"):
        SnapshotDatasource(tmp_path)
    found = sink.write(iter(blocks), SimpleNamespace(task_idx=0))
    sink.on_write_complete(SimpleNamespace(write_returns=[found]))

    assert [int(x["x"]) for x in td.Dataset.load(tmp_path)] == list(range(40))


def test_a_later_write_is_the_newest(tmp_path: Path) -> None:
    for rows in (1, 2):
        write(SnapshotDatasink(tmp_path, compression="lz4"), [[pa.table({"x": [7] * rows})]], [0])
        assert len(td.Dataset.load(tmp_path)) == rows
    older, newer = sorted(
        Catalog(tmp_path).keys(), key=lambda key: key == Catalog(tmp_path).newest()
    )
    for key, rows in ((older, 1), (newer, 2)):
        (table,) = tables_of(SnapshotDatasource(tmp_path, key=key), 4)
        assert table.num_rows == rows


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for table, says in (
        (pa.table({"x": pa.array([1, None])}), r"row 1 of this task: column 'x' \(int64\) is null"),
        (pa.table({"x": pa.array([Decimal(1)])}), "'x' is of Arrow's type decimal"),
    ):
        with pytest.raises(SpecError, match=says):
            write(SnapshotDatasink(tmp_path / "a"), [[table]], [0])
    with pytest.raises(SnapshotError, match="has no rows"):
        write(SnapshotDatasink(tmp_path / "b"), [[]], [0])
    two = [[pa.table({"x": [1]})], [pa.table({"x": [1.0]})]]
    with pytest.raises(SnapshotError, match="shards 0 and 1 of 2 cannot"):
        write(SnapshotDatasink(tmp_path / "c"), two, [0, 1])


def test_elements_that_failed_and_damage(tmp_path: Path) -> None:
    def bad(n: Any) -> Any:
        if int(n) == 5:
            raise ValueError("five")
        return {"n": n}

    snapshot = td.Dataset.range(9).map(bad).snapshot(tmp_path)
    with pytest.raises(ValueError, match="five"):
        list(snapshot)
    assert len(list(snapshot.ignore_errors())) == 8
    source = SnapshotDatasource(tmp_path)
    assert pa.concat_tables(tables_of(source, 2))["n"].to_pylist() == [0, 1, 2, 3, 4, 6, 7, 8]

    file = next(tmp_path.glob("*/runs/*/shard-*.arrow"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(SnapshotCorruptError):
        tables_of(SnapshotDatasource(tmp_path), 1)
