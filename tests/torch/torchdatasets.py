"""Datasets for the conformance tests that are torch's own kind; a worker imports this module."""

from __future__ import annotations

from typing import Any

import pytest
from tests.torch import datasets

torch = pytest.importorskip("torch")


class Counting(datasets.Counting, torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """The same, and known to torch as iterable."""


class Surviving(datasets.Surviving, Counting):
    """The same, and known to torch as iterable."""


class Resetting(datasets.Resetting, Counting):
    """The same, and known to torch as iterable."""


class Point:
    """A sample that only an entry in torch's table can collate."""

    def __init__(self, x: int) -> None:
        self.x = x


class Points(datasets.Numbers):
    def __getitem__(self, index: int) -> Any:
        return Point(index)


def sum_of_points(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Collate points."""
    return torch.tensor([point.x for point in batch]) * 10


class Filled:
    """Sample i: a quarter of a megabyte of it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((65536,), float(index))
