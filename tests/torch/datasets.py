"""Datasets for the conformance tests, without torch; a worker imports this module, not a test."""

from __future__ import annotations

import importlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tests.laws.functions import end


class Numbers:
    """0, 1, 2, ..., each after a pause that depends on it."""

    def __init__(self, size: int, pauses: tuple[float, ...] = (0.0,)) -> None:
        self.size = size
        self.pauses = pauses

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.pauses[index % len(self.pauses)])
        return index


class Logged(Numbers):
    """Numbers; which were asked for, and by whom, can be read in a folder."""

    def __init__(self, size: int, folder: Path) -> None:
        super().__init__(size)
        self.folder = str(folder)

    def __getitem__(self, index: int) -> Any:
        note(self.folder, f"{index}")
        return index


def note(folder: str, text: str) -> None:
    """Append a line to a log that processes share."""
    with Path(folder, "log").open("a") as file:
        file.write(f"{text} {os.getpid()}\n")


def noted(folder: Path) -> list[tuple[str, int]]:
    """Return what was noted, and the process that did."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(line.rsplit(" ", 1)[0], int(line.rsplit(" ", 1)[1])) for line in lines]


class Here(Numbers):
    """The process in which each number was made."""

    def __getitem__(self, index: int) -> Any:
        return index, os.getpid()


class Mapped(dict[str, int]):
    """Samples by name."""


class Bulk(Numbers):
    """Numbers that can be had many at a time; then they are negative."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        assert isinstance(indices, list)
        return [-index for index in indices]


class NotBulk(Numbers):
    """A dataset that has the name `__getitems__`, and no method by it."""

    __getitems__ = None


class Listed:
    """The samples of a list, whatever they are."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def as_list(batch: list[Any], *, collate_fn_map: Any = None) -> list[Any]:
    """A rule for torch's table that needs no torch."""
    return list(batch)


class Backwards(Listed):
    """Arrays that run backwards; their pickle would not."""

    def __getitem__(self, index: int) -> Any:
        return self.samples[index][::-1]


class Info(Numbers):
    """A dataset whose samples tell what their worker knows of itself, asked of a module."""

    def __init__(self, size: int, module: str) -> None:
        super().__init__(size)
        self.module = module

    def __getitem__(self, index: int) -> Any:
        info = importlib.import_module(self.module).get_worker_info()
        if info is None:
            return (-1, -1, -1, -1, os.getpid())
        own = info.dataset is self
        return (info.id, info.num_workers, info.seed % 2**62, int(own), os.getpid())


@dataclass
class Counting:
    """Iterable: worker k counts up to `sizes[k]`; with one size, every worker does."""

    sizes: tuple[int, ...]
    module: str
    marked: bool = False  # then (worker, number)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __iter__(self) -> Iterator[Any]:
        info = importlib.import_module(self.module).get_worker_info()
        worker = 0 if info is None else info.id
        for number in range(self.sizes[worker % len(self.sizes)]):
            yield (worker, number) if self.marked else number


class Surviving(Counting):
    """The same, but each worker's number `at` raises; the iterator goes on after it."""

    at = 1

    def __iter__(self) -> Iterator[Any]:
        numbers = super().__iter__()

        def next_number() -> Any:
            for number in numbers:
                if number == self.at:
                    raise ValueError(number)
                return number
            return None

        return iter(next_number, None)


class Resetting(Counting):
    """The same with a state; whoever has reached the end begins anew."""

    position = 0

    def __iter__(self) -> Iterator[Any]:
        for number in list(super().__iter__())[self.position :]:
            self.position = number + 1
            yield number
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Random(Numbers):
    """A number, and a random one of each of the global generators that are there."""

    def __init__(self, size: int, *, torch: bool) -> None:
        super().__init__(size)
        self.torch = torch

    def __getitem__(self, index: int) -> Any:
        drawn = [float(index), random.random(), float(np.random.random())]  # noqa: NPY002 (the global one is meant)
        if self.torch:
            drawn.append(float(importlib.import_module("torch").rand(())))
        return np.array(drawn)


@dataclass
class Seeds:
    """A `worker_init_fn` that notes how the generators of its worker were seeded."""

    folder: str
    torch: bool

    def __call__(self, worker: int) -> None:
        drawn = [random.getrandbits(32), int(np.random.randint(2**31))]  # noqa: NPY002
        if self.torch:
            drawn.append(importlib.import_module("torch").initial_seed())
        note(self.folder, ",".join(map(str, [worker, *drawn])))


def fail_to_start(worker: int) -> NoReturn:
    message = f"worker {worker} does not like it here"
    raise LookupError(message)


class TwoPartError(Exception):
    """Cannot be made from a message alone."""

    def __init__(self, part: int, other: str) -> None:
        super().__init__(part, other)
        self.part = part
        self.other = other


@dataclass
class Failing(Numbers):
    """Numbers, but one of them raises."""

    size: int
    at: int
    error: BaseException = field(default_factory=lambda: ValueError("seven is not for sale", 7))
    pauses: tuple[float, ...] = (0.0,)

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise self.error
        return super().__getitem__(index)


@dataclass
class Odd(Numbers):
    """Numbers, but one of them cannot be pickled."""

    size: int
    at: int
    pauses: tuple[float, ...] = (0.0,)

    def __getitem__(self, index: int) -> Any:
        return (number for number in range(3)) if index == self.at else index


@dataclass
class Deadly(Numbers):
    """Numbers, but one of them ends its process, the first `times` times."""

    size: int
    folder: str
    how: str
    at: int = 5
    times: int = 1
    pauses: tuple[float, ...] = (0.0,)

    def __getitem__(self, index: int) -> Any:
        if index == self.at and len(noted(Path(self.folder))) < self.times:
            note(self.folder, f"{time.monotonic()}")
            end(self.how)
        return index


@dataclass
class Late(Numbers):
    """Numbers, but one of them takes long, once."""

    size: int
    folder: str
    at: int
    pause: float
    pauses: tuple[float, ...] = (0.0,)

    def __getitem__(self, index: int) -> Any:
        if index == self.at and not noted(Path(self.folder)):
            note(self.folder, "late")
            time.sleep(self.pause)
        return index


class Blocks(Numbers):
    """Samples large enough that a batch of them is shared memory, not a message."""

    def __getitem__(self, index: int) -> Any:
        return np.full(40_000, index, np.float32), index


def as_it_is(batch: Any) -> Any:
    """A `collate_fn` that does nothing."""
    return batch


def told(batch: Any) -> Any:
    """A `collate_fn` that says what it got, and where."""
    return type(batch).__name__, list(batch), os.getpid()
