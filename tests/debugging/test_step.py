"""Checks as steps of a pipeline: they pass elements on, in the consumer and in workers."""

from __future__ import annotations

import functools
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.debugging.steps import pair, pictures

import tundish as td
from tundish.debugging import (
    assert_equal,
    assert_integer,
    assert_less,
    assert_non_negative,
    assert_positive,
    assert_rank,
    assert_same_float_dtype,
    assert_shapes,
    check_numerics,
    checked,
)
from tundish.errors import CheckError, CheckTypeError
from tundish.snapshot.fingerprint.describer import Describer


class Box(NamedTuple):
    left: Any
    right: Any


def seen(ds: td.Dataset, workers: int) -> list[Any]:
    """The elements, and in their places what was raised."""
    found: list[Any] = []
    with ds.with_options(td.Options(workers=workers)).iterator(iteration=0) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                return found
            except CheckError as error:
                found.append(error)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failed_check_stands_at_its_place(workers: int) -> None:
    step = checked(assert_non_negative, message="pixels", key="image")
    found = seen(td.Dataset.range(6).map(pictures).map(step), workers)
    error = found[3]

    assert [x["label"] for k, x in enumerate(found) if k != 3] == [0, 1, 2, 4, 5]
    assert type(error) is CheckError
    assert error.path == "['image']"
    assert error.indices == ((1, 2, 0), (3, 3, 1))
    assert str(error).splitlines() == [
        "pixels: x['image'] >= 0 does not hold for 2 of 48 entries",
        "  x['image']: float32 (4, 4, 3)",
        "  at [1, 2, 0]: nan",
        "  at [3, 3, 1]: -0.25",
    ]
    assert "element 3" in error.__notes__[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_checks_are_mapped_as_they_are(workers: int) -> None:
    ds = td.Dataset.range(6).map(pictures).map(check_numerics)
    found = seen(ds, workers)

    assert [type(x) for x in found] == [dict] * 3 + [CheckError] + [dict] * 2
    assert str(found[3]).startswith("x['image'] has 1 nan, 0 inf, 0 -inf of 48\n")


@pytest.mark.parametrize("workers", [0, 2])
def test_arguments_may_be_held_by_a_partial_and_errors_left_out(workers: int) -> None:
    ds = td.Dataset.range(6).map(functools.partial(assert_less, y=4), on_error="skip")

    assert [int(x) for x in seen(ds, workers)] == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_dtype_is_one_of_a_type_too(workers: int) -> None:
    found = seen(td.Dataset.range(1).map(float).map(assert_integer), workers)

    assert type(found[0]) is CheckTypeError
    assert isinstance(found[0], TypeError)
    assert str(found[0]) == "x must be of an integer dtype, not float64"


def test_workers_do_not_show_and_it_resumes_anywhere() -> None:
    ds = td.Dataset.range(6).map(pictures)
    ds = ds.map(checked(check_numerics, key="image")).map(checked(assert_less, 5, key="label"))

    td.testing.assert_workers_do_not_show(ds, (0, 2))
    td.testing.assert_resumes_anywhere(ds, (0,))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tuple_is_checked_and_passed_on_whole(workers: int) -> None:
    ds = td.Dataset.range(3).map(pair).map(checked(assert_non_negative, key=0))
    found = seen(ds, workers)

    assert [(x.tolist(), y) for x, y in found] == [
        ([k, k + 1, k + 2], f"label {k}") for k in range(3)
    ]


def test_a_tuple_without_checked_is_refused() -> None:
    ds = td.Dataset.range(3).map(lambda x: (x, x)).map(assert_positive)

    with pytest.raises(TypeError, match=r"message must be a str, not int64; map gives .*checked"):
        list(ds)


def test_what_is_given_is_what_comes_back() -> None:
    element = pictures(0)
    plain = checked(check_numerics)
    named = checked(assert_rank, rank=3, key="image")
    shaped = checked(assert_shapes, {"image": (4, 4, 3)})
    typed = checked(assert_same_float_dtype, key="image")

    for step in (plain, named, shaped, typed):
        assert step(element) is element
    assert checked(assert_positive)([1, 2], 3) == ([1, 2], 3)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("label", "['label']"),
        (("views", 1, "name"), "['views'][1]['name']"),
        (("views", 0), "['views'][0]"),
        (("box", "right"), "['box']['right']"),
    ],
)
def test_a_key_leads_to_a_part(key: Any, path: str) -> None:
    element = pictures(1) | {"box": Box(1, 2)}

    with pytest.raises(CheckError) as caught:
        checked(assert_rank, 7, key=key)(element)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"x{path} must have rank 7")


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [
        ("no", KeyError, "'no' of key='no' is not in a dict of"),
        (("views", 2), IndexError, "2 of key=.* is not in a tuple of 2"),
        (("label", "a"), TypeError, "'a' of key=.* is not in a int"),
    ],
)
def test_a_key_that_leads_nowhere(key: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        checked(assert_positive, key=key)(pictures(1))


def test_a_nest_is_compared_with_a_nest() -> None:
    bounds = {"a": 3, "b": (10, np.array([5, 1]))}
    element = {"a": np.array([1, 2]), "b": (4, np.array([4, 1]))}
    step = checked(assert_less, bounds)

    with pytest.raises(CheckError) as caught:
        step(element)

    assert caught.value.path == "['b'][1]"
    assert str(caught.value).splitlines()[1:] == [
        "  x['b'][1]: int64 (2,), y['b'][1]: int64 (2,)",
        "  at [1]: 1, 1",
    ]
    with pytest.raises(TypeError, match=r"only one of them has \['c'\]"):
        step({**element, "c": 1})


def test_sizes_are_named_across_leaves() -> None:
    step = checked(
        assert_shapes, {"image": ("H", "W", 3), "views": (("W", 3), None)}, message="sizes"
    )
    wide = pictures(0) | {"image": np.zeros((4, 5, 3))}

    assert step(pictures(0))
    with pytest.raises(CheckError) as caught:
        step(wide)
    assert str(caught.value).splitlines() == [
        "sizes: dimension 0 (W) of x['views'][0] is 4, not 5 as dimension 1 of x['image']",
        "  x['image']: float64 (4, 5, 3), wanted ('H', 'W', 3)",
        "  x['views'][0]: float32 (4, 3), wanted ('W', 3)",
    ]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"other": (3,)}, "shapes has"),
        ([(3,)], "shapes has"),
        ({"views": ((4, 3),)}, r"x\['views'\] has 2 parts"),
        ({"image": (..., 3, ...)}, "may only come first"),
    ],
)
def test_shapes_that_are_of_another_element(shapes: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(assert_shapes, shapes)(pictures(0))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: checked(assert_less), "assert_less takes no such arguments: missing .*'y'"),
        (lambda: checked(assert_less, y=1, kez="a"), "unexpected keyword argument 'kez'"),
        (lambda: checked(assert_shapes), "missing .*'shapes'"),
        (lambda: checked(assert_shapes, {}, key="a"), "leave out key="),
        (lambda: checked(3), "check must be a function, not 3"),  # type: ignore[arg-type]
    ],
    ids=["no y", "misspelt", "no shapes", "shapes and key", "no function"],
)
def test_arguments_are_looked_at_when_it_is_made(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


def test_it_is_a_value() -> None:
    step = checked(assert_less, y=10, key="label")

    assert pickle.loads(pickle.dumps(step)) == step
    assert repr(step) == "checked(assert_less, y=10, key='label')"
    assert repr(checked(assert_equal, 1)) == "checked(assert_equal, 1)"
    assert Describer().describe(step) == Describer().describe(
        checked(assert_less, y=10, key="label")
    )
    assert Describer().describe(step) != Describer().describe(
        checked(assert_less, y=11, key="label")
    )
    assert "map(function=checked(assert_less))" in repr(td.Dataset.range(3).map(step))
