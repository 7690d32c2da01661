"""Seconds to the first batch of a torch dataset, in this fresh process; run by `loading.py`."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import torch
from torch.utils.data import TensorDataset


def main() -> None:
    which, workers = sys.argv[1], int(sys.argv[2])
    home = "tundish.torch" if which == "ours" else "torch.utils.data"
    loader_of: Any = importlib.import_module(home).DataLoader
    dataset = TensorDataset(torch.rand(4096, 256), torch.arange(4096))
    context = sys.argv[3] if len(sys.argv) > 3 else None if which == "ours" else "spawn"
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        loader = loader_of(dataset, 32, num_workers=workers, multiprocessing_context=context)
        iterator = iter(loader)
        next(iterator)
        seconds.append(time.perf_counter() - start)
        del iterator
    sys.stdout.write(f"{seconds[0]} {seconds[1]}\n")


if __name__ == "__main__":
    main()
