"""A function forks, and the child returns as well: its rows reach nobody."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

import tundish as td

COUNT = 40
SIZES = {"in a message": 10, "in a slot": 50_000, "large": 300_000}


class Forking:
    """Return rows of a number; for some of them a child returns others, before or after."""

    def __init__(self, size: int, first: str) -> None:
        self.size, self.first = size, first

    def __call__(self, number: Any) -> Any:
        number = int(number)
        if number % 5 == 3:
            child = os.fork() == 0
            if child != (self.first == "child"):
                time.sleep(0.03)
            if child:
                return np.full(self.size, -1)
        return np.full(self.size, number)

    def __len__(self) -> int:
        return COUNT

    __getitem__ = __call__


@pytest.mark.parametrize("first", ["child", "parent"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", ["zygote", "spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_returns_changes_nothing(start: str, size: str, first: str) -> None:
    ds = td.Dataset.range(COUNT).map(Forking(SIZES[size], first)).batch(2)
    with ds.with_options(td.Options(workers=2, start=start)).iterator() as it:
        found = list(it)
        time.sleep(0.1)  # children that are late
        assert [batch[:, 0].tolist() for batch in found] == [[k, k + 1] for k in range(0, COUNT, 2)]
        assert all((batch == batch[:, :1]).all() for batch in found)
        assert it.stats.restarts == 0


@pytest.mark.parametrize("first", ["child", "parent"])
@pytest.mark.parametrize("size", SIZES)
def test_nor_does_one_of_a_loader(size: str, first: str) -> None:
    loader: Any = td.DataLoader(Forking(SIZES[size], first), batch_size=2, num_workers=2)
    found = list(loader)
    time.sleep(0.1)
    assert [batch[:, 0].tolist() for batch in found] == [[k, k + 1] for k in range(0, COUNT, 2)]
    assert all((batch == batch[:, :1]).all() for batch in found)


def reading(row: Any) -> Any:
    """Let a child see what the worker was given, and write into its own memory."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(int(row.sum())).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    total = int(os.read(read, 100))
    os.close(read)
    return total


def test_a_child_sees_what_its_parent_was_given() -> None:
    rows = td.Dataset.range(8).map(lambda x: np.full(50_000, x)).shuffle(4, seed=1).map(reading)
    with rows.with_options(td.Options(workers=2)).iterator() as it:
        assert sorted(map(int, it)) == [50_000 * k for k in range(8)]
