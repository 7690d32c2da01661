"""unique: what it takes, as far as the plan tells."""

from __future__ import annotations

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError


@pytest.mark.parametrize(
    "ds",
    [
        td.Dataset.from_tensor_slices([1.0, 2.0]),
        td.Dataset.from_tensor_slices({"a": [1], "b": [1]}),
        td.Dataset.range(3).enumerate(),
        td.Dataset.from_tensor_slices(np.zeros(3, np.complex64)).shuffle(2).repeat(2),
    ],
)
def test_other_elements_are_refused_when_the_plan_tells(ds: td.Dataset) -> None:
    with pytest.raises(SpecError, match="unique takes elements of int, bool, str or bytes"):
        ds.unique()


def test_what_the_plan_does_not_tell_is_refused_later() -> None:
    with pytest.raises(SpecError, match=r"not ArraySpec.*float64"):
        list(td.Dataset.range(3).map(float).unique())


def test_cardinality() -> None:
    assert td.Dataset.range(5).unique().cardinality() == td.UNKNOWN_CARDINALITY
    assert td.Dataset.range(5).unique().element_spec == td.ArraySpec((), np.int64)
