"""Datasets that the tests load; at the top level of a module, so that workers find them."""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tundish import get_worker_info


class Numbers:
    """Sample i is i."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return index


class Augmented(Numbers):
    """Each sample with random numbers of every kind a dataset can draw."""

    def __getitem__(self, index: int, rng: Any = None) -> Any:
        return {
            "index": index,
            "own": rng.random(),
            "python": random.random(),
            "numpy": np.random.rand(),  # noqa: NPY002 - what many datasets do
        }


class Rows(Numbers):
    """Arrays of so many floats."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__(count)
        self.size = size

    def __getitem__(self, index: int) -> Any:
        return np.full(self.size, index, np.float32), index


class Deadly(Numbers):
    """Ends its process at one index: always, or as long as a file is there."""

    def __init__(self, count: int, at: int, how: str, once: Path | None = None) -> None:
        super().__init__(count)
        self.at, self.how, self.once = at, how, once

    def __getitem__(self, index: int) -> int:
        if index == self.at and (self.once is None or self.once.exists()):
            if self.once is not None:
                self.once.unlink()
            if self.how == "exit":
                os._exit(0)
            os.kill(os.getpid(), getattr(signal, self.how))
        return index


class Stream:
    """An iterable: each worker gives its share, as the number of workers tells."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, self.count, step)


class OfOneFile(Stream):
    """A stream with nothing for any worker but the last."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        mine = info is None or info.id == info.num_workers - 1
        return iter(range(self.count if mine else 0))


class Stateful(Stream):
    """A stream whose iterator can be put where it was."""

    def __iter__(self) -> Any:
        return StatefulIterator(super().__iter__())


class StatefulIterator:
    """Counts what it has given."""

    def __init__(self, source: Any) -> None:
        self.source, self.given = source, 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        value: int = next(self.source)
        self.given += 1
        return value

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        while self.given < state["given"]:
            next(self)


class Shuffling(Stream):
    """A stream in an order that is drawn when it begins, and numbers drawn on the way."""

    def __iter__(self) -> Any:
        values = list(super().__iter__())
        random.shuffle(values)
        for value in values:
            random.random()
            yield value


class Remembering:
    """A sampler that knows how far it is."""

    def __init__(self, count: int) -> None:
        self.count, self.at, self.begun_at = count, 0, 0

    def __iter__(self) -> Any:
        self.begun_at = self.at
        while self.at < self.count:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def __len__(self) -> int:
        return self.count

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Loaded(Numbers):
    """A dataset whose samples tell whether a module has been imported where they are made."""

    def __init__(self, name: str) -> None:
        super().__init__(4)
        self.name = name

    def __getitem__(self, index: int) -> int:
        return int(self.name in sys.modules)


class DrawingLate(Numbers):
    """Imports torch when it makes a sample, and draws from it; and says whether it is a worker."""

    def __getitem__(self, index: int) -> Any:
        torch = importlib.import_module("torch")
        info = torch.utils.data.get_worker_info()
        assert (info is None) == (get_worker_info() is None)
        return float(torch.rand(()))


class Interrupted:
    """A sampler in whose generator Ctrl-C hits, once."""

    def __init__(self, count: int, at: int) -> None:
        self.count, self.at, self.done = count, at, False

    def __iter__(self) -> Any:
        for index in range(self.count):
            if index == self.at and not self.done:
                self.done = True
                signal.raise_signal(signal.SIGINT)
            yield index

    def __len__(self) -> int:
        return self.count


class InterruptedSample(Numbers):
    """Ctrl-C hits while a sample is made, once."""

    def __init__(self, count: int, at: int) -> None:
        super().__init__(count)
        self.at, self.done = at, False

    def __getitem__(self, index: int) -> int:
        if index == self.at and not self.done:
            self.done = True
            signal.raise_signal(signal.SIGINT)
        return index


class InterruptedStream(Stream):
    """Ctrl-C hits in the middle of an iterable, once."""

    done = False

    def __iter__(self) -> Any:
        for value in super().__iter__():
            if value == 5 and not self.done:
                self.done = True
                signal.raise_signal(signal.SIGINT)
            yield value


class Held(Numbers):
    """Waits at one index until there is a file."""

    def __init__(self, count: int, at: int, until: Path) -> None:
        super().__init__(count)
        self.at, self.until = at, until

    def __getitem__(self, index: int) -> int:
        while index == self.at and not self.until.exists():
            time.sleep(0.001)
        return index


class Shapes(Numbers):
    """Arrays of many shapes, texts and nests."""

    def __getitem__(self, index: int) -> Any:
        return np.arange(index * 7 % 50), str(index) * (index % 5), {"nested": [index, None]}
