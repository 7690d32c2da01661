"""Rows of different lengths in one array: what does not divide all of the values is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError


@pytest.mark.parametrize("splits", [[0, 2], [1, 5], [0, 3, 2, 5], [0, 6], [], [-1, 5]])
@pytest.mark.parametrize("read", ["rows", "to_list", "to_tensor"])
def test_splits_that_leave_values_out(splits: list[int], read: str) -> None:
    ragged = td.Ragged(np.arange(5), np.array(splits, np.int64))
    with pytest.raises(SpecError, match="must begin with 0, never fall and end with 5"):
        getattr(ragged, read)()


def test_splits_of_a_batch_that_leave_values_out() -> None:
    element: Any = td.Ragged(np.arange(5), np.array([0, 2]))
    with pytest.raises(SpecError, match="end with 5"):
        list(td.Dataset.from_tensors(element).unbatch())


def test_rows_of_rows_count_those() -> None:
    inner: Any = td.Ragged(np.arange(5), np.array([0, 2, 5]))
    assert td.Ragged(inner, np.array([0, 2])).to_list() == [[[0, 1], [2, 3, 4]]]
    with pytest.raises(SpecError, match="end with 2"):
        td.Ragged(inner, np.array([0, 5])).to_list()
