"""`Hedging`: chooses the overdue tasks of workers on other machines that a second worker does, too.

Tasks are pure, so the first answer counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tundish.loader.run.pool.peers import Job
    from tundish.loader.run.pool.pool import Pool

_LATE_S, _LATE = 0.3, 3.0
"""A task is overdue after `_LATE_S` seconds and `_LATE` times the 99th percentile of its stage's times."""
_LONG = 4.0
"""The factor by which both limits grow once a twentieth of all tasks has been done twice."""
_LEAST_TASKS = 8
"""The number of tasks that a stage must have done before one of them is done twice."""


class Hedging:
    """Finds tasks to be done twice.

    Attributes
    ----------
    count : int
        The number of tasks that were given to a second worker.
    """

    def __init__(self) -> None:
        self.count = 0

    def due(self, pool: Pool, blocks: Iterable[Any], now: float) -> Iterator[Job]:
        """Yield the tasks to submit: each is the twin of one that is overdue.

        A worker is helped only if the first of a stage's `blocks` waits for it. At most a twentieth of all tasks is done
        twice, except for workers that have been silent for long.
        """
        peers = pool.up_elsewhere()
        silent = [(p, now - p.busy_since) for p in peers if p.jobs]
        silent = [(p, late_s) for p, late_s in silent if late_s > _LATE_S]
        others = [p for p in peers if all(p is not each for each, _ in silent)]
        if not silent or not others:
            return
        heads: dict[int, Any] = {}
        for block in blocks:
            heads.setdefault(id(block.stage), block)
        for peer, late_s in silent:
            holds_up = False
            for job in list(peer.jobs):
                # Its tasks after that one will be late, too.
                holds_up = holds_up or heads.get(id(job.block.stage)) is job.block
                if holds_up and self._may_double(job, late_s, pool):
                    self.count += 1
                    peer.load += _LATE_S  # others are asked first until it answers
                    prefer = min(others, key=lambda p: (p.where == peer.where, p.load))
                    job.twin = replace(
                        job, prefer=prefer, progress=None, roots=list(job.roots), twin=job
                    )
                    yield job.twin

    def _may_double(self, job: Job, late_s: float, pool: Pool) -> bool:
        """Return True if a task may be done twice; its worker has been silent for `late_s` seconds."""
        stage = job.block.stage
        if job.twin is not None or job.superseded or job.seat is not None or job.held:
            return False
        if not stage.tasks.makes_again or stage.meter.tasks < _LEAST_TASKS:
            return False
        late_s /= 1.0 if self.count <= pool.totals.tasks // 20 else _LONG
        return bool(late_s > max(_LATE_S, _LATE * stage.meter.time.quantile_s(0.99)))
