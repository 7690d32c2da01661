"""tf.data's CsvDataset and make_csv_dataset: what tensorflow 2.21 gives for the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish.errors import RecordCorruptError
from tundish.experimental import CsvDataset, make_csv_dataset

I4, I8, F4, F8 = np.int32, np.int64, np.float32, np.float64

# What tensorflow gives; None: an error in this place.
GIVEN: list[tuple[bytes, list[Any], dict[str, Any], list[Any]]] = [
    (b"1,a\n2,b\n", [I4, str], {}, [(1, b"a"), (2, b"b")]),
    (b"1,a\n,\n3,c\n", [I4(7), "x"], {}, [(1, b"a"), (7, b"x"), (3, b"c")]),
    (b"1,a\n,\n3,\n", [I4, str], {}, [(1, b"a"), None, None]),
    (b'h,g\r\n1,a\r\n2,"b,""c"\r\n', [I8(0), ""], {"header": True}, [(1, b"a"), (2, b'b,"c')]),
    (b'1,"a\nb"\n2,c', [I8, str], {}, [(1, b"a\nb"), (2, b"c")]),
    (
        b"1.5,NA,x\n2,3,y\n",
        [F4, F8(9)],
        {"na_value": "NA", "select_cols": [0, 1]},
        [(1.5, 9.0), (2.0, 3.0)],
    ),
    (b"1.5,NA,x\n2,3,y\n", [F4, str], {"exclude_cols": [1]}, [(1.5, b"x"), (2.0, b"y")]),
    (b"1.5;'a'\n", [F4, str], {"field_delim": ";"}, [(1.5, b"'a'")]),
    (b'1,"a"\n', [F4, str], {"use_quote_delim": False}, [(1.0, b'"a"')]),
    (b"1,2\n1\n1,2,3\n4,5\n", [I4, I4], {}, [(1, 2), None, None, (4, 5)]),
    (b"1,x\n99999999999,y\n1.5,z\n 4 ,w \n", [I4, str], {}, [(1, b"x"), None, None, (4, b"w ")]),
    (b"inf,-.5\n1e3,1_0\n", [F4, F8], {}, [(np.inf, -0.5), None]),
    (b'"",c\nd,""\n', ["q", "r"], {}, [(b"q", b"c"), (b"d", b"r")]),
    (b"1,2\n", [I4], {"select_cols": [5]}, [None]),
    (b"", [I4], {}, []),
    (b"h\n", [I4], {"header": True}, []),
]


@pytest.mark.parametrize(("content", "defaults", "given", "expected"), GIVEN, ids=repr)
def test_rows_are_those_of_tensorflow(
    tmp_path: Path, content: bytes, defaults: list[Any], given: dict[str, Any], expected: list[Any]
) -> None:
    (tmp_path / "c").write_bytes(content)
    found: list[Any] = []
    with iter(CsvDataset(str(tmp_path / "c"), defaults, **given)) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                break
            except RecordCorruptError:
                found.append(None)

    assert found == expected
    dtypes = [d if isinstance(d, type) else type(d) for d in defaults]
    for row in filter(None, found):
        assert [type(x) for x in row] == [bytes if d is str else d for d in dtypes]


def test_defaults_of_python_numbers_are_of_64_bits(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b",\n")

    assert [x.dtype for x in next(iter(CsvDataset(tmp_path / "c", [0, 0.0])))] == [I8, F8]
    with pytest.raises(RecordCorruptError, match=r"field 0 .double. is null; record_defaults sets"):
        next(iter(CsvDataset(tmp_path / "c", [np.zeros(0), F4(3)])))


@pytest.mark.parametrize(
    ("defaults", "given", "kind", "text"),
    [
        ([bool], {}, TypeError, r"record_defaults\[0\] must be of float32"),
        ([np.int8(1)], {}, TypeError, "must be of float32"),
        ([np.zeros(2)], {}, ValueError, "one value, a dtype, or an empty array"),
        ([I4], {"select_cols": [0, 1]}, ValueError, "columns that are read, .*, not 1"),
        ([I4, I4], {"select_cols": [1, 0]}, ValueError, "must be in ascending order"),
        ([I4], {"select_cols": [0], "exclude_cols": [1]}, ValueError, "not both"),
        ([I4], {"na_value": 0}, TypeError, "na_value"),
        ([I4], {"header": 1}, TypeError, "header"),
        (I4, {}, TypeError, "record_defaults"),
    ],
)
def test_wrong_arguments(
    defaults: Any, given: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        CsvDataset("file", defaults, **given)


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    (tmp_path / "1.csv").write_text("x,y,w\n1,0.5,a\n,,b\n3000000000,2,c\n")
    (tmp_path / "2.csv").write_text("x,y,w\n4,0.5,\n5,1e300,e\n")
    return f"{tmp_path}/*.csv"


def shown(batches: Any) -> list[Any]:
    found = []
    for batch in batches:
        features, label = batch if isinstance(batch, tuple) else (batch, None)
        told = {k: (v.dtype.name, v.tolist()) for k, v in features.items()}
        found.append((told, None if label is None else (label.dtype.name, label.tolist())))
    return found


def test_batches_are_those_of_tensorflow(pattern: str) -> None:
    plain: dict[str, Any] = {"num_epochs": 1, "shuffle": False}

    assert shown(make_csv_dataset(pattern, 3, label_name="y", **plain)) == [
        (
            {"x": ("int64", [1, 0, 3000000000]), "w": ("object", [b"a", b"b", b"c"])},
            ("float64", [0.5, 0, 2]),
        ),
        ({"x": ("int64", [4, 5]), "w": ("object", [b"", b"e"])}, ("float64", [0.5, 1e300])),
    ]
    assert shown(make_csv_dataset(pattern, 5, select_columns=["w", 0], **plain)) == [
        (
            {
                "x": ("int64", [1, 0, 3000000000, 4, 5]),
                "w": ("object", [b"a", b"b", b"c", b"", b"e"]),
            },
            None,
        )
    ]
    few = make_csv_dataset(pattern, 5, select_columns=["x"], num_rows_for_inference=2, **plain)
    with pytest.raises(RecordCorruptError, match="3000000000"):
        list(few)
    left = make_csv_dataset(
        pattern, 5, select_columns=["x"], num_rows_for_inference=2, ignore_errors=True, **plain
    )
    assert shown(left) == [({"x": ("int32", [1, 0, 4, 5])}, None)]


def test_files_are_read_in_turn(pattern: str) -> None:
    ds = make_csv_dataset(
        pattern, 5, select_columns=["w"], num_epochs=1, shuffle=False, num_parallel_reads=2
    )

    assert next(iter(ds))["w"].tolist() == [b"a", b"", b"b", b"e", b"c"]


def test_epochs_go_on_and_batches_are_whole(pattern: str) -> None:
    with iter(make_csv_dataset(pattern, 3, shuffle_seed=1)) as it:
        seen = [next(it) for _ in range(20)]

    assert {len(batch["x"]) for batch in seen} == {3}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"label_name": "z"}, "label_name must be one of"),
        ({"select_columns": ["z"]}, "not 'z'"),
        ({"select_columns": ["x", 0]}, "twice"),
        ({"column_defaults": [I4]}, "columns that are read, not 1"),
        ({"column_names": ["x", "x", "y"]}, "twice"),
        ({"header": False}, "column_names is needed"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_wrong_arguments_of_the_function(pattern: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_csv_dataset(pattern, **{"batch_size": 2, **given})


def test_files_must_match_and_agree(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "3.csv").write_text("x,z,w\n")
    with pytest.raises(ValueError, match="no file matches"):
        make_csv_dataset(f"{tmp_path}/none*", 2)
    with pytest.raises(ValueError, match=r"3.csv has the columns"):
        make_csv_dataset(pattern, 2)
