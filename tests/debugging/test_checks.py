"""Checks: the values they accept, and the words of their errors."""

from __future__ import annotations

import pickle
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import tundish as td
from tundish.debugging import (
    Assert,
    assert_equal,
    assert_greater,
    assert_integer,
    assert_less,
    assert_near,
    assert_none_equal,
    assert_positive,
    assert_proper_iterable,
    assert_rank,
    assert_rank_in,
    assert_scalar,
    assert_shapes,
    assert_type,
    check_numerics,
)
from tundish.errors import CheckError, CheckTypeError

X = np.arange(24).reshape(2, 3, 4)
WRONG: Any = 1.5
RAGGED = td.Ragged(np.array([1, -2, 3]), np.array([0, 2, 3]))
SPARSE = td.Sparse(np.array([[0, 2], [2, 0]]), np.array([1, -2]), np.array([3, 4]))


def said(check: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The lines of a failed check's error, which survives pickling."""
    with pytest.raises(CheckError) as caught:
        check(*args, **kwargs)
    again = pickle.loads(pickle.dumps(caught.value))

    assert isinstance(again, AssertionError)
    assert isinstance(again, ValueError)
    assert (str(again), vars(again)) == (str(caught.value), vars(caught.value))
    return str(again).splitlines()


def test_the_first_bad_entries_are_shown_with_their_indices() -> None:
    assert said(assert_less, X, 10) == [
        "x < 10 does not hold for 14 of 24 entries",
        "  x: int64 (2, 3, 4)",
        "  at [0, 2, 2]: 10",
        "  at [0, 2, 3]: 11",
        "  at [1, 0, 0]: 12",
        "  and 11 more",
    ]


def test_both_sides_are_shown_as_they_are_broadcast() -> None:
    assert said(assert_less, np.array([[1], [2]], "f4"), np.array([2, 2], "f4"), "rows.") == [
        "rows: x < y does not hold for 2 of 4 entries",
        "  x: float32 (2, 1), y: float32 (2,)",
        "  at [1, 0]: 2.0, 2.0",
        "  at [1, 1]: 2.0, 2.0",
    ]


@pytest.mark.parametrize(("summarize", "shown"), [(0, 0), (1, 1), (None, 3), (-1, 14), (99, 14)])
def test_summarize_is_how_many_entries_are_shown(summarize: int | None, shown: int) -> None:
    lines = said(assert_less, X, 10, summarize=summarize)

    assert len([line for line in lines if line.startswith("  at")]) == shown
    assert any("more" in line for line in lines) == (0 < shown < 14)


def test_a_scalar_is_shown_in_its_line() -> None:
    assert said(assert_positive, -3) == ["x > 0 does not hold", "  x: -3, int"]
    assert said(assert_positive, np.float32(-3)) == ["x > 0 does not hold", "  x: -3.0, float32 ()"]


def test_every_leaf_of_a_nest_is_checked_and_named() -> None:
    nest = {"a": X, "b": ({"c": -1},), 3: RAGGED}

    assert assert_less(nest, 99) is nest
    assert said(assert_positive, {"b": ({"c": -1},)})[0] == "x['b'][0]['c'] > 0 does not hold"
    assert said(assert_positive, {3: RAGGED})[1:] == [
        "  x[3]: Ragged int64, its values (3,)",
        "  at [1]: -2",
    ]
    assert said(check_numerics, {"b": (1, np.float16("nan"))})[0] == (
        "x['b'][1] has 1 nan, 0 inf, 0 -inf of 1"
    )


def test_one_value_is_compared_with_every_leaf() -> None:
    assert said(assert_less, {"a": X, "b": X + 1}, np.array(24)) == [
        "x['b'] < y does not hold for 1 of 24 entries",
        "  x['b']: int64 (2, 3, 4), y: int64 ()",
        "  at [1, 2, 3]: 24, 24",
    ]


def test_outside_of_a_nest_a_tuple_is_an_array() -> None:
    assert assert_rank((1, 2), 1) == (1, 2)
    assert said(assert_rank, {"a": (1, 2)}, 1)[0].startswith(
        "x['a'][0] must have rank 1, not rank 0"
    )


def test_texts_are_equal_to_their_bytes() -> None:
    names = np.array(["a", "ö"], object)

    assert assert_equal(names, np.array([b"a", b"\xc3\xb6"], object)) is names
    assert assert_equal(np.array(["a", "b"]), ["a", "b"]) is not None
    assert said(assert_equal, ["a", "b"], ["a", "c"])[1:] == [
        "  x: str (2,), y: str (2,)",
        "  at [1]: 'b', 'c'",
    ]
    assert said(assert_equal, [b"a\0"], b"a")[0] == "x == b'a' does not hold for 1 of 1 entry"


def test_times_are_compared() -> None:
    days = np.array(["2020-01-01", "NaT"], "M8[D]")

    assert assert_positive(np.array([3], "m8[s]")).size == 1
    assert said(assert_less, days, np.datetime64("2021-01-01"))[2] == "  at [1]: NaT, 2021-01-01"


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ({"name": "cat"}, 0, r"x\['name'\] and 0 cannot be compared: only one of them is a text"),
        (1, "a", "x and 'a' cannot be compared"),
        ({"a": None}, 0, r"x\['a'\] is of type NoneType, which has no entries"),
        (object(), 0, "x is of type object"),
        ([[1], [2, 3]], 0, "x is ragged"),
        (np.array([1j]), 0, "complex numbers have no order: x > 0"),
        (np.array(["2020"], "M8[D]"), 0, r"x > 0 cannot be asked: x is datetime64\[D\] \(1,\)"),
    ],
    ids=["text", "number", "none", "object", "ragged", "complex", "time"],
)
def test_what_cannot_be_compared_is_a_type_error(x: Any, y: Any, words: str) -> None:
    with pytest.raises(CheckTypeError, match=words):
        td.debugging.assert_greater(x, y)


@pytest.mark.parametrize("size", [2, 300_000])
def test_masked_entries_are_refused_at_any_size(size: int) -> None:
    """NumPy would ignore masked entries in small arrays and compare them in large ones."""
    x = np.ma.masked_array(np.ones(size), np.arange(size) == 1)
    for check in (assert_positive, check_numerics):
        assert "x['m'] has masked entries" in said(check, {"m": x})[0]
    assert "y has masked entries" in said(assert_equal, x.data, x)[0]
    assert assert_positive(np.ma.masked_array(x.data)) is not None


def test_shapes_that_do_not_broadcast_are_named() -> None:
    assert said(assert_less, np.zeros(3), np.zeros((2, 2)), "m") == [
        "m: x < y cannot be asked: the shapes do not broadcast: x (3,) and y (2, 2)"
    ]


def test_a_value_equals_itself_though_it_holds_nan() -> None:
    x = np.array([np.nan])

    assert assert_equal(x, x) is x
    assert said(assert_equal, x, x.copy())
    assert said(assert_none_equal, np.array([1]), 1)


def test_python_numbers_take_the_dtype_of_the_other_side() -> None:
    x = np.array([0.1, 0.1], "f4")

    for y in (0.1, [0.1, 0.1], (0.1,)):
        assert assert_equal(x, y) is x
        assert assert_equal(y, x) is y
    assert said(assert_equal, x, np.array(0.1))


def test_near_says_its_tolerances() -> None:
    assert said(assert_near, np.array([1, 2], "f4"), [1, 2.5], message="m") == [
        "m: abs(x - y) < 1.19e-06 + 1.19e-06 * abs(y) does not hold for 1 of 2 entries",
        "  x: float32 (2,), y: float64 (2,)",
        "  at [1]: 2.0, 2.5",
    ]
    tolerances = np.array([1.0, 0.1])
    assert "< atol + 0 * abs(y)" in said(assert_near, np.ones(2), 2 * np.ones(2), 0, tolerances)[0]
    with pytest.raises(
        CheckTypeError, match=r"x must be of a float dtype .* not int64; use assert_equal"
    ):
        assert_near(X, X)


@pytest.mark.parametrize(
    ("dtype", "eps"),
    [("f2", 2**-10), ("f4", 2**-23), ("f8", 2**-52), (ml_dtypes.bfloat16, 2**-7)],
    ids=str,
)
def test_near_is_ten_epsilons_and_ten_of_the_value(dtype: Any, eps: float) -> None:
    one = np.ones(1, np.dtype(dtype))
    below, above = ((one.astype("f8") + times * eps).astype(one.dtype) for times in (19, 21))

    assert assert_near(below, one) is below
    assert said(assert_near, above, one)
    assert said(assert_near, one, one, 0, 0)


def test_near_takes_y_in_the_dtype_of_x() -> None:
    x = np.array([0.1], "f2")

    assert assert_near(x, np.array([0.1]), rtol=0, atol=1e-7) is x


def test_a_nest_is_near_a_nest() -> None:
    assert assert_near({"a": 1.0, "b": (2, 3.0)}, {"a": 1.0, "b": (2.0, 3)})
    assert said(assert_near, {"b": (2.5, 3.0)}, {"b": (2.0, 3.0)})[1:] == [
        "  x['b'][0]: 2.5, float",
        "  y['b'][0]: 2.0, float",
    ]


def test_numerics_counts_what_it_finds() -> None:
    x = np.array([[1, np.nan, np.inf], [-np.inf, -np.inf, np.nan]], np.float32)

    assert said(check_numerics, x, "after log") == [
        "after log: x has 2 nan, 1 inf, 2 -inf of 6",
        "  x: float32 (2, 3)",
        "  at [0, 1]: nan",
        "  at [0, 2]: inf",
        "  at [1, 0]: -inf",
    ]


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", "f8", ">f8", "c8", "c16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn],
    ids=str,
)
def test_numerics_knows_every_float(dtype: Any) -> None:
    x = np.ones((2, 5), np.dtype(dtype))
    x[1, 3] = np.nan

    assert said(check_numerics, x)[2] == f"  at [1, 3]: {x[1, 3]}"
    assert said(check_numerics, x.T)[2].startswith("  at [3, 1]")
    assert check_numerics(x[0]).shape == (5,)


def test_numerics_looks_into_the_fields_of_structures() -> None:
    inner = np.dtype([("x", "c8", (2,)), ("name", "U4")])
    records = np.zeros((2, 2), [("id", "i4"), ("inner", inner), ("y", "f4")])
    assert check_numerics(records) is records
    records["inner"]["x"][1, 0, 1] = np.nan
    records["y"][1, 1] = -np.inf
    assert said(check_numerics, records)[0] == "x has 1 nan, 0 inf, 1 -inf of 12"
    with pytest.raises(CheckError) as caught:
        check_numerics({"r": records})
    assert caught.value.indices == ((1, 0), (1, 1))
    assert "1 nan" in said(check_numerics, records[1, 0])[0]


def test_numerics_passes_what_holds_no_nan() -> None:
    for value in (3, "nan", None, np.arange(3), [1, 2], np.array(["a"]), object()):
        assert check_numerics(value) is value


def test_ranks_of_ragged_and_sparse_are_those_of_what_they_stand_for() -> None:
    assert assert_rank(RAGGED, 2) is RAGGED
    assert assert_rank_in(SPARSE, [2]) is SPARSE
    assert said(assert_scalar, {"r": RAGGED}) == [
        "x['r'] must have rank 0, as a scalar has, not rank 2; its shape is (2, ragged)"
    ]


@pytest.mark.parametrize("check", [assert_equal, assert_near, assert_none_equal])
def test_ragged_and_sparse_values_are_compared_where_their_entries_stand(check: Any) -> None:
    """[[1, -2], [3]] is not [[1], [-2, 3]], though the values are equal."""
    ragged = td.Ragged(np.array([1.0, -2, 3]), RAGGED.row_splits)
    shorter = td.Ragged(ragged.values + 1, np.array([0, 1, 3]))
    once = np.array([0, 2])
    deep, other = (td.Ragged(inner, once) for inner in cast("Any", (ragged, shorter)))
    sparse = td.Sparse(SPARSE.indices, SPARSE.values * 1.0, SPARSE.dense_shape)
    moved = td.Sparse(SPARSE.indices[::-1], SPARSE.values + 1.0, SPARSE.dense_shape)
    for x, y, words in (
        (ragged, shorter, "row 0 has 2 entries and 1"),
        (deep, other, "row 0 has 2 entries and 1"),
        (ragged, td.Ragged(ragged.values, np.array([0, 1, 2, 3])), "there are 2 rows and 3"),
        (ragged, ragged.values + 1, "one is ragged or sparse and the other is not so"),
        (ragged, deep, "there are 2 rows and 1"),
        (ragged, sparse, "one is ragged or sparse and the other is not so"),
        (sparse, moved, "the indices or shapes differ"),
        (sparse, sparse.to_dense() + 1, "one is ragged or sparse and the other is not so"),
    ):
        told = said(check, {"r": x}, {"r": y})[0]
        assert "cannot be asked" in told
        assert words in told


def test_ragged_and_sparse_values_are_compared_with_their_like() -> None:
    same = td.Ragged(RAGGED.values.copy(), RAGGED.row_splits.copy())
    assert assert_equal(same, RAGGED) is same
    assert assert_greater(same, np.int64(-5)) is same
    assert assert_equal({"s": SPARSE}, {"s": td.Sparse(*map(np.copy, SPARSE))})["s"] is SPARSE
    assert said(assert_less, same, RAGGED)[0] == "x < y does not hold for 3 of 3 entries"


def test_ragged_rows_have_sizes() -> None:
    even = td.Ragged(np.arange(4), np.array([0, 2, 4]))
    inner: Any = even
    deep = td.Ragged(inner, np.array([0, 1, 2]))

    assert_shapes([(RAGGED, ("N", "T")), (td.Ragged(np.zeros(3), RAGGED.row_splits), ("N", "T"))])
    assert_shapes([(even, ("N", 2)), (np.zeros((2, 2)), ("N", "N")), (deep, (2, 1, 2))])
    assert said(assert_shapes, [(RAGGED, ("N", "T")), (np.zeros((2, 2)), ("N", "T"))]) == [
        "dimension 1 (T) of shapes[1] is 2, not ragged, 1 to 2 as dimension 1 of shapes[0]",
        "  shapes[0]: Ragged int64, its values (3,), wanted ('N', 'T')",
        "  shapes[1]: float64 (2, 2), wanted ('N', 'T')",
    ]
    one = td.Ragged(np.arange(2), np.array([0, 2]))
    for other in (RAGGED, one):  # two rows of other lengths, one row
        assert said(assert_shapes, [(even, (None, "T")), (other, (None, "T"))])


def test_dots_are_any_dimensions() -> None:
    for dots in (..., "...", "*"):
        assert_shapes([(X, (dots,)), (3, (dots,)), (X, (dots, "N", 4)), (X[0], (dots, "N", 4))])
        assert said(assert_shapes, [(X, (dots, "N", "N"))])
        assert said(assert_shapes, [(X, (dots, 1, 2, 3, 4))])


def test_shapes_show_the_data_that_is_given() -> None:
    assert said(assert_shapes, [(X, (2,))], data=["step", 3], message="m") == [
        "m: shapes[0] must have rank 1, not 3",
        "  step",
        "  3",
    ]


def test_dtypes_of_texts() -> None:
    names = np.array(["a", "b"], object)

    assert assert_type(names, str) is names
    assert assert_type(np.array(["a"]), str) is not None
    assert said(assert_type, {"a": "x"}, bytes) == ["x['a'] must be bytes, not str"]
    assert said(assert_type, np.array(["a", b"b"], object), str) == ["x must be str, not object"]
    assert said(assert_integer, "a", "m") == ["m: x must be of an integer dtype, not str"]
    with pytest.raises(TypeError, match="tf_type must be a dtype, not None"):
        assert_type(1.0, None)


def test_narrow_integers_are_integers() -> None:
    x = np.zeros(2, ml_dtypes.int4)

    assert assert_integer(x) is x
    assert td.debugging.is_numeric_tensor(x)


def test_an_array_is_no_proper_iterable() -> None:
    for value in (X, RAGGED, SPARSE, "ab", b"ab", 3):
        assert "values must be an iterable" in said(assert_proper_iterable, value)[0]


def test_a_condition_shows_its_data() -> None:
    assert said(Assert, False, [X, "abc", RAGGED, 1.5], 2) == [
        "the condition is false",
        "  data[0]: int64 (2, 3, 4): 0, 1, ...",
        "  data[1]: 'abc'",
        "  data[2]: Ragged int64, its values (3,): 1, -2, ...",
        "  data[3]: 1.5",
    ]
    with pytest.raises(ValueError, match=r"condition must be one bool, .* \(2,\); say which"):
        Assert(np.array([True, False]), [])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: assert_positive(1, WRONG), "message must be a str, not float"),
        (lambda: assert_positive(1, summarize=WRONG), "summarize must be an int, not 1.5"),
        (lambda: assert_positive(1, summarize=True), "summarize must be an int"),
        (lambda: assert_rank(1, "1"), "a rank must be an int, not '1'"),
        (lambda: assert_less({"a": 1}, {"b": 1}), r"only one of them has \['a'\], \['b'\]"),
    ],
    ids=["message", "summarize", "bool", "rank", "nests"],
)
def test_wrong_arguments_are_no_failed_checks(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        call()

    assert not isinstance(caught.value, CheckError)


def test_no_warning_and_no_change_of_what_is_checked() -> None:
    x = np.array([np.nan, 1, -np.inf, 3e38], np.float32)
    x.flags.writeable = False
    for check in (check_numerics, assert_positive):
        said(check, x)
        said(check, x.astype(ml_dtypes.bfloat16))
    said(assert_near, x, -x)
