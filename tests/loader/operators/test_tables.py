"""Tables in memory: the rows are those of the file that would hold the table, and the memory is the table's."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.newer import STRING_VIEW

import tundish as td
from tundish.errors import RecordCorruptError, SpecError
from tundish.spec import flatten
from tundish.testing.compare import Outcome, collect

NOW = dt.datetime(2024, 2, 29, 12, 30, 5, 250_000)  # noqa: DTZ001 - without a zone, as Arrow's are
TENSOR = pa.fixed_shape_tensor(pa.int16(), [2, 3])

COLUMNS: dict[str, Any] = {
    **{str(kind): pa.array([3, 1, 2, 7, 5], kind) for kind in (pa.int8(), pa.uint64(), pa.int32())},
    "half": pa.array(np.array([0.5, 1, 2, 3, 4], np.float16)),
    "float-null": pa.array([1.5, None, 2.5, None, 0.0], pa.float32()),
    "bool": pa.array([True, False, True, True, False]),
    "bool-null": pa.array([True, None, False, None, True]),
    "int-null": pa.array([1, None, 3, 4, None]),
    "text": pa.array(["a", "", "h\u00e9", "x" * 99, "z"]),
    "text-null": pa.array(["a", None, "b", "c", None], pa.large_string()),
    **({"view": pa.array(["a", None, "b", "c" * 30, None], STRING_VIEW)} if STRING_VIEW else {}),
    "bytes": pa.array([b"a", b"", b"\0", b"b", b"c"], pa.large_binary()),
    "fixed": pa.array([b"ab", b"cd", b"ef", None, b"gh"], pa.binary(2)),
    "category": pa.array(["u", "v", "u", None, "v"]).dictionary_encode(),
    "numbers": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 1]), pa.array([2.5, 7.5])),
    "date": pa.array([NOW.date()] * 4 + [None], pa.date32()),
    "time": pa.array([NOW.time()] * 4 + [None], pa.time64("us")),
    "stamp": pa.array([NOW, None, NOW, NOW, NOW], pa.timestamp("ns")),
    "zone": pa.array([NOW, None, NOW, NOW, NOW], pa.timestamp("ms", "Europe/Berlin")),
    "took": pa.array([dt.timedelta(seconds=k) for k in range(5)], pa.duration("s")),
    "list": pa.array([[1], [], [2, 3], None, [4]]),
    "lists": pa.array([[["a"], ["b"]], [], [["c"]], [["d"], ["e"]], [["f"]]]),
    "vector": pa.array([[1.0, 2.0], [3.0, 4.0]] * 2 + [[5.0, 6.0]], pa.list_(pa.float64(), 2)),
    "matrix": pa.array(
        [[[k, 1.0], [2.0, -k]] for k in range(5)], pa.list_(pa.list_(pa.float32(), 2), 2)
    ),
    "struct": pa.array([{"k": k, "s": "x" * k} for k in range(5)]),
    "tensor": pa.ExtensionArray.from_storage(
        TENSOR, pa.array([list(range(6))] * 5, TENSOR.storage_type)
    ),
}


def outcomes(ds: Any, **how: Any) -> list[Outcome]:
    with ds.iterator(**how) as elements:
        return collect(elements, limit=100, exact=False)  # errors name the file


def of_file(table: Any, folder: Path, **how: Any) -> Any:
    pq.write_table(table, folder / "rows.parquet")
    return td.ParquetDataset(folder / "rows.parquet", **how)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("cut", [(), (2,), (1, 1, 4)], ids=str)
def test_rows_are_those_of_the_file(name: str, cut: tuple[int, ...], tmp_path: Path) -> None:
    whole = pa.table({"x": COLUMNS[name], "n": range(5)})
    edges = [0, *cut, 5]
    table = pa.concat_tables([whole.slice(a, b - a) for a, b in itertools.pairwise(edges)])
    there, here = of_file(whole, tmp_path), td.Dataset.from_arrow(table)

    assert outcomes(here, workers=0) == outcomes(there, workers=0)
    assert outcomes(here.batch(2), workers=0) == outcomes(there.batch(2), workers=0)
    mixed = [each.shuffle(None, seed=1).batch(3) for each in (here, there)]
    assert outcomes(mixed[0], workers=0) == outcomes(mixed[1], workers=0)


def _pairs(items: Any) -> Any:
    return pa.FixedSizeListArray.from_arrays(items, 2)


NUMBERS = pa.array(range(64))
BITS = pa.array([k % 3 == 0 for k in range(64)])
SHIFTED: dict[str, Any] = {
    "slice": _pairs(_pairs(NUMBERS))[3:9],
    "bits": _pairs(_pairs(BITS))[1:7],
    "inner": _pairs(_pairs(NUMBERS)[3:15]),
    "struct": pa.StructArray.from_arrays([_pairs(_pairs(NUMBERS))[3:9]], ["a"]),
    "struct-slice": pa.StructArray.from_arrays([_pairs(_pairs(NUMBERS))], ["a"])[3:9],
    "deep": _pairs(_pairs(_pairs(NUMBERS)))[1:7],
    "list": pa.ListArray.from_arrays(
        pa.array([0, 0, 1, 2, 3, 4, 6], pa.int32()), _pairs(_pairs(NUMBERS))[2:8]
    ),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_matrices_in_a_part_of_memory_are_their_rows(name: str) -> None:
    ds = td.Dataset.from_arrow(pa.table({"x": SHIFTED[name]}))
    at = np.array([5, 0, 2, 2])

    found = flatten(ds._node.source.columns(at))[0][0]  # type: ignore[attr-defined]  # ours
    expected = [flatten(ds[k])[0][0] for k in at.tolist()]
    assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))


def test_rows_are_the_same_in_workers(tmp_path: Path) -> None:
    ds = td.Dataset.from_arrow(pa.table(COLUMNS))

    assert outcomes(ds, workers=2) == outcomes(ds, workers=0)
    some = td.Dataset.from_arrow(pa.table(COLUMNS), columns=["half", "text", "category", "zone"])
    assert outcomes(some.batch(2), workers=2) == outcomes(some.batch(2), workers=0)


def test_columns_schema_and_defaults_are_those_of_the_reader(tmp_path: Path) -> None:
    table = pa.table(
        {"x": [1, None, 3], "s": ["a", "b", None], "d": [{"k": 1}, {"k": 2}, {"k": 3}]}
    )
    how: dict[str, Any] = {
        "columns": ["s", "d.k", "more", "x"],
        "schema": {"x": np.float32, "more": "int16"},
        "defaults": {"s": "?", "more": 7},
    }

    here = td.Dataset.from_arrow(table, **how)
    assert outcomes(here) == outcomes(of_file(table, tmp_path, **how))
    assert here[2] == {"s": "?", "d": {"k": 3}, "more": 7, "x": 3.0}


def test_numbers_are_not_copied() -> None:
    values = np.arange(1000.0)
    table = pa.table({"x": values})

    rows = td.Dataset.from_arrow(table)._node.source  # type: ignore[attr-defined]  # ours
    assert np.shares_memory(rows.columns(np.arange(10, 20))["x"], values) or np.shares_memory(
        next(iter(rows._views.values()))["x"], values
    )
    frame = pd.DataFrame({"x": values})
    of_frame = td.Dataset.from_pandas(frame)._node.source  # type: ignore[attr-defined]  # ours
    column = of_frame.table.column("x").chunk(0).to_numpy()
    assert np.shares_memory(column, frame["x"].to_numpy())


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_delivered_is_the_receivers(workers: int) -> None:
    values = np.arange(8.0).reshape(4, 2).copy()
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 2)
    ds = td.Dataset.from_arrow(pa.table({"v": column, "x": pa.array(values[:, 0].copy())}))

    with ds.iterator(workers=workers) as rows:
        for row in rows:
            row["v"][...] = -1
    with ds.batch(2).iterator(workers=workers) as batches:
        for batch in batches:
            batch["v"][...] = -1
            batch["x"][...] = -1
    assert column.flatten().to_pylist() == list(range(8))
    assert [float(x["x"]) for x in ds] == [0.0, 2.0, 4.0, 6.0]


def test_a_null_is_its_rows_error_and_the_next_row_comes() -> None:
    ds = td.Dataset.from_arrow(pa.table({"s": ["a", None, "b"], "x": [1.0, 2.0, 3.0]}))

    for workers in (0, 1):
        with ds.iterator(workers=workers) as rows:
            assert next(rows)["s"] == "a"
            with pytest.raises(
                RecordCorruptError, match=r"the table, row 1: column 's' \(string\)"
            ):
                next(rows)
            assert next(rows)["s"] == "b"


def test_a_state_is_of_the_same_table() -> None:
    table = pa.table({"x": range(9), "s": list("abcdefghi")})
    ds = td.Dataset.from_arrow(table).shuffle(None, seed=2).batch(2)
    with iter(ds) as batches:
        next(batches)
        state = json.loads(json.dumps(batches.state_dict()))
        rest = [x["s"].tolist() for x in batches]

    again = td.Dataset.from_arrow(pa.concat_tables([table.slice(0, 4), table.slice(4)]))
    with again.shuffle(None, seed=2).batch(2).iterator(workers=1) as batches:
        batches.load_state_dict(state)
        assert [x["s"].tolist() for x in batches] == rest
    other = td.Dataset.from_arrow(table.slice(1)).shuffle(None, seed=2).batch(2)
    with iter(other) as batches, pytest.raises(td.errors.IncompatibleCheckpointError):
        batches.load_state_dict(state)


@pytest.mark.parametrize("name", COLUMNS)
def test_the_fingerprint_has_the_values_and_not_the_chunks(name: str) -> None:
    whole = COLUMNS[name]
    table = pa.table({"x": whole})
    parts = pa.table({"x": pa.chunked_array([whole[:3], whole[3:3], whole[3:]], whole.type)})
    moved = pa.concat_tables([table.slice(4), table]).slice(1)
    others = [table.slice(1), table.slice(0, 4), table.rename_columns(["y"])]

    mark = td.Dataset.from_arrow(table).fingerprint()
    assert td.Dataset.from_arrow(parts).fingerprint() == mark
    assert td.Dataset.from_arrow(moved).fingerprint() == mark
    if name != "tensor":  # for which there are no defaults
        how: dict[str, Any] = {"defaults": {"x": whole[0].as_py()}}
        assert td.Dataset.from_arrow(table, **how).fingerprint() != mark
    found = [td.Dataset.from_arrow(other).fingerprint() for other in others]
    if name not in ("tensor", "date", "time"):  # whose first rows are alike
        assert mark not in found
    assert mark != found[0]
    assert mark != found[2]


def test_what_stands_where_nulls_are_does_not_count() -> None:
    one, other = (
        pa.array(np.array([1, value, 3]), mask=np.array([0, 1, 0], bool)) for value in (2, 9)
    )

    marks = {td.Dataset.from_arrow(pa.table({"x": each})).fingerprint() for each in (one, other)}
    assert len(marks) == 1


def test_a_part_of_a_table_travels_without_the_rest() -> None:
    table = pa.table({"x": np.arange(1_000_000), "s": ["text"] * 1_000_000})

    few = td.Dataset.from_arrow(table.slice(500_000, 5))
    assert len(pickle.dumps(few)) < 20_000
    assert [int(x["x"]) for x in pickle.loads(pickle.dumps(few))] == list(range(500_000, 500_005))


def test_many_small_chunks_are_joined() -> None:
    table = pa.concat_tables([pa.table({"x": [k, k + 1]}) for k in range(0, 400, 2)])

    ds = td.Dataset.from_arrow(table)
    assert [int(x["x"]) for x in ds] == list(range(400))
    assert len(ds._node.source._batches) == 1  # type: ignore[attr-defined]  # ours


def test_readers_batches_and_streams() -> None:
    table = pa.table({"x": [1, 2, 3]})

    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    given = [table, table.to_batches()[0], table.to_reader(), Stream()]
    for each in given:
        assert [int(x["x"]) for x in td.Dataset.from_arrow(each)] == [1, 2, 3]


def test_other_things_are_refused() -> None:
    for wrong in ({"x": [1]}, [1], pa.chunked_array([[1]]), "rows.parquet"):
        with pytest.raises(TypeError, match="table must be a pyarrow Table"):
            td.Dataset.from_arrow(wrong)
    for wrong in ({"x": [1]}, pa.table({"x": [1]}), pd.Series([1])):
        with pytest.raises(TypeError, match=r"frame must be a pandas.DataFrame"):
            td.Dataset.from_pandas(wrong)
    with pytest.raises(SpecError, match="the table has no column 'y'; its columns are 'x'"):
        td.Dataset.from_arrow(pa.table({"x": [1]}), columns=["y"])
    with pytest.raises(SpecError, match="decimal"):
        td.Dataset.from_arrow(pa.table({"x": [decimal.Decimal("1.5")]}))
    with pytest.raises(SpecError, match="Conversion failed for column x"):
        td.Dataset.from_pandas(pd.DataFrame({"x": [1, "a"]}))
    with pytest.raises(SpecError, match="Duplicate column names"):
        td.Dataset.from_pandas(pd.DataFrame([[1, 2]], columns=["x", "x"]))


FRAMES = {
    "numbers": {"x": [1, 2], "y": [0.5, np.nan], "z": np.array([1, 2], np.uint8)},
    "texts": {"s": ["a", "b"], "o": np.array(["a", "b"], object)},
    "nullable": {"i": pd.array([1, None], "Int64"), "f": pd.array([None, 1.5], "Float32")},
    "missing": {"s": ["a", None], "b": pd.array([True, None], "boolean")},
    "categories": {"c": pd.Categorical(["b", "a"]), "o": pd.Categorical([2, 1], ordered=True)},
    "times": {
        "t": pd.to_datetime(["2024-01-01", None]),
        "z": pd.to_datetime(["2024-01-01", "2024-07-01"]).tz_localize("Europe/Berlin"),
        "d": pd.to_timedelta([1, 2], "s"),
    },
    "objects": {"l": [[1, 2], [3]], "d": [{"k": 1}, {"k": 2}]},
    "arrow": {"a": pd.array(["x", None], pd.ArrowDtype(pa.string()))},
}


@pytest.mark.parametrize("name", FRAMES)
def test_rows_of_a_frame_are_those_of_its_file(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(FRAMES[name], index=[7, 3])
    frame.to_parquet(tmp_path / "rows.parquet", index=False)

    here, there = td.Dataset.from_pandas(frame), td.ParquetDataset(tmp_path / "rows.parquet")
    assert outcomes(here, workers=0) == outcomes(there, workers=0)
    assert outcomes(here.batch(2), workers=1) == outcomes(there.batch(2), workers=0)
    kept = td.Dataset.from_pandas(frame, columns=["__index_level_0__"], preserve_index=True)
    assert [int(x["__index_level_0__"]) for x in kept] == [7, 3]


def test_types_that_pandas_adds_are_their_storage() -> None:
    frame = pd.DataFrame({"p": pd.period_range("2024-01", periods=3, freq="M")})

    assert [int(x["p"]) for x in td.Dataset.from_pandas(frame)] == [648, 649, 650]


def test_workers_need_no_pandas(tmp_path: Path) -> None:
    """A plan is read, and run, where pandas cannot be imported."""
    periods = pd.period_range("2024-01", periods=2, freq="M")
    frame = pd.DataFrame({"x": [1, 2], "s": ["a", "b"], "p": periods})
    (tmp_path / "plan").write_bytes(pickle.dumps(td.Dataset.from_pandas(frame)))
    code = """if True:
        import pickle, sys
        class Missing:
            def find_spec(self, name, path, target=None):
                if name == "pandas":
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Missing())
        ds = pickle.loads(open("plan", "rb").read())
        print(*[row["s"] for row in ds], *[int(p) for b in ds.shuffle(None).batch(2) for p in b["p"]])
    """
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert sorted(done.stdout.split()) == ["648", "649", "a", "b"], done.stderr
