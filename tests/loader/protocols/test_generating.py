"""A yielded number is in its signature's dtype the number that it was, or its element's error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError
from tundish.loader.protocols.generating import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE = [np.dtype(c) for c in "?bhiqBHIQ"]
NUMBERS = [*WHOLE, *map(np.dtype, "efdFD")]


def edges(dtype: np.dtype) -> list[Any]:
    """Numbers at the ends of a dtype, and around those of others."""
    if dtype.kind == "b":
        return [np.False_, np.True_]
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        places = {0, 1, -1, 127, 128, 255, -129, 2**24 + 1, 2**53 + 1, bounds.min, bounds.max}
        return [dtype.type(n) for n in sorted(places) if bounds.min <= n <= bounds.max]
    most = np.finfo(dtype).max
    return [dtype.type(x) for x in (0, 1, 0.5, -3, most, -most, np.inf, np.nan)]


def fitted(value: Any, dtype: np.dtype) -> Any:
    try:
        return fit(value, td.ArraySpec(None, dtype))
    except SpecError:
        return None


def keeps(value: Any, found: Any) -> bool:
    """Return True if a number is another one's value, as far as a float's precision goes."""
    if isinstance(value, (np.bool_, np.integer)):
        if isinstance(found, np.complexfloating):
            found = found.real
        return bool(np.isfinite(found)) and int(found) == int(value)
    if np.isnan(value):
        return bool(np.isnan(found))
    return bool(np.isfinite(found)) == bool(np.isfinite(value))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("have", NUMBERS, ids=str)
def test_no_number_becomes_another(have: np.dtype, dtype: np.dtype) -> None:
    for value in edges(have):
        found = fitted(value, dtype)
        alike = fitted(np.array([value, value]), dtype)
        assert (found is None) == (alike is None)
        if found is None:
            continue
        assert found.dtype == alike.dtype == dtype
        assert keeps(value, found), (value, found)
        assert keeps(value, alike[1]), (value, alike)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("have", WHOLE, ids=str)
def test_an_int_that_fits_is_taken(have: np.dtype, dtype: np.dtype) -> None:
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in edges(have):
        assert (fitted(value, dtype) is not None) == (least <= int(value) <= most)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-1, np.uint64),
        (2**63, np.int64),
        (2**64, np.uint64),
        ([-1], np.uint64),
        ([2**63, -1], np.uint64),
        (1 + 2j, np.float32),
        (1e300, np.float32),
        ([1.0, 1e300], np.complex64),
        (np.ma.array([1, 2], mask=[False, True]), np.int64),
        ([np.ma.array([1, 2], mask=[False, True])], np.int64),
        (1.0, np.bool_),
    ],
)
def test_what_does_not_fit_is_its_element_s_error(value: Any, dtype: Any) -> None:
    ds = td.Dataset.from_generator(
        lambda: [value, value], output_signature=td.ArraySpec(None, dtype)
    )
    with ds.iterator() as it:
        for _ in range(2):
            with pytest.raises(SpecError, match="the generator's element"):
                next(it)


def test_uint64_has_ints_that_a_list_alone_may_not_have() -> None:
    assert fit([2**63, 1], td.ArraySpec((2,), np.uint64)).tolist() == [2**63, 1]
    assert int(fit(2**64 - 1, td.ArraySpec((), np.uint64))) == 2**64 - 1


def test_a_float_is_rounded() -> None:
    assert fit([0.1], td.ArraySpec((1,), np.float32)).tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_that_is_yielded_is_an_element(workers: int) -> None:
    def answers() -> Iterator[Any]:
        yield ValueError("no")
        yield "text"
        yield SpecError("nor this")

    ds = td.Dataset.from_generator(answers).shuffle(3, seed=1)
    with ds.iterator(workers=workers) as it:
        first = next(it)
        state = it.state_dict()
        rest = list(it)
    with ds.iterator(workers=workers) as it:
        it.load_state_dict(state)
        again = list(it)

    assert sorted(map(repr, [first, *rest])) == [
        "'text'",
        "SpecError('nor this')",
        "ValueError('no')",
    ]
    assert list(map(repr, again)) == list(map(repr, rest))
