"""Plain maps and filters in process: still one element at a time, and errors at their places."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tundish import Dataset


def drained(ds: Dataset) -> list[Any]:
    """The elements, and the errors at their places."""
    found: list[Any] = []
    it = ds.iterator(workers=0)
    while True:
        try:
            element = next(it)
        except StopIteration:
            return found
        except Exception as error:  # noqa: BLE001 - whatever the pipeline raises
            found.append(error)
        else:
            found.append(element.tolist())


def names(found: list[Any]) -> list[Any]:
    """The same with the errors' types in their places."""
    return [type(x).__name__ if isinstance(x, Exception) else x for x in found]


def noted(called: list[str], x: Any) -> Any:
    called.append(f"f{x}")
    return x + 10


def odd(called: list[str], x: Any) -> bool:
    called.append(f"g{x}")
    return bool(x % 2)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"on_error": "skip"},
        {"num_parallel_calls": 1},
    ],
)
@pytest.mark.parametrize("source", [Dataset.range(100), Dataset.range(100).shuffle(1, seed=1)])
def test_nothing_is_called_before_it_is_asked_for(source: Dataset, given: dict[str, Any]) -> None:
    called: list[str] = []
    ds = source.map(partial(noted, called), **given).filter(partial(odd, called)).batch(2)
    it = ds.iterator(workers=0)

    assert called == []
    assert next(it).tolist() == [11, 13]
    assert called == ["f0", "g10", "f1", "g11", "f2", "g12", "f3", "g13"]
    assert it.stats.elements == 1


def test_errors_stand_at_their_places_and_name_their_node() -> None:
    def f(x: Any) -> Any:
        if x == 2:
            raise StopIteration
        if x == 4:
            raise KeyError(x)
        return x

    def g(x: Any) -> bool:
        return bool(1 / int(x - 5))

    found = drained(Dataset.range(8).map(f).filter(g))

    assert names(found) == [0, 1, "RuntimeError", 3, "KeyError", "ZeroDivisionError", 6, 7]
    notes = [error.__notes__[0] for error in found if isinstance(error, Exception)]
    assert ["in map#1, element 2" in notes[0], "in map#1, element 4" in notes[1]] == [True, True]
    assert "in filter#2, element 5" in notes[2]


def test_a_failure_within_a_batch_gives_up_what_was_gathered() -> None:
    def f(x: Any) -> Any:
        return 1 // int(x - 3) if x == 3 else x

    found = drained(Dataset.range(8).map(f).batch(3))

    assert names(found) == [[0, 1, 2], "ZeroDivisionError", [4, 5, 6], [7]]


def test_types_that_change_are_the_batch_s_error() -> None:
    def f(x: Any) -> Any:
        return float(x) if x == 3 else x

    found = drained(Dataset.range(8).map(f).batch(2))

    assert names(found) == [[0, 1], "SpecError", [4, 5], [6, 7]]


def test_units_of_time_are_not_taken_for_one_type() -> None:
    def f(x: Any) -> Any:
        return np.timedelta64(int(x), "s" if x < 3 else "h")

    found = drained(Dataset.range(4).map(f).batch(2))

    assert [isinstance(x, Exception) for x in found] == [False, True]
