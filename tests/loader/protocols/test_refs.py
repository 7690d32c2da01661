"""Refs that are numbers, as arrays and as runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish.loader.protocols.refs import BatchedRefs, array_of, ints, joined, run_of


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


@pytest.mark.parametrize(
    "rows", [range(5, 28), np.arange(23)[::-1] * 3, list(zip(range(23), range(23), strict=True))]
)
@pytest.mark.parametrize("size", [1, 4, 23, 40])
def test_refs_of_batches_stand_for_a_list(rows: Any, size: int) -> None:
    """Items, ranges and concatenations are those of a list of (number, rows)."""
    plain = [(k + 7, tuple(ints(rows)[at : at + size])) for k, at in enumerate(range(0, 23, size))]
    refs = BatchedRefs(rows, size, range(7, 7 + len(plain)))

    def shown(found: Any) -> list[Any]:
        return [(number, tuple(each)) for number, each in found]

    assert len(refs) == len(plain)
    assert shown(refs) == plain
    assert shown(refs[k] for k in range(len(plain))) == plain
    for first in range(len(plain)):
        for stop in range(first, len(plain) + 1):
            assert shown(refs[first:stop]) == plain[first:stop]
        parts = [part for part in (refs[:first], refs[first:]) if len(part)]
        assert shown(joined(parts)) == plain
    with pytest.raises(IndexError):
        refs[len(plain)]
