# ruff: noqa: A001, E731 - the same short names in each module, most of them one expression
"""PyTorch: `DataLoader` over a map-style dataset."""

from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

STATE = "DataLoader has no state; PyTorch points to torchdata's StatefulDataLoader"
FILES = "it reads no files of records; datasets of one's own do"
LACKS = dict.fromkeys(("resume", "resume-workers", "resume-ranks", "kill-trainer"), STATE)
LACKS |= {"corrupt-told": FILES, "corrupt-rest": FILES}
NOT_PROMISED = {"shards": "documented: DistributedSampler adds samples so that shares are equal"}


class Rows:
    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def __len__(self) -> int:
        return int(self.pipe.n)

    def __getitem__(self, index: int) -> Any:
        return self.pipe.function(index)


def settings(pipe: Any) -> dict[str, Any]:
    if pipe.law == "descriptors":  # as its notes on sharing advise where few may be open
        torch.multiprocessing.set_sharing_strategy("file_system")
    data, chance = Rows(pipe), torch.Generator().manual_seed(pipe.seed or 0)
    sampler = DistributedSampler(data, pipe.ranks, pipe.rank, shuffle=pipe.seed is not None, seed=pipe.seed or 0)  # fmt: skip
    order = {"sampler": sampler} if pipe.ranks > 1 else {"shuffle": pipe.seed is not None, "generator": chance}  # fmt: skip
    bound = {"timeout": 2} if pipe.law == "hang" else {}
    return {
        "dataset": data,
        "batch_size": pipe.batch,
        "num_workers": pipe.workers,
        **order,
        **bound,
    }


open = lambda pipe: DataLoader(**settings(pipe))
batches = iter
