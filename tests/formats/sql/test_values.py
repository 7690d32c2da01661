"""Columns of a database in the dtypes that were asked for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tundish.formats.sql.values import Unreadable, as_given, check_types, converted

WHEN = dt.datetime(2026, 5, 20, 12, 30, 0, 5, tzinfo=dt.UTC)
EAST = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        ([1, -2], "int64", np.array([1, -2])),
        ([1, 2.0, "3", Decimal(4), True], "int16", np.array([1, 2, 3, 4, 1], np.int16)),
        ([2**64 - 1], "uint64", np.array([2**64 - 1], np.uint64)),
        ([Decimal(2**63)], "uint64", np.array([2**63], np.uint64)),
        ([1.5, float("inf")], "float32", np.array([1.5, np.inf], np.float32)),
        ([1, "2.5", Decimal("0.5"), None], "float64", np.array([1, 2.5, 0.5, np.nan])),
        ([True, False], "bool", np.array([True, False])),
        ([0, 300, 0.0, "1"], "bool", np.array([False, True, False, True])),
        ([WHEN, WHEN.astimezone(EAST)], "datetime64[us]", np.array(["2026-05-20T12:30:00.000005"] * 2, "M8[us]")),
        ([dt.date(2026, 5, 20), None, "2026-05-21"], "datetime64[D]", np.array(["2026-05-20", "NaT", "2026-05-21"], "M8[D]")),
        ([dt.timedelta(seconds=2), None], "timedelta64[ms]", np.array([2000, "NaT"], "m8[ms]")),
        (np.array([1, 2], np.int32), "int64", np.array([1, 2])),
        (np.array([1, 2], np.int64), "uint8", np.array([1, 2], np.uint8)),
        (np.array([1, 2], np.int64), "float32", np.array([1, 2], np.float32)),
        (np.array([0, 2], np.int64), "bool", np.array([False, True])),
        (np.array([0.5], np.float32), "float64", np.array([0.5])),
        (np.array([1.0], np.float32), "int64", np.array([1])),
        (np.array(["2026-05-20T12:30:00"], "M8[us]"), "datetime64[ms]", np.array(["2026-05-20T12:30:00.000"], "M8[ms]")),
        (["2026-05-20 00:00:00.000", "NaT", 20_000], "datetime64[D]", np.array(["2026-05-20", "NaT", "2024-10-04"], "M8[D]")),
    ],
)  # fmt: skip
def test_numbers_and_times(values: Any, dtype: str, wanted: np.ndarray) -> None:
    found, bad = converted(values, dtype)

    assert not bad
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        (["a", "é\0"], "str", ["a", "é\0"]),
        ([b"a", 1, 2.5, dt.date(2026, 5, 20)], "str", ["a", "1", "2.5", "2026-05-20"]),
        ([b"\xff", memoryview(b"m"), "é", 1], "bytes", [b"\xff", b"m", b"\xc3\xa9", b"1"]),
        ([Unreadable(b"\xff", "is no text")], "bytes", [b"\xff"]),
        ([None, 1, "a"], "object", [None, np.int64(1), "a"]),
        (np.array(["a", "b"], object), "str", ["a", "b"]),
        (np.array([1, 2]), "str", ["1", "2"]),
    ],
)
def test_texts_and_objects(values: Any, dtype: str, wanted: list[Any]) -> None:
    found, bad = converted(values, dtype)

    assert not bad
    assert found.dtype == object
    assert found.tolist() == wanted


def test_arrays_of_a_database_are_arrays() -> None:
    found, bad = converted([[1, 2], [3, "x"], [], None], "float32")

    assert sorted(bad) == [1]
    assert found[0].dtype == found[2].dtype == np.float32
    assert (found[0].tolist(), found[2].tolist()) == ([1, 2], [])


@pytest.mark.parametrize(
    ("value", "dtype", "problem"),
    [
        (300, "int8", "is 300 (int), which is not int8"),
        (-1, "uint64", "is -1 (int), which is not uint64"),
        (2**63, "int64", "is 9223372036854775808 (int), which is not int64"),
        (2.5, "int64", "is 2.5 (float), which is not int64"),
        (float("nan"), "int64", "is nan (float), which is not int64"),
        (float("inf"), "int64", "is inf (float), which is not int64"),
        (Decimal("0.1"), "int64", "is Decimal('0.1') (Decimal), which is not int64"),
        ("word", "int64", "is 'word' (str), which is not int64"),
        ("1_2", "int64", "is '1_2' (str), which is not int64"),
        ("2.0", "int64", "is '2.0' (str), which is not int64"),
        (b"12", "float64", None),
        ("x" * 100, "float64", f"is '{'x' * 59}... (str), which is not float64"),
        (1e300, "float32", "is 1e+300 (float), which is not float32"),
        (10**400, "float64", "which is not float64"),
        (b"\xff", "str", "is b'\\xff' (bytes), which is not str"),
        (Unreadable(b"\xff", "is not UTF-8 text"), "str", "is not UTF-8 text"),
        (
            None,
            "int64",
            "is NULL, which int64 cannot hold: use coalesce(..., 0) or similar in the query",
        ),
        (
            None,
            "str",
            "is NULL, which str cannot hold: use coalesce(..., 0) or similar in the query",
        ),
        (
            None,
            "bool",
            "is NULL, which bool cannot hold: use coalesce(..., 0) or similar in the query",
        ),
        ("noon", "datetime64[s]", "is 'noon' (str), which is not datetime64[s]"),
        ("now", "datetime64[s]", "is 'now' (str), which is not datetime64[s]"),
        ("2026-05-20 12:30:00.5", "datetime64[s]", "which is not datetime64[s]"),
        (
            "2026-05-20 12:30",
            "datetime64[D]",
            "is '2026-05-20 12:30' (str), which is not datetime64[D]",
        ),
        (WHEN, "datetime64[ms]", "(datetime), which is not datetime64[ms]"),
        (np.datetime64("2026-05-20T12:30:00.5"), "datetime64[s]", "which is not datetime64[s]"),
        ("9999-12-31", "datetime64[ns]", "is '9999-12-31' (str), which is not datetime64[ns]"),
        (dt.timedelta(milliseconds=1500), "timedelta64[s]", "which is not timedelta64[s]"),
    ],
)
def test_what_does_not_fit_is_its_row_alone(value: Any, dtype: str, problem: str | None) -> None:
    good: Any = {"str": "a", "datetime64[s]": "2026-05-20", "bool": True}.get(dtype, 1)

    found, bad = converted([good, value, good], dtype)

    assert len(found) == 3
    assert found[0] == found[2] == converted([good], dtype)[0][0]
    if problem is None:  # Python's float reads bytes, too
        assert not bad
    else:
        assert list(bad) == [1]
        assert problem in bad[1]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int64),
        ([0.5], np.float64),
        ([True], np.bool_),
        (["a"], object),
        ([b"a"], object),
    ],
)
def test_a_column_of_one_type_as_it_is(values: list[Any], dtype: Any) -> None:
    found, bad = as_given(values)

    assert not bad
    assert found.dtype == dtype
    assert found.tolist() == values


def test_other_columns_as_they_are() -> None:
    found, bad = as_given(
        [1, None, 2.5, "a", memoryview(b"m"), [1, 2], Unreadable(b"", "is odd"), 2**70]
    )

    assert bad[6] == "is odd"
    assert "does not fit 64 bits" in bad[7]
    assert found[:5] == [1, None, 2.5, "a", b"m"]
    assert [type(value) for value in found[:3]] == [np.int64, type(None), np.float64]
    assert found[5].tolist() == [1, 2]


def test_types_that_are_given() -> None:
    assert check_types(None) is None
    assert check_types(np.int32) == check_types("i4") == "int32"
    assert check_types((str, bytes, "S", "U", float, bool, "M8[us]", object)) == (
        "str", "bytes", "bytes", "str", "float64", "bool", "datetime64[us]", "object",
    )  # fmt: skip
    with pytest.raises(ValueError, match="a dtype for each column, not none"):
        check_types(())
    for wrong in ("no dtype", (None,), complex, 7, {"a": int}):
        with pytest.raises(TypeError, match="output_types must be numpy dtypes"):
            check_types(wrong)


@pytest.mark.parametrize("dtype", ["datetime64", "timedelta64"])
def test_times_without_a_unit(dtype: str) -> None:
    """A row's unit would be that of the rows fetched with it."""
    with pytest.raises(TypeError, match=rf"has {dtype} without a unit: write {dtype}\[us\]"):
        check_types((int, dtype))
