"""Measurements of an epoch's iterator, and what it tells `tundish top`."""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.cli.frame import BoardReading, History, frame
from tundish.loader.dataloader import progress
from tundish.loader.run.watching import publishing
from tundish.shm.board import read_board

linux = pytest.mark.skipif(sys.platform != "linux", reason="boards are Linux's")


class Squares:
    """A map-style dataset; one of its samples cannot be had."""

    def __init__(self, count: int, bad: int = -1) -> None:
        self.count, self.bad = count, bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise KeyError(index)
        return np.full(1000, index * index)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_counted_is_what_came(workers: int) -> None:
    iterator = iter(td.DataLoader(Squares(40, bad=17), batch_size=4, num_workers=workers))
    found = failed = 0
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        except KeyError:
            failed += 1
        else:
            found += 1
    stats = iterator.stats
    (stage,) = stats.stages

    assert (stats.elements, stats.errors) == (found, failed) == (9, 1)
    assert (stage.elements, stage.errors, stage.tasks) == (9, 1, 10)
    assert stage.where == ("workers" if workers else "consumer")
    assert stage.busy_s > 0
    assert stats.workers == workers
    whole = stats.waited_s + stats.own_s + stats.outside_s
    assert whole == pytest.approx(stats.wall_s)
    if workers:
        assert stage.nbytes > 36 * 8000
        assert stats.budget_bytes > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_each_epoch_has_numbers_of_its_own(workers: int) -> None:
    loader = td.DataLoader(
        Squares(8), batch_size=4, num_workers=workers, persistent_workers=bool(workers)
    )
    for _ in range(2):
        iterator = iter(loader)
        assert len(list(iterator)) == 2
        assert iterator.stats.elements == 2
        del iterator


def told() -> list[dict[str, Any]]:
    """The loaders on this process's board."""
    try:
        board = json.loads(read_board(os.getpid()))
    except FileNotFoundError:
        return []
    return [each for each in board["iterators"] if each["plan"] == "Squares -> DataLoader"]


@linux
@pytest.mark.parametrize("workers", [0, 2])
def test_top_shows_a_loader(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(publishing, "EVERY_S", 0.0)
    monkeypatch.delenv("TUNDISH_WATCH", raising=False)
    iterator = iter(td.DataLoader(Squares(40), batch_size=4, num_workers=workers))
    reading, history = BoardReading(), History()
    for _ in range(5):
        next(iterator)
        reading = BoardReading.of(read_board(os.getpid()))
        history.add(reading)
    (each,) = told()
    assert each["stats"]["elements"] == 5
    lines = "\n".join(frame(os.getpid(), reading, history, 120))
    assert "Squares → DataLoader" in lines
    assert "5 in 0:0" in lines

    list(iterator)
    assert told() == []
    again = iter(td.DataLoader(Squares(40), batch_size=4, num_workers=workers))
    next(again)
    assert len(told()) == 1
    del again
    gc.collect()
    assert told() == []


def test_a_loader_of_elements_is_told_of_by_their_iterator() -> None:
    iterator = iter(td.DataLoader(td.Dataset.range(10), batch_size=4))
    assert len(list(iterator)) == 3
    assert iterator.stats.elements == 3
