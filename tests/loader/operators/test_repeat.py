"""repeat: a pass without elements among others."""

from __future__ import annotations

from typing import Any

import pytest

from tundish import Dataset


def sometimes() -> Any:
    """Make a dataset that has an element in its first and third pass."""
    passes = iter(range(1, 100))

    def generator() -> Any:
        number = next(passes)
        if number in (1, 3):
            yield number

    return Dataset.from_generator(generator)


def test_a_pass_without_elements_does_not_end_a_finite_repetition() -> None:
    assert [int(x) for x in sometimes().repeat(5)] == [1, 3]
    assert [int(x) for x in sometimes().repeat(2)] == [1]
    assert [int(x) for x in sometimes().repeat()] == [1]


@pytest.mark.parametrize("workers", [0, 2])
def test_passes_that_are_all_empty(workers: int) -> None:
    nothing = Dataset.range(5).filter(lambda _: False)
    for dataset in (nothing.repeat(4), nothing.repeat(3).repeat(2), nothing.repeat()):
        with dataset.iterator(workers=workers) as it:
            assert list(it) == []


def test_an_input_that_is_known_to_be_empty_is_not_opened_again_and_again() -> None:
    assert list(Dataset.range(0).map(int).repeat(10**12)) == []
