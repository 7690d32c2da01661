"""interleave's arguments, and what is known of it before it runs."""

from __future__ import annotations

from typing import Any

import pytest

import tundish as td
from tundish import Dataset

make = Dataset.range


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"cycle_length": 0}, ValueError, "cycle_length must be at least 1.*not 0"),
        ({"cycle_length": -2}, ValueError, "cycle_length must be at least 1.*not -2"),
        ({"cycle_length": 2.0}, TypeError, "cycle_length must be an int, not float"),
        ({"block_length": 0}, ValueError, "block_length must be at least 1, not 0"),
        ({"block_length": "1"}, TypeError, "block_length must be an int, not str"),
        ({"num_parallel_calls": 0}, ValueError, "num_parallel_calls must be at least 1.*not 0"),
        (
            {"cycle_length": 2, "num_parallel_calls": 3},
            ValueError,
            r"num_parallel_calls must be at most cycle_length \(2\), not 3",
        ),
    ],
)
def test_arguments_are_checked_when_it_is_built(
    given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).interleave(make, **given)


def test_the_function_must_be_callable() -> None:
    with pytest.raises(TypeError, match="map_func must be callable, not int"):
        Dataset.range(3).interleave(3)  # type: ignore[arg-type]  # that is the test


def test_its_cardinality_is_unknown() -> None:
    assert Dataset.range(3).interleave(make).cardinality() == td.UNKNOWN_CARDINALITY
    assert Dataset.range(3).repeat().interleave(make).cardinality() == td.UNKNOWN_CARDINALITY


@pytest.mark.parametrize("given", [{}, {"cycle_length": None}, {"cycle_length": td.AUTOTUNE}])
def test_the_default_does_not_depend_on_the_machine(given: dict[str, Any]) -> None:
    ds = Dataset.range(20).interleave(lambda x: Dataset.from_tensors(x).repeat(2), **given)

    assert [int(x) for x in ds] == [*range(16)] * 2 + [16, 17, 18, 19] * 2


def test_how_fast_is_not_what() -> None:
    """A state may be continued with another number of workers."""
    one = Dataset.range(9).interleave(make, 3)
    other = Dataset.range(9).interleave(make, 3, num_parallel_calls=2, deterministic=False)
    with one.iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
    with other.iterator(workers=0) as it:
        it.load_state_dict(state)
        rest = [int(x) for x in it]

    assert [int(x) for x in one][1:] == rest
