"""Arrow's types as numpy's, and what becomes of nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.newer import BINARY_VIEW, LIST_VIEW, STRING_VIEW

from tundish.errors import SpecError
from tundish.formats.tables.columns import Bad, check_type, default_of, to_numpy
from tundish.spec import leaf_key


def made(array: Any, defaults: dict[str, Any] | None = None) -> tuple[Any, Bad]:
    bad: Bad = {}
    check_type(array.type, "c")
    return to_numpy(array, "c", defaults or {}, bad), bad


NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
NUMBERS += [pa.uint64(), pa.float16(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_numbers_keep_their_dtype_and_are_not_copied(kind: Any) -> None:
    array = pa.array(np.array([1, 2, 3], kind.to_pandas_dtype()))

    values, bad = made(array[1:])

    assert values.dtype == np.dtype(kind.to_pandas_dtype())
    assert values.tolist() == [2, 3]
    assert not values.flags.writeable
    assert not bad
    whole = made(array)[0]
    assert whole.__array_interface__["data"][0] == array.buffers()[1].address


DAY = dt.date(2026, 11, 22)
INSTANT = dt.datetime(2026, 11, 22, 1, 2, 3, tzinfo=dt.UTC)
VALUES: list[tuple[Any, list[Any], Any, list[Any]]] = [
    (pa.bool_(), [True, False], bool, [True, False]),
    (pa.string(), ["a", "h\u00e9\0"], str, ["a", "h\u00e9\0"]),
    (pa.large_string(), ["a"], str, ["a"]),
    (pa.binary(), [b"a\0"], bytes, [b"a\0"]),
    (pa.large_binary(), [b"a\0"], bytes, [b"a\0"]),
    (pa.binary(2), [b"a\0"], bytes, [b"a\0"]),
    (pa.date32(), [DAY], "M8[D]", [np.datetime64("2026-11-22", "D")]),
    (pa.date64(), [DAY], "M8[ms]", [np.datetime64("2026-11-22", "ms")]),
    (pa.timestamp("s"), [1], "M8[s]", [np.datetime64(1, "s")]),
    (
        pa.timestamp("us", "Europe/Berlin"),
        [INSTANT],
        "M8[us]",
        [np.datetime64("2026-11-22T01:02:03")],
    ),
    (pa.time32("ms"), [7], "m8[ms]", [np.timedelta64(7, "ms")]),
    (pa.time64("ns"), [7], "m8[ns]", [np.timedelta64(7, "ns")]),
    (pa.duration("s"), [7], "m8[s]", [np.timedelta64(7, "s")]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], str, ["a", "b", "a"]),
    (pa.dictionary(pa.int8(), pa.int32()), [5, 6, 5], np.int32, [5, 6, 5]),
    (pa.run_end_encoded(pa.int32(), pa.int64()), [5, 5, 6], np.int64, [5, 5, 6]),
]
VALUES += [(STRING_VIEW, ["a"], str, ["a"])] * bool(STRING_VIEW)
VALUES += [(BINARY_VIEW, [b"a\0"], bytes, [b"a\0"])] * bool(BINARY_VIEW)


@pytest.mark.parametrize(("kind", "given", "dtype", "expected"), VALUES, ids=lambda x: str(x)[:30])
def test_other_values(kind: Any, given: list[Any], dtype: Any, expected: list[Any]) -> None:
    ended = pa.types.is_run_end_encoded(kind)
    array = pc.run_end_encode(pa.array(given)) if ended else pa.array(given, kind)

    values, bad = made(array)

    assert list(values) == expected
    assert not bad
    assert not values.flags.writeable
    key = leaf_key(values[0])
    assert key == dtype if isinstance(key, type) else key[0] == np.dtype(dtype)


def test_lists_are_arrays_a_row() -> None:
    values, _ = made(pa.array([[9], [1, 2], [], [3]], pa.list_(pa.int16()))[1:])

    assert [row.tolist() for row in values] == [[1, 2], [], [3]]
    assert all(row.dtype == np.int16 for row in values)


@pytest.mark.parametrize("kind", [pa.large_list(pa.string()), *filter(None, [LIST_VIEW])], ids=str)
def test_lists_of_text(kind: Any) -> None:
    values, _ = made(pa.array([["a", "b"], []], kind))

    assert [row.tolist() for row in values] == [["a", "b"], []]


def test_lists_of_lists_are_arrays_where_they_can_be() -> None:
    values, bad = made(
        pa.array([[[1, 2], [3, 4]], [], [[1], [2, 3]]], pa.list_(pa.list_(pa.int8())))
    )

    assert values[0].tolist() == [[1, 2], [3, 4]]
    assert (values[1].shape, values[1].dtype) == ((0, 0), np.int8)
    assert list(bad) == [2]
    assert "several lengths" in bad[2]


def test_lists_of_fixed_size_are_one_array_without_a_copy() -> None:
    inner = pa.array(np.arange(24, dtype=np.float32))
    array = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(inner, 3), 2)

    values, _ = made(array[1:])

    assert values.shape == (3, 2, 3)
    assert values[0, 0].tolist() == [6, 7, 8]
    assert np.shares_memory(values, inner.to_numpy())


def test_structs_are_dicts_whose_nulls_go_down() -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.struct([("z", pa.int64())]))])
    array = pa.array([{"x": 0.5, "y": {"z": 1}}, None, {"x": 1.5, "y": None}], kind)

    values, bad = made(array, {"c.y.z": -1})

    assert not bad
    np.testing.assert_array_equal(values["x"], [0.5, np.nan, 1.5])
    assert values["y"]["z"].tolist() == [1, -1, -1]


@pytest.mark.parametrize("order", [None, [1, 0]])
def test_tensors_of_a_shape(order: list[int] | None) -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=order)
    array = pa.ExtensionArray.from_storage(kind, pa.array([list(range(6))] * 2, kind.storage_type))

    values, _ = made(array)

    assert values.tolist() == [np.arange(6).reshape(2, 3).transpose(order or [0, 1]).tolist()] * 2


class Identifier(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A type that only its program knows."""

    def __init__(self) -> None:
        super().__init__(pa.binary(16), "tests.identifier")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_other_extensions_are_their_storage() -> None:
    array = pa.ExtensionArray.from_storage(
        Identifier(), pa.array([b"0123456789abcdef"], pa.binary(16))
    )

    assert made(array)[0].tolist() == [b"0123456789abcdef"]


UNFIT = [
    pa.map_(pa.string(), pa.int64()),
    pa.sparse_union([pa.field("a", pa.int8())]),
    pa.month_day_nano_interval(),
    pa.list_(pa.struct([("x", pa.int8())])),
    pa.struct([("x", pa.map_(pa.string(), pa.int64()))]),
]


@pytest.mark.parametrize("kind", UNFIT, ids=str)
def test_what_numpy_has_not_is_told_with_the_column(kind: Any) -> None:
    with pytest.raises(SpecError, match=r"column 'c(\.x)?'.*columns=\[\.\.\.\]"):
        check_type(kind, "c")


def test_decimals_are_told_how_to_be_floats() -> None:
    with pytest.raises(SpecError, match=r"schema=\{'c': 'float64'\}"):
        check_type(pa.array([Decimal("1.5")]).type, "c")


def test_nulls_of_floats_and_times_stand_for_themselves() -> None:
    floats, none = made(pa.array([1.5, None], pa.float32()))
    times, no_more = made(pa.array([1, None], pa.timestamp("s")))
    spans, nor_here = made(pa.array([1, None], pa.time32("s")))

    assert np.isnan(floats[1])
    assert floats.dtype == np.float32
    assert np.isnat(times[1])
    assert np.isnat(spans[1])
    assert not none
    assert not no_more
    assert not nor_here


REFUSED = [
    pa.array([1, None], pa.int64()),
    pa.array([True, None]),
    pa.array(["a", None]),
    pa.array([b"a", None], pa.binary(1)),
    pa.array(["a", None]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
    pa.array([[1.0], None]),
    pa.array([[1.0], None], pa.list_(pa.float64(), 1)),
    pa.array([[1], [None]]),
    pa.array([[1], [None]], pa.list_(pa.int64(), 1)),
    pa.nulls(2),
]


@pytest.mark.parametrize("array", REFUSED, ids=lambda x: str(x.type))
def test_any_other_null_is_its_rows_error(array: Any) -> None:
    _, bad = made(array)

    assert list(bad) == ([0, 1] if array.type == pa.null() else [1])
    assert "column 'c'" in bad[1]
    assert "is null" in bad[1]


DEFAULTS: list[tuple[Any, Any]] = [
    (pa.array([1, None], pa.int8()), -1),
    (pa.array([1.0, None]), 0.0),
    (pa.array([True, None]), False),
    (pa.array(["a", None]), "none"),
    (pa.array([b"a", None]), b""),
    (pa.array(["a", None]).dictionary_encode(), "none"),
    (pa.array([1, None], pa.timestamp("s")), np.datetime64(9, "s")),
    (pa.nulls(2), 7),
]
DEFAULTS += [(pa.array(["a", None], STRING_VIEW), "none")] * bool(STRING_VIEW)


@pytest.mark.parametrize(("array", "default"), DEFAULTS, ids=lambda x: str(getattr(x, "type", "")))
def test_a_default_stands_for_nulls(array: Any, default: Any) -> None:
    values, bad = made(array, {"c": default})

    assert not bad
    assert values[1] == default
    assert values.dtype == made(array)[0].dtype or array.type == pa.null()
    assert array.type == pa.null() or values[0] != default


def test_defaults_of_lists() -> None:
    lists, _ = made(pa.array([[1], None]), {"c": [7, 8]})
    fixed, _ = made(pa.array([[1, 2], None], pa.list_(pa.int16(), 2)), {"c": np.zeros(2)})

    assert lists[1].tolist() == [7, 8]
    assert lists[1].dtype == np.int64
    assert fixed.tolist() == [[1, 2], [0, 0]]
    assert fixed.dtype == np.int16


@pytest.mark.parametrize(
    ("kind", "default"),
    [(pa.int8(), 300), (pa.int8(), 1.5), (pa.int64(), "x"), (pa.list_(pa.int8(), 2), [1])],
    ids=str,
)
def test_a_default_that_does_not_fit_is_told(kind: Any, default: Any) -> None:
    with pytest.raises(SpecError, match=r"defaults\['c'\] = .* is not a "):
        default_of(kind, "c", default)


def test_text_that_is_not_utf8_is_its_rows_error() -> None:
    offsets, data = pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")
    array = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])

    values, bad = made(array)

    assert values[0] == "a"
    assert list(bad) == [1]
    assert "UTF-8" in bad[1]
