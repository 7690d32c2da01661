"""What a dataset shares with the process that made it stays shared in its workers."""

from __future__ import annotations

import multiprocessing
from multiprocessing import resource_tracker
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tundish.torch import DataLoader  # noqa: E402 - torch first

resource_tracker.ensure_running()  # multiprocessing's own process, which stays


class Sharing:
    """Counts in what multiprocessing and torch share; each sample is the epoch that was set."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.count = context.Value("i", 0)
        self.epoch = torch.zeros(4, dtype=torch.int64).share_memory_()[1:3]
        self.private = torch.zeros(2)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        with self.count.get_lock():
            self.count.value += 1
        self.private += 1
        return self.epoch[1].clone()


@pytest.mark.untidy  # multiprocessing keeps the memory of its values
def test_shared_memory_stays_shared() -> None:
    dataset = Sharing()
    loader: Any = DataLoader(dataset, 4, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        dataset.epoch[1] = epoch
        assert [batch.tolist() for batch in loader] == [[epoch] * 4] * 3
    assert dataset.count.value == 36
    assert dataset.private.tolist() == [0, 0], "what is not shared is each worker's own"
