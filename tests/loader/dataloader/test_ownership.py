"""Batches are the consumer's own, with and without workers, though a dataset or collate_fn uses its memory again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td

WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Refilled:
    """A dataset with one buffer."""

    def __init__(self) -> None:
        self.buffer = np.zeros(2)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> np.ndarray:
        self.buffer[:] = index
        return self.buffer


class Fresh:
    """A dataset that remembers where its arrays were."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> np.ndarray:
        array = np.full(3, index)
        self.places.append(array.ctypes.data)
        return array


class Filling:
    """A collate function with one buffer."""

    def __init__(self) -> None:
        self.buffer = np.zeros(2)

    def __call__(self, rows: list[Any]) -> dict[str, np.ndarray]:
        self.buffer[:] = [row[0] for row in rows]
        return {"first": self.buffer}


@WORKERS
def test_a_buffer_that_each_sample_fills(workers: int) -> None:
    batches = list(td.DataLoader(Refilled(), 3, num_workers=workers))
    assert [batch[:, 0].tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    samples = list(td.DataLoader(Refilled(), None, num_workers=workers))
    assert [sample[0] for sample in samples] == [0, 1, 2, 3, 4, 5]


@WORKERS
def test_a_buffer_that_each_batch_fills(workers: int) -> None:
    rows = np.arange(12).reshape(6, 2)
    batches = list(td.DataLoader(rows, 2, collate_fn=Filling(), num_workers=workers))
    assert [batch["first"].tolist() for batch in batches] == [[0, 2], [4, 6], [8, 10]]


@WORKERS
@pytest.mark.parametrize("collate", [None, list])
def test_what_is_changed_in_place_does_not_change_the_dataset(workers: int, collate: Any) -> None:
    rows = np.arange(12.0).reshape(6, 2)
    loader: Any = td.DataLoader(
        rows, 2 if collate else None, collate_fn=collate, num_workers=workers
    )
    epochs = []
    for _ in range(2):
        epochs.append([np.array(batch).tolist() for batch in loader])
        for batch in loader:
            for row in batch if collate else [batch]:
                np.add(row, 100, out=row)
    assert epochs[0] == epochs[1]
    assert rows.sum() == 66


def test_a_fresh_sample_is_not_copied() -> None:
    dataset = Fresh()
    samples = list(td.DataLoader(dataset, None))
    assert [sample.ctypes.data for sample in samples] == dataset.places
    dataset = Fresh()
    lists = list(td.DataLoader(dataset, 2, collate_fn=list))
    assert [each.ctypes.data for batch in lists for each in batch] == dataset.places


@WORKERS
@pytest.mark.parametrize("size", [3, 100_000])
def test_what_was_read_only_may_be_written_to(workers: int, size: int) -> None:
    """As are the arrays that `np.frombuffer` makes of what was read from a file."""
    rows = Decoded(size)
    for sample in td.DataLoader(rows, None, num_workers=workers):
        np.add(sample, 1, out=sample)
        assert sample.sum() == size
    for batch in td.DataLoader(rows, 2, collate_fn=list, num_workers=workers):
        for row in batch:
            np.add(row, 1, out=row)
            assert row.sum() == size


class Decoded:
    """Arrays over bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> np.ndarray:
        return np.frombuffer(bytes(self.size), np.uint8)
