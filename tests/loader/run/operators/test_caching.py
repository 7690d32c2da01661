"""What `cache` keeps, and what it does not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tundish import Dataset
from tundish.errors import WorkerTraceback


class Large:
    """What a training holds while it asks for elements."""


def refuse(x: Any) -> Any:
    if x == 2:
        raise KeyError("two", int(x))
    return x


def trained(it: Any) -> tuple[weakref.ref[Large], list[KeyError]]:
    """Take a pass in a frame that holds something."""
    held = Large()
    errors: list[KeyError] = []
    while True:
        try:
            next(it)
        except StopIteration:
            return weakref.ref(held), errors
        except KeyError as error:
            errors.append(error)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_kept_error_does_not_hold_the_frames_it_has_passed(workers: int) -> None:
    ds = Dataset.range(4).map(refuse).cache()
    for _ in range(3):
        with ds.iterator(workers=workers) as it:
            held, errors = trained(it)
        (error,) = errors
        assert error.args == ("two", 2)
        assert any("map#1, element 2" in note for note in error.__notes__)
        del error, errors
        gc.collect()
        assert held() is None


def test_a_kept_error_tells_where_it_was_raised() -> None:
    ds = Dataset.range(4).map(refuse).cache()
    for _ in range(2):
        with ds.iterator(workers=0) as it:
            trained(it)
    with ds.iterator(workers=0) as it:
        _, (error,) = trained(it)
    assert isinstance(error.__cause__, WorkerTraceback)
    assert "in refuse" in str(error.__cause__)
    assert str(error.__cause__).count("in trained") == 0  # whoever asked for it


class OddError(Exception):
    """It cannot be copied by way of a pickle."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.held = lambda: second


def odd(x: Any) -> Any:
    raise OddError(1, 2)


def test_an_error_that_cannot_be_copied_is_raised_all_the_same() -> None:
    ds = Dataset.range(1).map(odd).cache()
    for _ in range(2):
        with ds.iterator(workers=0) as it, pytest.raises(OddError):
            next(it)
