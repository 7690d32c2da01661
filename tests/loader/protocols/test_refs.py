"""Refs that are numbers, as arrays and as runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish.loader.protocols.refs import array_of, run_of


@pytest.mark.parametrize("refs", [range(3, 9), range(0), range(9, 1, -3), [4, 4, 7], np.arange(5)])
def test_numbers_as_an_array(refs: Any) -> None:
    found = array_of(refs)

    assert found.dtype == np.int64
    assert found.tolist() == list(refs)


@pytest.mark.parametrize("refs", [range(3, 9), [3, 4, 5], np.arange(2, 8), [7]])
def test_numbers_that_follow_one_another(refs: Any) -> None:
    found = run_of(refs)

    assert isinstance(found, range)
    assert list(found) == list(refs)


@pytest.mark.parametrize(
    "refs", [range(0, 9, 2), range(9, 3, -1), np.array([0, 2, 1, 3]), [3, 3], np.array([0, 0, 2])]
)
def test_others_are_no_run(refs: Any) -> None:
    assert run_of(refs) is None
