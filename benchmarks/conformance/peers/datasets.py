# ruff: noqa: A001, ARG005, E731 - the same short names in each module, most of them one expression
"""Hugging Face datasets, streaming: `IterableDataset` in the StatefulDataLoader that it advises."""

from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import torch
from datasets import Dataset, load_dataset
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

LACKS: dict[str, str] = {}
NOT_PROMISED = {"order": "documented: shards are divided among workers", "resume-workers": "documented: num_workers must be that of the saved state"}  # fmt: skip


def open(pipe: Any) -> Any:
    data = Dataset.from_dict({"i": range(pipe.n)})
    data = data if pipe.seed is None else data.shuffle(seed=pipe.seed)  # whole, not in a buffer
    data = data.to_iterable_dataset(num_shards=min(pipe.n, 6))
    data = split_dataset_by_node(data, pipe.rank, pipe.ranks) if pipe.ranks > 1 else data
    data = data.map(lambda row: {"x": pipe.function(row["i"])}, remove_columns="i")
    if pipe.law == "descriptors":  # as PyTorch's notes advise where few may be open
        torch.multiprocessing.set_sharing_strategy("file_system")
    bound = {"timeout": 2} if pipe.law == "hang" else {}
    return StatefulDataLoader(data.with_format("torch"), pipe.batch, num_workers=pipe.workers, **bound)  # fmt: skip


class batches:  # noqa: N801 - as the others' functions
    def __init__(self, loader: Any) -> None:
        self.it = iter(loader)

    __iter__, __next__ = lambda self: self, lambda self: next(self.it)["x"]


save = lambda loader, it, path: torch.save(loader.state_dict(), path)


def resume(pipe: Any, path: str) -> Any:
    (loader := open(pipe)).load_state_dict(torch.load(path, weights_only=False))
    return batches(loader)


def write(path: str, rows: list[bytes]) -> None:
    pa.parquet.write_table(pa.table({"r": rows}), path, row_group_size=4, use_dictionary=False, compression="none", write_page_checksum=True, write_statistics=False)  # fmt: skip


def read(path: str) -> Any:
    scan = pa.dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
    data = load_dataset("parquet", data_files=path, split="train", streaming=True, fragment_scan_options=scan)  # fmt: skip
    return (row["r"] for row in data)
