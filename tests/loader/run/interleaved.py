"""Functions that make datasets in workers, for the tests of interleave and flat_map."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tundish import Dataset


@dataclass(frozen=True)
class Lines:
    """The lines of a file, read by a generator; who reads it is noted in a folder."""

    folder: str
    pause_s: float = 0.0

    def __call__(self, path: str) -> Dataset:
        return Dataset.from_generator(Reading(self.folder, path, self.pause_s))


@dataclass(frozen=True)
class Reading:
    """The generator."""

    folder: str
    path: str
    pause_s: float

    def __call__(self) -> Iterator[str]:
        Path(self.folder, str(os.getpid())).touch()
        with Path(self.path).open(encoding="utf-8") as lines:
            for line in lines:
                if self.pause_s:
                    time.sleep(self.pause_s)
                yield line.rstrip("\n")


@dataclass(frozen=True)
class Poisoned:
    """A dataset of four elements; that of element 2 ends whoever makes or reads it."""

    how: str

    def __call__(self, x: Any) -> Dataset:
        if x == 2 and self.how == "opened":
            end()
        if self.how == "mapped":
            return Dataset.range(10 * x, 10 * x + 4).map(self.element)
        return Dataset.from_generator(Numbers(int(x), self.how))

    def element(self, number: Any) -> Any:
        if number == 21:
            end()
        return number


@dataclass(frozen=True)
class Numbers:
    """The generator of a poisoned dataset."""

    x: int
    how: str

    def __call__(self) -> Iterator[int]:
        for number in range(10 * self.x, 10 * self.x + 4):
            if number == 21 and self.how == "read":
                end()
            if number == 21 and self.how == "hangs":
                time.sleep(3600)
            yield number


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Opened:
    """Note each opening in a folder."""

    folder: str

    def __call__(self, x: Any) -> Dataset:
        Path(self.folder, str(int(x))).touch()
        return Dataset.range(2)


@dataclass(frozen=True)
class Meeting:
    """A dataset of slow elements, each of which says whether another process made one as well."""

    folder: str

    def __call__(self, _: Any) -> Dataset:
        return Dataset.range(6).map(self.meet)

    def meet(self, _: Any) -> bool:
        here = Path(self.folder, str(os.getpid()))
        here.touch()
        time.sleep(0.02)
        others = len(list(Path(self.folder).iterdir())) > 1
        here.unlink()
        return others
