"""Programs that the tests of processes run: `python programs.py NAME MODULE`."""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

START = time.monotonic()


class Slow:
    """Numbers; a sample takes as long as it is told to."""

    def __init__(self, size: int, pause: float) -> None:
        self.size = size
        self.pause = pause

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        time.sleep(self.pause if index else 0)
        return index


def loader(module: str, pause: float, **options: Any) -> Any:
    """A loader of a module's class."""
    return importlib.import_module(module).DataLoader(Slow(1000, pause), **options)


def wait_for_signal(module: str) -> None:
    """Read without end, and say when the first batch was there."""
    for _ in loader(module, 0.05, num_workers=2):
        print("running", flush=True)  # noqa: T201


def wait_on_slow_workers(module: str) -> None:
    """Wait for workers that are far from being done."""
    iterator = iter(loader(module, 3600, num_workers=2))
    next(iterator)
    print("running", flush=True)  # noqa: T201
    next(iterator)


def leave(module: str) -> None:
    """End with an iterator that is alive, and say when."""
    global iterator  # noqa: PLW0603 (so that it is alive when the interpreter ends)
    iterator = iter(loader(module, 3600, num_workers=2))
    next(iterator)
    print(time.time(), os.getpid(), flush=True)  # noqa: T201


def leave_persistent(module: str) -> None:
    """The same with workers that stay."""
    global kept  # noqa: PLW0603
    kept = loader(module, 0, num_workers=2, persistent_workers=True)
    list(kept)
    print(time.time(), os.getpid(), flush=True)  # noqa: T201


def fail(module: str) -> None:
    """End with an exception while an iterator is alive."""
    for _ in loader(module, 0.01, num_workers=2):
        print(time.time(), os.getpid(), flush=True)  # noqa: T201
        raise SystemExit(3)


class Loaded(Slow):
    """A dataset whose samples tell whether torch is loaded where they are made."""

    def __getitem__(self, index: int) -> bool:
        return "torch" in sys.modules


def without_torch(module: str) -> None:
    """Say whether a worker has loaded torch, though this process has."""
    importlib.import_module("torch")
    kind = importlib.import_module(module).DataLoader
    print(list(kind(Loaded(1, 0), batch_size=None, num_workers=1)), flush=True)  # noqa: T201


class Late:
    """Random numbers of torch's, which nothing names before a sample is made."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return float(importlib.import_module("torch").rand(()))


def draw(module: str) -> None:
    """Draw torch's numbers in workers that begin without torch, then here."""
    tundish = importlib.import_module("tundish")
    for _ in tundish.DataLoader(Slow(2, 0), num_workers=1):  # the zygote is there, without torch
        pass
    kind = importlib.import_module(module).DataLoader
    for workers in (2, 0):
        generator = tundish.TorchGenerator(3)
        batches = kind(Late(), num_workers=workers, collate_fn=list, generator=generator)
        print(list(batches), flush=True)  # noqa: T201


iterator: Any
kept: Any

if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
