"""How far ahead of the consumer workers should be."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.watch.histogram import Histogram

_ENOUGH = 64  # tasks
_TAIL = 4.0  # times the mean: what is slower than the others holds them up


def window(workers: int, tasks: Histogram, per_block: float, now: int, *, least: int = 3) -> int:
    """How many blocks may be under way or ready, so that slow tasks do not hold up the others.

    While one block waits for the slowest of its tasks, the workers make others:
    ``2 + workers * p99.9(time of a task) / work of a block`` keep them busy. Tasks are handed out before
    it is known who will be free first: those behind a slow one wait with it. So there are twice as many,
    and no fewer than two and a half tasks a worker. Whether there is memory for so many is for the
    caller to know.

    Parameters
    ----------
    workers : int
        How many.
    tasks : Histogram
        How long tasks took, each worker's first ones left out: they import.
    per_block : float
        How many tasks a block is cut into.
    now : int
        How many there may be now; 0: nothing was said yet.
    least : int
        No fewer than these.

    Returns
    -------
    int
        `now`, unless it should be larger by a tenth, or smaller by a quarter at least.
    """
    per_block = max(1.0, per_block)
    ahead = 2.5 * workers / per_block
    if tasks.count >= _ENOUGH and tasks.mean_s > 0:
        slowest = tasks.quantile_s(min(0.999, 1 - 1 / tasks.count))
        behind = slowest / tasks.mean_s
        if behind > _TAIL:
            ahead = max(ahead, 2 * workers * behind / per_block)
    wanted = max(least, 2 + ceil(ahead))
    return wanted if wanted > 1.1 * now or wanted <= 0.75 * now else now
