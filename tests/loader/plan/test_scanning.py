"""scan and group_by_reducer: arguments and cardinalities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError
from tundish.loader.operators.scanning import Reducer

TOTAL = Reducer(lambda key: 0, lambda s, x: s + x, lambda s: s)


def keep(state: Any, element: Any) -> Any:
    return state, element


@pytest.mark.parametrize(
    ("build", "error", "told"),
    [
        (lambda ds: ds.scan(0, 3), TypeError, "scan_func must be callable, not int"),
        (lambda ds: ds.scan(None, keep), SpecError, "initial_state must be an element, not None"),
        (lambda ds: ds.scan(2**64, keep), SpecError, "does not fit 64 bits"),
        (lambda ds: ds.group_by_reducer(3, TOTAL), TypeError, "key_func must be callable"),
        (lambda ds: ds.group_by_reducer(int, keep), TypeError, "reducer must be a .*Reducer"),
        (lambda _: Reducer(1, keep, keep), TypeError, "init_func must be callable"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_bad_arguments_are_named(build: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        build(td.Dataset.range(5))


def test_cardinalities() -> None:
    ds = td.Dataset.range(5)

    assert ds.scan(0, keep).cardinality() == 5
    assert ds.repeat().scan(0, keep).cardinality() == td.INFINITE_CARDINALITY
    assert ds.filter(bool).scan(0, keep).cardinality() == td.UNKNOWN_CARDINALITY
    assert ds.group_by_reducer(int, TOTAL).cardinality() == td.UNKNOWN_CARDINALITY


def test_a_plan_does_not_share_its_initial_state() -> None:
    start = np.zeros(2)
    ds = td.Dataset.range(3).scan(start, lambda s, x: (s + 1, s))
    start += 100

    assert [x.tolist() for x in ds] == [[0, 0], [1, 1], [2, 2]]
