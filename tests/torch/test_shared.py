"""Things that a dataset shares with the process that made it stay shared in its workers."""

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


class Resharing(Sharing):
    """Shares again what it is given where it arrives, as the datasets of Hugging Face do."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.epoch = self.epoch.share_memory_()


@pytest.mark.parametrize("kind", [Sharing, Resharing])
@pytest.mark.untidy  # multiprocessing keeps the memory of its values
def test_shared_memory_stays_shared(kind: type[Sharing]) -> None:
    dataset = kind()
    loader: Any = DataLoader(dataset, 4, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        dataset.epoch[1] = epoch
        assert [batch.tolist() for batch in loader] == [[epoch] * 4] * 3
    assert dataset.count.value == 36
    assert dataset.private.tolist() == [0, 0], "what is not shared is each worker's own"


def test_the_epoch_of_a_streamed_dataset_reaches_workers_that_stay() -> None:
    """`IterableDataset.set_epoch` writes to a tensor in shared memory, which each copy shares anew."""
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"x": list(range(32))}).to_iterable_dataset(num_shards=2)
    stream = stream.shuffle(seed=3, buffer_size=8)

    def epochs(kind: Any) -> list[list[list[int]]]:
        loader = kind(stream, batch_size=4, num_workers=2, persistent_workers=True)
        found = []
        for epoch in range(3):
            stream.set_epoch(epoch)
            found.append([batch["x"].tolist() for batch in loader])
        return found

    ours = epochs(DataLoader)
    assert ours == epochs(torch.utils.data.DataLoader)
    assert ours[0] != ours[1] != ours[2]
