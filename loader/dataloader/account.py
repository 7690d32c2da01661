"""What one epoch's iterator has done and measured, and told as an iterator of a dataset tells it."""

from __future__ import annotations

from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from tundish.loader.run.watching.ledger import Ledger
from tundish.loader.run.watching.publishing import EVERY_S, publish, withdraw
from tundish.loader.watch.stats import Stats
from tundish.loader.watch.watch import StageMeter
from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Account"]

_STAGE = "batch"


class Account:
    """The time of an epoch, divided, and its batches counted.

    Parameters
    ----------
    plan : str
        What is told of: the dataset, in a word or two.
    workers : int
        How many make batches; 0: the caller's process.
    """

    def __init__(self, plan: str, workers: int) -> None:
        self.ledger, self._plan, self._workers = Ledger(), plan, workers
        self.stage = StageMeter(
            _STAGE, [(_STAGE, True, False)], "workers" if workers else "consumer"
        )
        self._elements = self._errors = 0
        self._cores = usable_cores()
        self._tell_at = self.ledger.began + EVERY_S
        self._cpu_entered = 0.0

    def enter(self) -> None:
        """The caller asks for a batch."""
        self.ledger.enter()
        if not self._workers:
            self._cpu_entered = thread_time()

    def leave(self, *, failed: bool = False) -> bool:
        """It gets one, or an error in its place; whether it is time to tell."""
        now = perf_counter()
        took = self.ledger.leave(now)
        self._errors += failed
        self._elements += not failed
        self.stage.gave(not failed, errors=int(failed))
        if not self._workers:
            self.stage.did(1, took, thread_time() - self._cpu_entered)
        return now >= self._tell_at

    def tell(self, stats: Callable[[], Stats]) -> None:
        """Tell how things stand; `stats` gives what is told."""
        publish(self, self._plan, stats)
        self._tell_at = perf_counter() + EVERY_S

    def end(self) -> None:
        """No more will be asked for, or nobody is left to ask."""
        self.ledger.end()
        withdraw(self)

    def stats(self) -> Stats:
        """What happened so far."""
        waited_s, own_s, outside_s, wall_s = self.ledger.so_far()
        if not self._workers:  # what is made here, is not waited for elsewhere
            waited_s, own_s = waited_s + own_s, 0.0
        return Stats(
            workers=self._workers,
            elements=self._elements,
            errors=self._errors,
            nbytes=self.stage.nbytes,
            wall_s=wall_s,
            waited_s=waited_s,
            own_s=own_s,
            outside_s=outside_s,
            waits=self.ledger.waits.frozen(),
            cpu_s=self.ledger.cpu_s,
            cores=self._cores,
            watched=True,
            stages=(self.stage.frozen(None, {}),),
        )
