"""The three classes that the conformance tests run against: torch's own, ours for torch, ours on numpy."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Face:
    """One DataLoader and what belongs to it; calling it makes a loader."""

    name: str
    module: str  # has DataLoader
    ours: bool
    torch: bool  # its batches are tensors
    word: str = "DataLoader"

    @property
    def loader(self) -> Any:
        return getattr(importlib.import_module(self.module), self.word)

    @property
    def info(self) -> str:
        """The module in whose words a dataset asks for the worker that it is in."""
        return "torch.utils.data" if self.torch else "tundish"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.loader(*arguments, **options)

    def generator(self, seed: int) -> Any:
        """A generator of random numbers that this loader takes."""
        if self.torch:
            return importlib.import_module("torch").Generator().manual_seed(seed)
        return importlib.import_module("tundish").TorchGenerator(seed)

    def counting(self, *sizes: int, marked: bool = False, kind: str = "Counting") -> Any:
        """An iterable dataset that this loader takes for one (see `datasets.Counting`)."""
        home = "tests.torch.torchdatasets" if self.torch else "tests.torch.datasets"
        made = getattr(importlib.import_module(home), kind)
        return made(sizes, self.info, marked=marked)

    def __str__(self) -> str:
        return self.name


THEIRS = Face("theirs", "torch.utils.data", ours=False, torch=True)
OURS = Face("ours", "tundish.torch", ours=True, torch=True)
STATEFUL = Face(
    "stateful", "torchdata.stateful_dataloader", ours=False, torch=True, word="StatefulDataLoader"
)
NUMPY = Face("numpy", "tundish", ours=True, torch=False)


def plain(batch: Any) -> Any:
    """Arrays and tensors as lists; what holds them stays."""
    if hasattr(batch, "tolist"):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [plain(value) for value in batch]
    return batch


def epoch(loader: Any) -> list[Any]:
    """Every batch of one epoch, as lists."""
    return [plain(batch) for batch in loader]


def numbers(loader: Any) -> list[Any]:
    """Every sample of one epoch, where samples are numbers."""
    return [value for batch in epoch(loader) for value in batch]


def taken(loader: Any, count: int) -> list[Any]:
    """The first batches of an iteration that is broken off."""
    iterator = iter(loader)
    return [plain(next(iterator)) for _ in range(count)]


def array(value: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return value.numpy() if hasattr(value, "numpy") else value


def alike(ours: Any, theirs: Any) -> bool:
    """Return True if two batches are the same: containers, dtypes, shapes and bits; an array stands for a tensor."""
    ours, theirs = array(ours), array(theirs)
    if isinstance(theirs, np.ndarray):
        return (
            isinstance(ours, np.ndarray)
            and (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            and ours.tobytes() == theirs.tobytes()
        )
    if type(ours) is not type(theirs):
        return False
    if hasattr(theirs, "keys"):
        return list(ours) == list(theirs) and all(alike(ours[key], theirs[key]) for key in theirs)
    if hasattr(theirs, "__len__") and not isinstance(theirs, str | bytes):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    return bool(ours == theirs)
