"""Batches made by worker processes, delivered in the sampler's order."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.errors import StalledError
from tundish.loader.dataloader.crew import LoaderCrew
from tundish.loader.dataloader.iterator import LoaderIterator, Settings, check_replicas
from tundish.loader.dataloader.wanted import NO_BATCH, Outcome, Wanted
from tundish.tracebacks import hide_frames

if TYPE_CHECKING:
    from tundish.loader.dataloader.progress import Progress
    from tundish.loader.watch.stats import Stats


class LoaderTimeoutError(StalledError, RuntimeError):
    """No batch came within the loader's ``timeout``; iteration can go on."""

    def __str__(self) -> str:
        if not self.seconds:
            return self.what
        return f"DataLoader timed out after {self.seconds:g} seconds, waiting for {self.what}"

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.seconds, self.detail), vars(self)


class Parallel(LoaderIterator):
    """Batches made by workers.

    Parameters
    ----------
    loader : Settings
        Whose.
    progress : Progress
        Where to begin.
    workers : int
        How many.
    """

    def __init__(self, loader: Settings, progress: Progress, workers: int) -> None:
        self._timeout, self._in_order = loader.timeout, loader.in_order
        self._size, self._owner = workers, os.getpid()
        self._lasting = loader.persistent_workers
        self._limit = max(1, loader.prefetch_factor or 1) * self._size
        self._together = 2 if self._limit > 2 else 1
        self._crew: LoaderCrew | None = None
        self._box: list[LoaderCrew] = []
        self._finalizer = weakref.finalize(self, _close_all, self._box)
        super().__init__(loader, progress, workers)
        if loader.worker_init_fn is not None:
            self._await_workers()

    def _await_workers(self) -> None:
        """Raise what ``worker_init_fn`` raised in a worker: by ``iter()``, as torchdata does."""
        crew = self._crew
        assert crew is not None
        until = time.monotonic() + self._timeout if self._timeout else None
        while crew.complaint() is None and crew.pool.starting:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break  # the first batch says so
            crew.wait(left)
        error = crew.complaint()
        if error is not None:
            self.close()
            hide_frames(error)
            raise error

    def _open(self, progress: Progress) -> None:
        if progress.base_seed is None and self._crew is not None and not self._crew.closed:
            progress.base_seed = self._crew.base_seed  # torch draws one for the same workers
        super()._open(progress)
        self._pending: deque[Wanted] = deque()
        self._taken: Wanted | None = None
        self._number = progress.batches
        self._skip = {number for number, _ in progress.ahead}
        self._all_asked = self._sampling = False
        self._ended = [False] * self._size
        self._made = [0] * self._size
        self._states: list[Any] = [None] * self._size
        self._turn = 0
        self._given_by: int | None = None  # whose batch was delivered last
        check_replicas(progress, self._size)
        replicas = progress.replicas
        self._states = list(progress.begun or self._states)
        self._told_at = [0] * self._size  # how many batches each had given as its state was told
        if replicas is not None:
            self._made, self._ended = list(replicas["made"]), list(replicas["ended"])
            self._states = list(replicas.get("states") or self._states)
            self._told_at = list(replicas.get("told_at") or self._made)
            self._turn = replicas["turn"]
        elif not self._recipe.iterable:
            self._turn = self._number % self._size
        if self._recipe.stateful:
            self._note_replicas()
        self._asked_of = list(self._made)
        self._start()
        progress.restores = False

    def _start(self) -> None:
        progress = self._progress
        assert progress.base_seed is not None
        if self._crew is None or self._crew.closed:
            self._crew = LoaderCrew(self._recipe, progress.base_seed, self._finish)
            self._box[:] = [self._crew]
        self._crew.meter = self._account.stage
        self._crew.begin(
            {
                "base_seed": progress.base_seed,
                "epoch": progress.epoch,
                "stride": self._epoch.stride,
                "replicas": self._states if any(self._states) else None,
                "made": self._told_at,
                "anew": [not told for told in self._told_at],
            }
        )
        if not progress.ended:
            self._fill()

    def reset(self, progress: Progress) -> None:
        """Begin another epoch with the same workers."""
        with self._lock:
            crew = self._crew
            if crew is not None and not crew.closed and (self._doubt or not crew.refresh()):
                crew.close()
            self._doubt = False
            self._account.end()
            self._account = self._new_account()
            self._open(progress)

    # -- asking ----------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Ask for batches, as many as may be on the way; quick ones are asked for together."""
        crew = self._crew
        assert crew is not None
        if len(self._pending) > self._limit - (self._together if crew.quick else 1):
            return
        while len(self._pending) < self._limit and not self._all_asked:
            self._sampling = True
            wanted = self._wanted()
            if wanted is not None:
                self._pending.append(wanted)
            self._sampling = False
            if wanted is None:
                self._all_asked = True
                break
            if wanted.outcome is None:
                crew.ask(wanted)
        crew.flush()

    def _wanted(self) -> Wanted | None:
        number = self._number
        if self._recipe.iterable:
            seat = self._seat()
            if seat is None:
                return None
            self._number += 1
            position = self._asked_of[seat]
            self._asked_of[seat] += 1
            return Wanted(number, None, position, seat, 0)
        try:
            keys = next(self._epoch)
            while number in self._skip:
                self._number = number = number + 1
                keys = next(self._epoch)
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - the sampler's, raised when its turn has come
            return Wanted(NO_BATCH, None, 0, None, 0, outcome=Outcome(error=error))
        self._number += 1
        seat = self._seat() if self._recipe.in_turn else None
        wanted = Wanted(number, keys.keys, keys.position, seat, keys.samples, keys.mark)
        wanted.valid = keys.valid
        return wanted

    def _seat(self) -> int | None:
        """Return the worker whose turn it is: of those that have room, where the order does not matter."""
        seats = [(self._turn + k) % self._size for k in range(self._size)]
        seats = [seat for seat in seats if not self._ended[seat]]
        if not seats:
            return None
        if not self._in_order:
            waiting = [wanted.seat for wanted in self._pending if wanted.outcome is None]
            seats.sort(key=waiting.count)
        self._turn = (seats[0] + 1) % self._size
        return seats[0]

    # -- delivering ------------------------------------------------------------------------------

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this iterator was made in process {self._owner} and cannot be used in process {os.getpid()}: make another there"
            )

    def _delivered(self) -> Any:
        assert self._crew is not None
        if self._crew.closed:  # by the user, or at the end
            raise StopIteration
        while True:
            wanted = self._awaited()
            if wanted is None:
                self._finish_epoch()
                raise StopIteration
            outcome = wanted.outcome
            assert outcome is not None
            if outcome.ended:
                self._pending.remove(wanted)
                assert wanted.seat is not None
                self._ended[wanted.seat] = True
                self._note_state(wanted.seat, self._crew.open(outcome)[1])
                self._note_replicas()
                self._fill()
                continue
            return self._take(wanted, outcome)

    def _take(self, wanted: Wanted, outcome: Outcome) -> Any:
        crew = self._crew
        assert crew is not None
        self._pending.remove(wanted)
        self._taken = wanted  # until it is noted: an interrupt must not lose it
        batch = state = None
        if outcome.error is None:
            batch, state = crew.open(outcome)
            batch = self._finished(batch, wanted.valid)
        self._fill()
        self._note(wanted, state)
        self._taken = None
        if outcome.error is not None:
            raise outcome.error
        return batch

    def _awaited(self) -> Wanted | None:
        """Return the batch whose turn it is, made; None after the last."""
        crew = self._crew
        assert crew is not None
        if self._progress.ended:
            return None
        until = time.monotonic() + self._timeout if self._timeout else None
        while True:
            ready = self._ready()
            if ready is not None:
                return ready
            if not self._pending:
                return None
            left = None
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise LoaderTimeoutError(self._waits_for(), self._timeout)
            ledger = self._account.ledger
            ledger.waits_since = began = time.perf_counter()
            try:
                crew.wait(left)
            except BaseException:
                self._idle = crew.idle
                raise
            ledger.waited(time.perf_counter() - began)

    def _ready(self) -> Wanted | None:
        """A batch that may be delivered now."""
        pending = self._pending
        if not pending:
            self._fill()
        if self._in_order:
            return pending[0] if pending and pending[0].outcome is not None else None
        return next((wanted for wanted in pending if wanted.outcome is not None), None)

    def _waits_for(self) -> str:
        number = self._pending[0].number
        return f"batch {number} (workers {self.worker_pids()})"

    def _note(self, wanted: Wanted, state: Any) -> None:
        if wanted.number == NO_BATCH:
            return
        progress = self._progress
        progress.remember()
        progress.delivered(wanted.number, wanted.samples)
        if wanted.mark is not None:
            progress.place(wanted.mark)
        if wanted.seat is not None and self._recipe.has_copies:
            self._made[wanted.seat] += 1
            self._given_by = wanted.seat
            self._note_state(wanted.seat, state)
            self._note_replicas()

    def _note_state(self, seat: int, state: Any) -> None:
        """Keep what a worker said of its replica; with an error it says nothing."""
        if state is not None:
            self._states[seat], self._told_at[seat] = state, self._made[seat]

    def _note_replicas(self) -> None:
        replicas = {
            "made": list(self._made),
            "ended": list(self._ended),
            "turn": self._turn if self._given_by is None else (self._given_by + 1) % self._size,
        }
        if any(each is not None for each in self._states):
            replicas["states"] = list(self._states)
            if self._told_at != self._made:
                replicas["told_at"] = list(self._told_at)
        self._progress.replicas = replicas

    @property
    def lasting_seed(self) -> int | None:
        """The base seed of workers that stay; None where others will come."""
        stays = self._lasting and self._crew is not None and not self._crew.closed
        return self._crew.base_seed if stays and self._crew is not None else None

    def _finish_epoch(self) -> None:
        self._progress.end()
        if not self._lasting:
            self.close()

    def _heal(self) -> None:
        assert self._crew is not None
        self._crew.close()
        if self._taken is not None:
            self._pending.appendleft(self._taken)
            self._taken = None
        if self._sampling:  # it ended the sampler's generator, perhaps
            self._open(self._progress)
        else:
            self._start_over(self._pending)

    def _start_over(self, pending: deque[Wanted]) -> None:
        self._pending = deque()
        kept, self._limit = self._limit, 0
        try:
            self._start()
        finally:
            self._limit = kept
        crew = self._crew
        assert crew is not None
        for each in pending:
            wanted = each
            if each.outcome is None:
                wanted = replace(each, slot=None, reserved=0, deaths=0, careful=False)
                crew.ask(wanted)
            self._pending.append(wanted)
        if self._recipe.iterable:
            self._asked_of = [
                max([self._made[seat], *(w.position + 1 for w in self._pending if w.seat == seat)])
                for seat in range(self._size)
            ]
        crew.flush()

    @property
    def _exiting(self) -> bool:
        return not self._finalizer.alive

    # -- around ----------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """The counts and times of this epoch so far; its elements are batches."""
        crew, meter = self._crew, self._account.stage
        meter.in_flight = sum(wanted.outcome is None for wanted in list(self._pending))
        meter.ready, meter.window = len(self._pending) - meter.in_flight, self._limit
        stats = self._account.stats()
        return stats if crew is None else crew.standing(stats)

    @property
    def copies(self) -> int:
        return 0 if self._crew is None else self._crew.copies

    def worker_pids(self) -> list[int]:
        return [] if self._crew is None else self._crew.worker_pids()

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
        self._account.end()


def _close_all(crews: list[LoaderCrew]) -> None:
    for crew in crews:
        crew.close()
