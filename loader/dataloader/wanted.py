"""A batch that workers were asked for, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tundish.loader.dataloader.epoch import Mark

NO_BATCH = -1
"""The number of an error that a sampler has raised: it stands for no batch."""


@dataclass(eq=False)
class Wanted:
    """A batch that workers were asked for.

    Parameters
    ----------
    number : int
        Which batch of the epoch.
    keys : object
        Of its samples; None for an iterable dataset.
    position : int
        Where its first sample stands in the epoch; for an iterable, which batch of its replica.
    seat : int or None
        The only worker that may make it.
    samples : int
        How many keys.
    mark : Mark or None
        Where the sampler stood after it.
    valid : numpy.ndarray or None
        Which of its samples are no padding, where the sampler says so.
    """

    number: int
    keys: Any
    position: int
    seat: int | None
    samples: int
    mark: Mark | None = None
    valid: np.ndarray | None = None
    slot: int | None = None
    reserved: int = 0
    deaths: int = 0
    careful: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a batch.

    Parameters
    ----------
    message : bytes
        Of `write_batch`.
    root : numpy.ndarray or None
        The slot, leased.
    error : BaseException or None
        Instead of a batch.
    ended : bool
        Instead of a batch: the worker's replica has no more; the message has its state only.
    """

    message: bytes = b""
    root: np.ndarray | None = None
    error: BaseException | None = None
    ended: bool = False
