"""Conditions over entries: what is decided in pieces is what numpy decides at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tundish import debugging
from tundish.debugging import deciding, numerics
from tundish.debugging.deciding import broken, first_of, holds, pieces
from tundish.debugging.numerics import all_finite

CONDITIONS = [
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
]
DTYPES = [
    np.dtype(name)
    for name in ("f2", "f4", "f8", ">f4", "g", "i1", "u2", "i8", "?", "M8[s]", "m8[s]")
] + [np.dtype(ml_dtypes.bfloat16)]
FLOATS = [dtype for dtype in DTYPES if dtype.kind in "fV"]
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda array: array,
    "transposed": lambda array: array.T,
    "every other": lambda array: array[::2],
    "backwards": lambda array: array[:, ::-1],
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few entries, so that small arrays are of many."""
    monkeypatch.setattr(deciding, "PIECE", 4)
    monkeypatch.setattr(numerics, "SMALL", 0)
    monkeypatch.setattr(numerics, "BYTES", 64)


def values(dtype: np.dtype, odd: int) -> np.ndarray:
    """Small numbers, and one that is odd at a place (nan, where there is one)."""
    array = (np.arange(30) % 3).reshape(5, 6).astype(dtype)
    if odd >= 0:
        array.reshape(-1)[odd] = np.nan if dtype.kind in "fV" else np.array(1).astype(dtype)
    return array


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_pieces_decide_as_the_whole_does(condition: Any) -> None:
    for dtype, odd, layout in product(DTYPES, (-1, 0, 17, 29), LAYOUTS.values()):
        x = layout(values(dtype, odd))
        row = x[:1].copy()
        one = np.array(2).astype(dtype)[()]
        with np.errstate(invalid="ignore"):
            for pair in ((x, x), (x, row), (row, x), (x, one), (one, x), (x, x.copy())):
                assert holds(condition, *pair) == bool(np.all(condition(*pair)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_numbers_are_compared_as_by_numpy(condition: Any) -> None:
    numbers = [0, 2, 300, -1, 2**70, 0.1, 2.5, float("nan"), float("inf"), True]
    for number, dtype in product(numbers, ("f4", "f8", "u1", "i8")):
        for array in (values(np.dtype(dtype), -1), np.full((5, 6), 0.1).astype(dtype)):
            assert holds(condition, array, number) == bool(np.all(condition(array, number)))
            assert holds(condition, number, array) == bool(np.all(condition(number, array)))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_of_no_entries_everything_holds(condition: Any) -> None:
    for first, second in [((0,), ()), ((0, 3), (1, 3)), ((2, 0), (2, 1))]:
        assert holds(condition, np.zeros(first), np.zeros(second))


@pytest.mark.usefixtures("small")
def test_shapes_that_do_not_broadcast_are_refused_when_large_too() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        holds(np.less, np.zeros((5, 6)), np.zeros(5))


@pytest.mark.usefixtures("small")
@given(st.lists(st.booleans(), max_size=24), st.sampled_from([None, 0, 1, 3]))
def test_first_entries_are_those_of_argwhere(flags: list[bool], most: int | None) -> None:
    flat = np.array(flags, bool)
    for mask in (flat, flat[: len(flat) // 2 * 2].reshape(-1, 2), np.array(bool(flags))):
        assert list(first_of(mask, most)) == [tuple(i) for i in np.argwhere(mask).tolist()][:most]


@pytest.mark.usefixtures("small")
def test_pieces_are_small_and_cover_everything() -> None:
    x = np.arange(30).reshape(5, 6)
    for array in (x, x.T, x[:, ::2]):
        parts = [part.copy() for (part,) in pieces(array)]

        assert sorted(np.concatenate(parts).tolist()) == sorted(array.reshape(-1).tolist())
        assert max(part.size for part in parts) <= 6  # a row, where rows do not follow each other


def test_broken_is_of_the_broadcast_shape() -> None:
    assert broken(np.less, np.zeros((2, 1)), np.array([0, 1])).tolist() == [[True, False]] * 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("c8"), np.dtype("c16")], ids=str)
def test_finite_is_numpys(dtype: np.dtype) -> None:
    largest = 3e4
    for place, layout in product((-1, 0, 11, 29), LAYOUTS.values()):
        for odd in (np.nan, np.inf, -np.inf, -np.nan, largest, -largest, 0.0, -0.0, 1e-7):
            whole = np.ones((5, 6), dtype)
            if place >= 0:
                whole.reshape(-1)[place] = odd
            array = layout(whole)
            assert all_finite(array) == bool(np.isfinite(array).all())
            if dtype.kind == "c" and place >= 0:
                whole.reshape(-1)[place] = complex(1, odd)
                assert all_finite(array) == bool(np.isfinite(array).all())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["f2", "f4", "f8"])
def test_the_largest_number_is_finite_and_its_neighbour_is_not(name: str) -> None:
    largest = np.full(9, np.finfo(name).max, name)

    assert all_finite(largest)
    assert all_finite(-largest)
    for sign in (1, -1):
        assert not all_finite(np.where(np.arange(9) == 8, sign * np.array(np.inf, name), largest))


@pytest.mark.usefixtures("small")
def test_every_half_and_bfloat16_is_judged_as_numpy_does() -> None:
    for dtype in (np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)):
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(-1, 32)
        with np.errstate(invalid="ignore"):
            finite_rows = np.isfinite(every).all(axis=1)

        assert [all_finite(row) for row in every] == finite_rows.tolist()


def test_what_has_no_nan_is_finite() -> None:
    for array in (np.arange(3), np.array([True]), np.array(["a"], object), np.array("nan")):
        assert all_finite(array)


def peak(function: Callable[[], object]) -> int:
    """The most bytes that a call holds at a time."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


CHECKS: dict[str, Callable[[np.ndarray], object]] = {
    "numerics": debugging.check_numerics,
    "numerics of a transposed one": lambda x: debugging.check_numerics(x.T),
    "with zero": debugging.assert_positive,
    "with another": lambda x: debugging.assert_equal(x, x.view()),
    "with a row": lambda x: debugging.assert_less(x, np.full(8, 2.0)),
    "near": lambda x: debugging.assert_near(x, x),
    "dtype": lambda x: debugging.assert_type(x, "float64"),
    "shape": lambda x: debugging.assert_shapes([(x, ("N", 8))]),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_check_that_holds_makes_no_copy(check: Callable[[np.ndarray], object]) -> None:
    array = np.ones((1 << 18, 8))  # 16 MiB

    assert peak(lambda: check(array)) < 6 << 20
