"""`enable_check_numerics`: the error at the element's place, with node, leaf, counts and function."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.laws import functions

import tundish as td
from tundish.debugging.checking import NumericsProbe
from tundish.debugging.functions import named, shortened
from tundish.debugging.numerics import Health, first_bad, health_of, is_finite, is_floating
from tundish.errors import NumericsError
from tundish.loader.protocols import probes

WORKERS = [0, pytest.param(2, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    """No probe stays for the next test."""
    yield
    td.debugging.disable_check_numerics()
    assert not probes.active()


@pytest.fixture
def on() -> None:
    """It is switched on."""
    td.debugging.enable_check_numerics()


def broken(x: Any) -> dict[str, Any]:
    """Element 3 has a nan and two infinities, element 5 one minus infinity."""
    values = np.full((2, 3), float(x), np.float32)
    if x == 3:
        values[0, 1], values[1, 0], values[1, 2] = np.nan, np.inf, np.inf
    if x == 5:
        values[1, 1] = -np.inf
    return {"ok": x, "x": values}


def outcomes(ds: td.Dataset, workers: int = 0) -> list[Any]:
    """Each element, or its error."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                return found
            except NumericsError as error:
                found.append(error)


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("workers", WORKERS)
def test_the_error_stands_at_the_elements_place_and_tells(workers: int) -> None:
    found = outcomes(td.Dataset.range(7).map(broken), workers)

    bad = {at: each for at, each in enumerate(found) if isinstance(each, NumericsError)}
    assert len(found) == 7
    assert list(bad) == [3, 5]
    error = bad[3]
    assert (error.node, error.path, error.dtype, error.shape) == (
        "map#1",
        "['x']",
        "float32",
        (2, 3),
    )
    assert (error.nan, error.pos_inf, error.neg_inf) == (1, 2, 0)
    assert error.indices == ((0, 1), (1, 0), (1, 2))
    assert error.function.startswith("broken (")
    assert error.function.endswith(f"test_checking.py:{broken.__code__.co_firstlineno})")
    assert error.__notes__[0].startswith("tundish: in map#1, element 3, ")
    assert str(error).splitlines()[:2] == [
        "map#1 gave values that are not finite",
        "  ['x'] is float32 (2, 3): 1 nan, 2 infinite; at [0, 1], [1, 0], [1, 2]",
    ]
    assert (bad[5].nan, bad[5].pos_inf, bad[5].neg_inf) == (0, 0, 1)


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("workers", WORKERS)
def test_it_is_told_of_the_node_that_gave_it_first(workers: int) -> None:
    ds = td.Dataset.range(7).map(broken).map(lambda e: e["x"]).filter(lambda _: True).batch(4)

    found = outcomes(ds, workers)

    errors = [each for each in found if isinstance(each, NumericsError)]
    assert [error.node for error in errors] == ["map#1", "map#1"]
    assert all(error.__notes__[0].startswith("tundish: in map#1, ") for error in errors)


@pytest.mark.usefixtures("on")
def test_a_source_is_looked_at() -> None:
    [good, error] = outcomes(td.Dataset.from_list([1.0, float("nan")]).map(np.nan_to_num))

    assert good == 1.0
    assert (error.node, error.function, error.indices) == ("from_list#0", "", ((),))


@pytest.mark.usefixtures("on")
def test_fields_of_structures_are_looked_at() -> None:
    records = np.array([(1, 2.0), (2, np.nan)], [("id", "i4"), ("x", "f4")])
    [good, error] = outcomes(td.Dataset.from_tensor_slices(records))

    assert good["id"] == 1
    assert (error.node, error.nan) == ("from_tensor_slices#0", 1)


@pytest.mark.usefixtures("on")
def test_an_inner_dataset_is_looked_at() -> None:
    ds = td.Dataset.range(2).flat_map(
        lambda _: td.Dataset.range(2).map(lambda x: 1 / np.float32(x + 1))
    )
    bad = td.Dataset.range(1).flat_map(lambda _: td.Dataset.range(2).map(lambda x: np.nan * x))

    assert len(outcomes(ds)) == 4
    assert all(error.node == "map#1 of an inner dataset" for error in outcomes(bad))
    assert outcomes(bad)[0].function.startswith("<lambda> (")


@pytest.mark.usefixtures("on")
def test_skip_leaves_it_alone_and_ignore_errors_does_not() -> None:
    skipping = td.Dataset.range(7).map(broken, on_error="skip")

    assert sum(isinstance(each, Exception) for each in outcomes(skipping)) == 2
    assert len(outcomes(td.Dataset.range(7).map(broken).ignore_errors())) == 5


def test_only_iterators_made_while_it_is_on() -> None:
    ds = td.Dataset.from_list([1.0, float("inf")])
    before = iter(ds)
    td.debugging.enable_check_numerics()
    during = iter(ds)
    td.debugging.disable_check_numerics()

    assert list(before) == [1.0, float("inf")]
    assert next(during) == 1.0
    with pytest.raises(NumericsError):
        next(during)
    assert list(ds) == [1.0, float("inf")]


def test_both_are_idempotent_and_of_the_process() -> None:
    td.debugging.disable_check_numerics()
    thread = threading.Thread(target=td.debugging.enable_check_numerics)
    thread.start()
    thread.join()
    td.debugging.enable_check_numerics()
    td.debugging.enable_check_numerics(stack_height_limit=3, path_length_limit=10)

    assert probes.active() == (NumericsProbe(10),)
    td.debugging.disable_check_numerics()
    td.debugging.disable_check_numerics()
    assert probes.active() == ()


def test_the_path_is_cut() -> None:
    td.debugging.enable_check_numerics(path_length_limit=12)

    [error] = outcomes(td.Dataset.range(1).map(lambda _: np.inf))

    assert error.function == f"<lambda> (...ecking.py:{error.function.rpartition(':')[2]}"


@pytest.mark.parametrize("name", ["stack_height_limit", "path_length_limit"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), ("3", TypeError), (1.5, TypeError)])
def test_limits(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        td.debugging.enable_check_numerics(**{name: value})


def test_it_is_a_check_error_and_pickles() -> None:
    error = NumericsError("map#1", "['x']", "float16", (4,), (1, 0, 2), ((0,), (2,)), "f (a.py:1)")

    again = pickle.loads(pickle.dumps(error))

    assert isinstance(error, td.errors.CheckError)
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert (
        str(error).splitlines()[1]
        == "  ['x'] is float16 (4,): 1 nan, 2 minus infinite; at [0], [2], ..."
    )


COUNTED = [
    (np.array([np.nan, np.inf, -np.inf, 1.0], np.float16), Health(4, 1, 1, 1)),
    (np.array([[np.inf], [np.inf]], np.longdouble), Health(2, 0, 2, 0)),
    (np.float64("nan"), Health(1, 1, 0, 0)),
    (
        np.array([complex(np.nan, np.inf), complex(1, -np.inf), complex(np.inf, 0)]),
        Health(3, 1, 1, 1),
    ),
    (np.zeros((0, 3)), Health(0)),
]


@pytest.mark.parametrize(("leaf", "health"), COUNTED, ids=range(len(COUNTED)))
def test_counts(leaf: Any, health: Health) -> None:
    assert is_floating(leaf)
    assert health_of(leaf) == health
    assert is_finite(leaf) == health.finite
    assert len(first_bad(leaf, 10)) == health.nan + health.pos_inf + health.neg_inf


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    leaf = np.array([1, np.nan, -np.inf], ml_dtypes.bfloat16)

    assert is_floating(leaf)
    assert not is_floating(np.zeros(2, "V2"))
    assert health_of(leaf) == Health(3, 1, 0, 1)
    assert first_bad(leaf, 1) == ((1,),)


class Called:
    """A function that is an object."""

    def __call__(self, x: Any) -> Any:
        return x


def test_names_of_functions() -> None:
    assert named(np.log) == "log" or named(np.log) == "ufunc"
    assert named(Called()).startswith("Called (")
    assert shortened("/a/b.py", None) == "/a/b.py"
    assert shortened("/a/b.py", 2) == "..."


@pytest.mark.usefixtures("on")
def test_objects_that_refuse_are_no_numbers() -> None:
    assert len(list(td.Dataset.range(4).map(functions.strange))) == 4
