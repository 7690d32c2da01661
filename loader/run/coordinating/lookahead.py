"""Limits on the number of blocks of a stage that are in flight or ready, memory permitting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.run.coordinating.computed import rows_per_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.stages.stage import Stage
    from tundish.loader.watch.histogram import Histogram

_LEAST_BLOCKS = 3
_EVERY_S = 0.1


class LookAhead:
    """Limits how far stages run ahead of the consumer.

    Parameters
    ----------
    nodes : sequence of Operator
        The plan's nodes; `prefetch` among them requests a number.
    tuned : bool
        True to adapt to measured times of tasks in any case.
    """

    def __init__(self, nodes: Iterable[Operator], *, tuned: bool) -> None:
        nodes = list(nodes)
        asked = [n.prefetched for n in nodes if n.prefetched is not None]
        self._measures = tuned or AUTOTUNE in asked
        self._least = max([_LEAST_BLOCKS, *asked])
        self._most = min((n.outstanding for n in nodes if n.outstanding is not None), default=None)
        self._look_at = 0.0
        self._before_all: dict[str, Histogram] = {}  # times of tasks before all workers were up

    def window(self, stage: Stage, workers: int) -> int:
        """Return the largest number of blocks of a stage; the answer is cached."""
        if stage.window:
            return stage.window
        # A number learnt with fewer workers may leave some of them without a task, and they would never be measured.
        even = 2 + -(-5 * workers // (2 * tasks_per_block(stage, workers)))
        stage.window = max(self._least, even, stage.ahead, stage.least_window)
        if self._most is not None:
            stage.window = max(stage.least_window, min(stage.window, self._most))
        return stage.window

    def is_due(self, now: float) -> bool:
        """Return True if it is time for `measure`, by ``perf_counter``."""
        if not self._measures or now < self._look_at:
            return False
        self._look_at = now + _EVERY_S
        return True

    def measure(self, stages: Iterable[Stage], workers: int, *, fresh: bool) -> None:
        """Learn from the times of tasks since all workers are up.

        Parameters
        ----------
        stages : iterable
            The stages that may run ahead.
        workers : int
            The number of workers.
        fresh : bool
            True if a worker has not done a task yet.
        """
        from tundish.loader.watch.throughput import window  # noqa: PLC0415 - only if tuned

        for stage in stages:
            meter, times = stage.meter, stage.meter.time
            if fresh:
                self._before_all.pop(meter.name, None)
                continue
            since = times.since(self._before_all.setdefault(meter.name, times))
            stage.ahead = window(workers, since, tasks_per_block(stage, workers), stage.ahead)


def tasks_per_block(stage: Stage, workers: int) -> int:
    """Return the number of tasks of a stage's block, given the number of workers."""
    if stage.group == 1:
        return 1
    return max(1, -(-stage.group // rows_per_task(stage, stage.group, workers)))
