"""Functions that take `rng` and operators that pass one are compared when the pipeline is built."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tundish as td

RANGE = td.Dataset.range(4)
OPAQUE = RANGE.map(lambda x: (x, np.random.default_rng(int(x))))


class Augment:
    def __call__(self, x: Any, rng: Any) -> Any:
        return x + rng.integers(9)


def augment(x: Any, rng: Any) -> Any:
    return x + rng.integers(9)


def only_named(x: Any, *, rng: Any) -> Any:
    return augment(x, rng)


def optional(x: Any, rng: Any = None) -> Any:
    return x if rng is None else augment(x, rng)


def keywords(x: Any, **given: Any) -> Any:
    return x + len(given)


def plain(x: Any) -> Any:
    return x


def positional(x: Any, rng: Any, /) -> Any:
    return x


@functools.wraps(augment)
def supplied(x: Any) -> Any:
    return augment(x, np.random.default_rng(0))


NEEDS = [augment, only_named, Augment(), Augment().__call__, lambda x, rng: x]
CANNOT = [plain, positional, functools.partial(augment, 1, 2), len, lambda *x: x[0], int.bit_count]
EITHER = [optional, keywords, functools.partial(augment, rng=np.random.default_rng(1))]


@pytest.mark.parametrize("function", NEEDS)
def test_a_function_that_needs_rng_needs_a_seed(function: Any) -> None:
    with pytest.raises(TypeError, match=r"map_func .*rng\) needs rng; only seed= passes one"):
        RANGE.map(function)
    with pytest.raises(TypeError, match="needs rng"):
        RANGE.map_batches(function, 2)
    assert len(list(RANGE.map(function, seed=1))) == 4
    with pytest.raises(TypeError, match=r"predicate .*rng\) needs rng; only map passes one"):
        RANGE.filter(function)
    with pytest.raises(TypeError, match=r"map_func .*rng\) needs rng; only map passes one"):
        RANGE.flat_map(function)
    with pytest.raises(TypeError, match=r"map_func .*rng\) needs rng; only map passes one"):
        RANGE.interleave(function, 2)


@pytest.mark.parametrize("function", CANNOT)
def test_a_seed_needs_a_function_that_takes_rng(function: Any) -> None:
    with pytest.raises(TypeError, match=r"seed=1 passes a generator as rng=, and map_func .* none"):
        RANGE.map(function, seed=1)
    with pytest.raises(TypeError, match="give it a parameter rng, or leave out seed="):
        RANGE.map_batches(function, 2, seed=1)


@pytest.mark.parametrize("function", EITHER)
def test_what_may_take_rng_is_mapped_either_way(function: Any) -> None:
    assert len(list(RANGE.map(function))) == 4
    assert len(list(RANGE.map(function, seed=1))) == 4


def test_what_has_no_signature_and_what_is_decorated_is_not_judged() -> None:
    RANGE.map(np.dtype, seed=1)  # C code without a signature
    assert len(list(RANGE.map(supplied))) == 4


def test_a_component_may_be_called_rng() -> None:
    """The plan tells that there are two components, or tells nothing."""
    assert [int(x) for x in td.Dataset.zip((RANGE, RANGE)).map(lambda x, rng: rng)] == [0, 1, 2, 3]
    assert len(list(RANGE.map(lambda rng: rng))) == 4
    assert len(list(OPAQUE.map(augment))) == 4
    with pytest.raises(TypeError, match="needs rng"):
        td.Dataset.zip((RANGE, RANGE)).map(lambda x, y, rng: x)


@pytest.mark.parametrize("workers", [0, 1])
def test_where_the_plan_tells_nothing_the_element_does(workers: int) -> None:
    ds = RANGE.map(lambda x: {"x": x}).with_options(td.Options(workers=workers))
    with (
        iter(ds.map(augment)) as it,
        pytest.raises(TypeError, match=r"'rng'; only seed= passes one"),
    ):
        next(it)

    def calls(x: Any) -> Any:
        return augment(x)  # type: ignore[call-arg]  # a mistake within the function

    with iter(ds.map(calls)) as it, pytest.raises(TypeError, match=r"(?m)'rng'$"):
        next(it)
