"""What a trial asks of a loader, and what it answers."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance import functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PEERS = ("tundish", "torch", "torchdata", "grain", "tfdata", "datasets", "spdl")
FOLDERS = re.compile(r"(?<![\w:/])(?!/dev/)(?:/[\w.+-]+)+/(?=[\w.+-])")
"""Folders of this machine, which say nothing to a reader."""
HOLDS, FAILS, NOT_APPLICABLE = "holds", "fails", "does not apply"


@dataclass(frozen=True)
class Pipe:
    """A pipeline that every loader can be asked for.

    Parameters
    ----------
    n : int
        The number of indices, from 0.
    function : callable
        From an index to a row.
    batch : int
        Rows a batch.
    workers : int
        Processes, or threads where the loader has no processes.
    seed : int, optional
        Of the shuffle; by default the order is that of the indices.
    rank, ranks : int
        The share of the trainer.
    law : str
        The trial, so that a loader can be given the settings that its documentation advises.
    """

    n: int = 100
    function: Callable[[Any], Any] = functions.row
    batch: int = 4
    workers: int = 2
    seed: int | None = None
    rank: int = 0
    ranks: int = 1
    law: str = ""


@dataclass(frozen=True)
class Finding:
    """What a trial found: a mark, and one line on what happened."""

    mark: str
    said: str


def holds(said: str) -> Finding:
    return Finding(HOLDS, said)


def fails(said: str) -> Finding:
    return Finding(FAILS, said)


def does_not_apply(said: str) -> Finding:
    return Finding(NOT_APPLICABLE, said)


class Peer:
    """A loader, by the module that knows it.

    Parameters
    ----------
    name : str
        One of `PEERS`.
    law : str
        The trial, handed to the loader's module in each `Pipe`.
    """

    def __init__(self, name: str, law: str) -> None:
        self.name, self.law = name, law
        self.module: Any = importlib.import_module(f"conformance.peers.{name}")

    @property
    def lacks(self) -> str | None:
        """Why the law does not apply, or None."""
        reason: str | None = self.module.LACKS.get(self.law)
        return reason

    def open(self, pipe: Pipe) -> Any:
        return self.module.open(replace(pipe, law=self.law))

    def rows(self, loader: Any) -> Iterator[Any]:
        """The batches of one epoch as arrays, without a copy of them where that can be had."""
        return map(np.asarray, self.module.batches(loader))

    def all_rows(self, pipe: Pipe) -> list[Any]:
        return list(self.rows(self.open(pipe)))

    def ids(self, pipe: Pipe) -> list[int]:
        return [index for batch in self.rows(self.open(pipe)) for index in ids_of(batch)]

    def save(self, loader: Any, batches: Any, path: str) -> None:
        self.module.save(loader, batches, path)

    def resume(self, pipe: Pipe, path: str) -> Iterator[Any]:
        return map(np.asarray, self.module.resume(replace(pipe, law=self.law), path))

    def batches(self, loader: Any) -> Any:
        """The loader's own iterator, which `save` takes."""
        return self.module.batches(loader)


def ids_of(batch: Any) -> list[int]:
    return [int(index) for index in np.asarray(batch)[:, 0]]


def first_error(error: BaseException) -> str:
    """A line that says what was raised."""
    text = FOLDERS.sub("", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
