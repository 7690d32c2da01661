"""The columns that are read, as what, and what is said where they are not there."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.tables.reading import all_of

from tundish.errors import SpecError
from tundish.formats.tables.casting import Kind, cast, check_schema
from tundish.formats.tables.form import check_columns, check_defaults
from tundish.formats.tables.parquet import ParquetFormat
from tundish.snapshot.fingerprint.describer import Describer

TABLE = pa.table({"a": [1, 2], "b.c": ["x", "y"], "s": [{"t": 0.5, "u": 1}, {"t": 1.5, "u": 2}]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


def form(columns: Any = None, schema: Any = None, defaults: Any = None) -> ParquetFormat:
    return ParquetFormat(
        columns=check_columns(columns),
        schema=check_schema(schema),
        defaults=check_defaults(defaults),
    )


def test_columns_come_in_the_order_that_was_asked_for(path: Path) -> None:
    assert all_of(form(["b.c", "a"]), path)[0] == {"b.c": "x", "a": 1}
    assert list(all_of(form(["b.c", "a"]), path)[0]) == ["b.c", "a"]


def test_a_field_of_a_struct_stays_within_it(path: Path) -> None:
    assert all_of(form(["s.u"]), path) == [{"s": {"u": 1}}, {"s": {"u": 2}}]


def test_an_unknown_column_is_told_with_those_that_are_there(path: Path) -> None:
    with pytest.raises(SpecError, match=r"table.parquet has no column 's.z'; .* 'a', 'b.c', 's'\."):
        form(["a", "s.z"]).open(str(path))


def test_a_column_that_is_missing_is_one_of_nulls(path: Path) -> None:
    columns = ["a", "x", "y"]

    assert all_of(form(columns, {"y": "int8"}, {"x": "?", "y": 3}), path)[1] == {
        "a": 2,
        "x": "?",
        "y": np.int8(3),
    }
    assert np.isnan(all_of(form(["z"], {"z": "float32"}), path)[0]["z"])
    assert "'z' (int8) is null" in all_of(form(["z"], {"z": "int8"}), path)[0][1]


def test_a_schema_names_types_and_adds_columns(path: Path) -> None:
    row = all_of(form(schema={"a": "int8", "n": "float64"}), path)[0]

    assert list(row) == ["a", "b.c", "s", "n"]
    assert row["a"].dtype == np.int8


def test_a_value_that_does_not_fit_is_its_rows_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 300, 3, -129, 127]}), tmp_path / "p")

    found = all_of(form(schema={"a": "int8"}), tmp_path / "p")

    assert [x if isinstance(x, dict) else x[0] for x in found] == [
        {"a": 1},
        1,
        {"a": 3},
        3,
        {"a": 127},
    ]
    assert "column 'a': 300 is no int8" in found[1][1]


NIGHT, NOON = dt.datetime(2024, 2, 29), dt.datetime(2024, 2, 29, 12)  # noqa: DTZ001 - as Arrow's are
WEST = dt.timezone(dt.timedelta(hours=-5))
STRUCT = pa.struct([("x", pa.float32()), ("y", pa.int64())])


@pytest.mark.parametrize(
    ("given", "kind", "wrong"),
    [
        ([1.0, 1.5, 2.0], pa.int64(), [1]),
        ([1.0, 1e300, np.inf], pa.float32(), [1]),
        ([0, 1, 2], pa.bool_(), [2]),
        ([[0], [1, 2], None, []], pa.list_(pa.bool_()), [1]),
        ([{"x": 0.5}, {"x": 1.0}, None], pa.struct([("x", pa.bool_())]), [0]),
        ([NIGHT, NOON, None], pa.date32(), [1]),
        ([NIGHT, NOON, None], pa.date64(), [1]),
        ([NIGHT.replace(tzinfo=WEST), NIGHT.replace(tzinfo=dt.UTC), None], pa.date32(), [0]),
        ([[NIGHT], [NIGHT, NOON], []], pa.list_(pa.date32()), [1]),
        (["1", "x", "3"], pa.int64(), [1]),
        ([[1.0], [1.0, 1e300], [np.inf], None], pa.list_(pa.float32()), [1]),
        ([{"x": 1e300, "y": 1}, {"x": -np.inf, "y": 1}], STRUCT, [0]),
        ([2**24 + 1, 2**24], pa.float32(), [0]),
        ([-1, 1], pa.uint8(), [0]),
        ([None, 1], pa.int8(), []),
    ],
)
def test_nothing_is_wrapped_or_cut_off(given: list[Any], kind: Any, wrong: list[int]) -> None:
    bad: dict[int, str] = {}

    made = cast(pa.array(given), kind, "c", bad)

    assert list(bad) == wrong
    assert made.type == kind
    assert len(made) == len(given)


LISTS: dict[str, Any] = {
    "list": pa.list_,
    "large": pa.large_list,
    "fixed": lambda item: pa.list_(item, 1),
    "deep": lambda item: pa.list_(pa.list_(item)),
}


ROWS: dict[str, Any] = {
    "alone": (lambda item: item, lambda x: x),
    "struct": (lambda item: pa.struct([("a", item)]), lambda x: {"a": x}),
    **{name: (listed, lambda x: [x]) for name, listed in LISTS.items()},
    "deep": (LISTS["deep"], lambda x: [[x]]),
}


@pytest.mark.parametrize("within", ROWS)
def test_days_are_those_of_utc_in_lists_and_structs_too(within: str) -> None:
    kind_of, row_of = ROWS[within]
    days = [NIGHT.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC), NIGHT.replace(tzinfo=WEST)]
    zoned = pa.timestamp("us", "America/New_York")
    bad: dict[int, str] = {}

    made = cast(
        pa.array([*map(row_of, days), None], kind_of(zoned)), kind_of(pa.date32()), "c", bad
    )

    assert made.to_pylist() == [row_of(NIGHT.date()), None, None, None]
    assert list(bad) == [1, 2]
    assert "datetime.datetime(2024, 2, 29, 12, 0, tzinfo=" in bad[1]
    assert "datetime.datetime(2024, 2, 29, 5, 0, tzinfo=" in bad[2]
    assert "it has a time of day" in bad[2]


@pytest.mark.parametrize("listed", LISTS.values(), ids=LISTS.keys())
def test_an_item_that_does_not_fit_is_an_error_of_its_row_alone(listed: Any) -> None:
    """An item beside a slice, which pyarrow casts too, is not of the slice."""
    deep = pa.types.is_list(listed(pa.int8()).value_type)
    items = [[[k]] if deep else [k] for k in (300, 1, -1, 300, 4, 300)]
    given, kind = pa.array(items, listed(pa.int64())), listed(pa.int8())
    for start, stop in ((0, 6), (0, 3), (1, 3), (1, 2), (2, 4), (0, 1)):
        bad: dict[int, str] = {}

        made = cast(given[start:stop], kind, "c", bad)

        assert list(bad) == [k - start for k in (0, 3, 5) if start <= k < stop]
        assert all("300" in text.partition(" is no ")[0] for text in bad.values())
        whole = [None if k in bad else item for k, item in enumerate(items[start:stop])]
        assert made.to_pylist() == whole


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.array([1.5, None, 1.1, np.nan, -np.inf]), [1.5, None, 1.1, np.nan, -np.inf]),
        (pa.array([0.25, 70_000.0], pa.float32()), [0.25, "too large"]),
        (pa.array([2048, None, 65_504, 70_000, 2**40]), [2048, None, 65_504, "large", "range"]),
        (pa.array([True, False]), [1, 0]),
        (pa.array(["1.5", "x", "inf", "1e9", None]), [1.5, "parse", np.inf, "too large", None]),
        (pa.array(["0.5", "2", "0.5"]).dictionary_encode(), [0.5, 2, 0.5]),
        (pa.array([0], pa.timestamp("s")), ["cannot be halffloat"]),
    ],
)
def test_columns_become_float16_and_nothing_becomes_infinite(given: Any, expected: Any) -> None:
    """With pyarrow 15 too, which does not cast to it."""
    bad: dict[int, str] = {}

    made = cast(given, pa.float16(), "c", bad)

    assert list(bad) == [k for k, value in enumerate(expected) if isinstance(value, str)]
    assert all(expected[k] in bad[k] for k in bad)
    assert made.is_null().to_pylist() == [isinstance(x, str) or x is None for x in expected]
    rest = [x for x in expected if x is not None and not isinstance(x, str)]
    assert np.array_equal(np.array(made.drop_null()), np.array(rest, np.float16), equal_nan=True)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.string(), pa.int64(), pa.bool_()])
def test_columns_of_float16_become_others(kind: Any) -> None:
    whole = np.array([1, 0, 0, np.nan, 1.099609375])
    nulls = np.array([False, True, False, False, False])
    fits = 3 if kind in (pa.int64(), pa.bool_()) else 5
    bad: dict[int, str] = {}

    made = cast(pa.array(np.float16(whole), mask=nulls), kind, "c", bad)

    assert list(bad) == [*range(fits, 5)]
    wanted = pa.array(whole, mask=nulls)[:fits].cast(kind)
    assert made.type == kind
    assert [str(x) for x in made[:fits]] == [str(x) for x in wanted]


SHOWN: list[tuple[Any, str]] = [
    (pa.array([1 << 62], pa.timestamp("s")), "column 'c': '.*4611686018427387904.*' is no timestamp.ns.: "),
    (pa.array([253402300800], pa.timestamp("s")), "column 'c': '10000-01-01 00:00:00' is no timestamp.ns.: "),
    (pa.array([[253402300800]], pa.list_(pa.timestamp("s"))), "column 'c': this value is no list"),
]  # fmt: skip


@pytest.mark.parametrize(("array", "problem"), SHOWN, ids=lambda x: repr(x)[:20])
def test_a_value_that_python_has_no_object_for_is_its_rows_error(array: Any, problem: str) -> None:
    kind, bad = pa.timestamp("ns"), dict[int, str]()

    made = cast(array, pa.list_(kind) if pa.types.is_list(array.type) else kind, "c", bad)

    assert made.null_count == 1
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(bad[0])


def test_the_row_after_such_a_value_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "p"
    pq.write_table(pa.table({"t": pa.array([0, 253402300800, 2], pa.timestamp("s"))}), path)
    form = ParquetFormat(schema=check_schema({"t": "M8[ns]"}))

    found = all_of(form, path)

    assert [row["t"].astype(int) for row in (found[0], found[2])] == [0, 2 * 10**9]
    assert "'10000-01-01 00:00:00" in found[1][1]


def test_a_schema_travels_and_is_told_by_names() -> None:
    made = form(
        schema=pa.schema([("x", pa.list_(pa.float32(), 3)), ("t", pa.timestamp("ns", "UTC"))])
    )

    assert pickle.loads(pickle.dumps(made)) == made
    assert b"pyarrow" not in pickle.dumps(made)
    assert repr(Kind(pa.int8())) == "int8"
    assert "timestamp[ns, tz=UTC]" in str(Describer().describe(made))


def test_two_columns_of_a_name_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), tmp_path / "p")

    with pytest.raises(SpecError, match="has 2 columns of the name 'a'"):
        form().open(str(tmp_path / "p"))


BAD: list[tuple[Callable[[Any], Any], Any, type[Exception], str]] = [
    (check_columns, "a", TypeError, "must be a list of names"),
    (check_columns, [1], TypeError, "must hold names"),
    (check_columns, [], ValueError, "is empty"),
    (check_columns, ["a", "a"], ValueError, "twice"),
    (check_columns, ["a", "a.b"], ValueError, "a part of 'a'"),
    (check_schema, ["a"], TypeError, "must be a pyarrow.Schema or a dict"),
    (check_schema, {1: "int8"}, TypeError, "names as keys"),
    (check_schema, {"a": "int7"}, TypeError, "must be a dtype, str or bytes"),
    (check_schema, {"a": object}, TypeError, "must be a dtype, str or bytes"),
    (check_schema, pa.schema([("a", pa.int8()), ("a", pa.int8())]), ValueError, "twice"),
    (check_defaults, [1], TypeError, "must be a dict"),
    (check_defaults, {1: 2}, TypeError, "names as keys"),
    (check_defaults, {"a": None}, ValueError, "is None"),
]


@pytest.mark.parametrize(("check", "given", "kind", "text"), BAD, ids=lambda x: str(x)[:20])
def test_wrong_arguments(check: Any, given: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        check(given)
