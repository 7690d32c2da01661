"""rejection_resample: arguments."""

from __future__ import annotations

from typing import Any

import pytest

import tundish as td


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ((3, [1]), TypeError, "class_func must be callable"),
        ((int, "ab"), TypeError, "target_dist must be a sequence of numbers, not 'ab'"),
        ((int, []), ValueError, "target_dist must have one dimension"),
        ((int, 0.5), ValueError, "target_dist must have one dimension"),
        ((int, [0.5, -0.5]), ValueError, "target_dist must be finite, at least 0 and not all 0"),
        ((int, [0.0, 0.0]), ValueError, "not all 0"),
        ((int, [0.5, float("nan")]), ValueError, "must be finite"),
        ((int, [0.5, 0.5], [1]), ValueError, "must have one number for each class, not 1 and 2"),
        ((int, [0.5, 0.5], [1, 0]), ValueError, "target_dist asks for class 1"),
        ((int, [1], None, "x"), TypeError, "seed must be an int"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        td.Dataset.range(5).rejection_resample(*arguments)


def test_a_class_that_nobody_wants_may_be_missing() -> None:
    ds = td.Dataset.range(5).rejection_resample(lambda x: 0, [1, 0], [1, 0])

    assert [int(x) for _, x in ds] == [0, 1, 2, 3, 4]
    assert ds.cardinality() == td.UNKNOWN_CARDINALITY
