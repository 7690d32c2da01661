"""Batches made by worker processes, in the sampler's order."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.errors import StalledError
from tundish.forked import misused
from tundish.loader.dataloader.iterator import LoaderIterator, LoaderSettings, check_replicas
from tundish.loader.dataloader.outfit import Outfit
from tundish.loader.dataloader.wanted import NO_BATCH, BatchStage, BatchTasks, Wanted
from tundish.loader.dataloader.wire import unpack_batch
from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.raised import is_interrupt, opened
from tundish.loader.run.coordinating.coordinator import Coordinator
from tundish.loader.run.coordinating.deaths import Deaths
from tundish.loader.run.coordinating.memory import Memory
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.watching.tracing import open_trace
from tundish.shm.budget import default_budget
from tundish.tracebacks import hide_frames

if TYPE_CHECKING:
    from tundish.loader.dataloader.progress import Progress
    from tundish.loader.run.pool.pool import Pool
    from tundish.loader.watch.stats import Stats


class LoaderTimeoutError(StalledError, RuntimeError):
    """No batch came within the loader's ``timeout``; iteration can continue."""

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
    loader : LoaderSettings
        The loader.
    progress : Progress
        The position to start at.
    workers : int
        The number of workers.
    """

    def __init__(self, loader: LoaderSettings, progress: Progress, workers: int) -> None:
        self._timeout, self._in_order = loader.timeout, loader.in_order
        self._size, self._recruiting = workers, loader._recruiting  # noqa: SLF001 - in common
        self._lasting = loader.persistent_workers
        self._limit = max(1, loader.prefetch_factor or 1) * self._size
        self._together = 2 if self._limit > 2 else 1
        self._coordinator: Coordinator | None = None
        self._box: list[Coordinator] = []
        self._finalizer = weakref.finalize(self, _close_all, self._box)
        super().__init__(loader, progress, workers)
        if loader.worker_init_fn is not None:
            self._await_workers()

    def _await_workers(self) -> None:
        """Raise in ``iter()`` an error of ``worker_init_fn`` in a worker, as torchdata does."""
        coordinator = self._coordinator
        assert coordinator is not None
        pool = coordinator.pool
        assert pool is not None
        until = time.monotonic() + self._timeout if self._timeout else None
        while not pool.complaints and pool.starting:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return  # the first batch says so
            coordinator.moved = True  # whatever a worker says ends the wait
            pool.pump(left)
        if pool.complaints:
            self.close()
            error = opened(loads_exception(pool.complaints[0]))
            hide_frames(error)
            raise error

    @property
    def _closed(self) -> bool:
        """True if there are no workers."""
        return self._coordinator is None or self._coordinator.pool is None

    def _open(self, progress: Progress) -> None:
        if progress.base_seed is None and not self._closed:
            progress.base_seed = self._outfit.base_seed  # torch draws one for the same workers
        super()._open(progress)
        self._pending: deque[Wanted] = deque()
        self._unasked: list[Wanted] = []  # the last of them, if their request waits for another
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
        if not progress.ended:
            self._fill()
        progress.restores = False

    def _start(self) -> None:
        progress = self._progress
        assert progress.base_seed is not None
        if self._closed:
            with uninterrupted():
                self._hire(progress.base_seed)
        self._stage.begin(
            {
                "base_seed": progress.base_seed,
                "epoch": progress.epoch,
                "stride": self._epoch.stride,
                "replicas": self._states if any(self._states) else None,
                "made": self._told_at,
                "anew": [not told for told in self._told_at],
                "moment": self._outfit.changes,
            },
            self._account.stage,
        )

    def _hire(self, base_seed: int) -> None:
        """Start new workers."""
        recipe = self._recipe
        self._outfit = Outfit(recipe, base_seed, self._recruiting)
        coordinator = Coordinator(self._size, Memory(default_budget().nbytes), Deaths())
        coordinator.open(self._outfit.crew, open_trace(None, "DataLoader", self._size))
        self._coordinator, self._box[:] = coordinator, [coordinator]
        tasks = BatchTasks(recipe, self._finish)
        self._stage = BatchStage(coordinator, tasks, self._account.stage, self._limit)

    def reset(self, progress: Progress) -> None:
        """Begin another epoch with the same workers."""
        with self._lock:
            if not self._closed and (self._doubt or not self._outfit.refresh()):
                self._close_workers()
            self._doubt = False
            self._account.end()
            self._account = self._new_account()
            self._open(progress)

    # -- asking ----------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Take keys up to the permitted number of batches, and request these.

        A sampler may draw from a generator that the consumer's loop draws from, too, or read what the loop writes. So it
        is asked exactly when torch asks it, however quick the batches are: only the request may wait for another.
        """
        while len(self._pending) < self._limit and not self._all_asked:
            self._sampling = True
            wanted = self._wanted()
            if wanted is not None:
                self._pending.append(wanted)
                if wanted.left:
                    self._unasked.append(wanted)
            self._sampling = False
            self._all_asked = wanted is None
        quick = self._stage.quick
        full = len(self._unasked) >= (self._together if quick else 1)
        if full or self._all_asked or self._is_unasked_next():
            asked, self._unasked = self._unasked, []
            self._stage.ask(asked, by_two=quick)

    def _is_unasked_next(self) -> bool:
        """Return True if the batch that comes first has not been requested."""
        return bool(self._unasked) and self._pending[0] is self._unasked[0]

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
            wanted = Wanted(NO_BATCH, None, 0, None, 0)
            wanted.error, wanted.left = error, 0
            return wanted
        self._number += 1
        seat = self._seat() if self._recipe.in_turn else None
        wanted = Wanted(number, keys.keys, keys.position, seat, keys.samples, keys.mark)
        wanted.valid = keys.valid
        return wanted

    def _seat(self) -> int | None:
        """Return the worker for the next batch: of those with room, if the order does not matter."""
        seats = [(self._turn + k) % self._size for k in range(self._size)]
        seats = [seat for seat in seats if not self._ended[seat]]
        if not seats:
            return None
        if not self._in_order:
            waiting = [wanted.seat for wanted in self._pending if wanted.left]
            seats.sort(key=waiting.count)
        self._turn = (seats[0] + 1) % self._size
        return seats[0]

    # -- delivering ------------------------------------------------------------------------------

    def _check_process(self) -> None:
        coordinator = self._coordinator
        if coordinator is not None and os.getpid() != coordinator.owner:
            raise misused(coordinator.owner)

    def _delivered(self) -> Any:
        coordinator = self._coordinator
        assert coordinator is not None
        if coordinator.pool is None:  # closed by the user, or at the end
            raise StopIteration
        while True:
            wanted = self._awaited(coordinator, coordinator.pool)
            if wanted is None:
                self._finish_epoch()
                raise StopIteration
            if not wanted.ended:
                return self._take(wanted)
            self._pending.remove(wanted)
            assert wanted.seat is not None
            self._ended[wanted.seat] = True
            self._note_state(wanted.seat, self._unpacked(wanted)[1])
            self._note_replicas()
            self._fill()

    def _take(self, wanted: Wanted) -> Any:
        self._pending.remove(wanted)
        self._taken = wanted  # until it is noted: an interrupt must not lose it
        batch = state = None
        if wanted.error is None:
            try:
                batch, state = self._unpacked(wanted)
                batch = self._finished(batch, wanted.valid)
            except Exception as error:
                if is_interrupt(error):
                    raise
                wanted.error = error  # the batch's, as if its worker had told it
        self._fill()
        self._note(wanted, state)
        self._taken = None
        if wanted.error is not None:
            raise wanted.error
        return batch

    def _unpacked(self, wanted: Wanted) -> tuple[Any, Any]:
        """Return a batch and its replica's state; the batch is a view of its slot, memory permitting."""
        assert self._coordinator is not None
        copy = self._coordinator.runs_short(wanted)
        batch, state = unpack_batch(wanted.message, wanted.root, copy=copy)
        return batch, state

    def _awaited(self, coordinator: Coordinator, pool: Pool) -> Wanted | None:
        """Wait for the next batch in order, and return it; None after the last."""
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
            if coordinator.goes_on():
                continue
            try:
                coordinator.wait(self._account.ledger, left)
            except BaseException:
                self._idle = pool.idle
                raise

    def _ready(self) -> Wanted | None:
        """Return a batch that may be delivered now."""
        pending = self._pending
        if not pending or self._is_unasked_next():
            self._fill()
        if self._in_order:
            return pending[0] if pending and not pending[0].left else None
        return next((wanted for wanted in pending if not wanted.left), None)

    def _waits_for(self) -> str:
        number = self._pending[0].batch
        return f"batch {number} (workers {self.worker_pids()})"

    def _note(self, wanted: Wanted, state: Any) -> None:
        if wanted.batch == NO_BATCH:
            return
        progress = self._progress
        progress.remember()
        # An end of a replica was asked for as a batch, and is none: an iterable's batches are numbered as they come.
        number = progress.batches if self._recipe.iterable else wanted.batch
        progress.delivered(number, wanted.samples)
        if wanted.mark is not None:
            progress.place(wanted.mark)
        if wanted.seat is not None and self._recipe.has_copies:
            self._made[wanted.seat] += 1
            self._given_by = wanted.seat
            self._note_state(wanted.seat, state)
            self._note_replicas()

    def _note_state(self, seat: int, state: Any) -> None:
        """Keep the state of a worker's replica; an error has none."""
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
        """Return the base seed of persistent workers; None if new ones will start."""
        return None if self._closed or not self._lasting else self._outfit.base_seed

    def _finish_epoch(self) -> None:
        self._progress.end()
        if not self._lasting:
            self.close()

    def _heal(self) -> None:
        self._close_workers()
        if self._taken is not None:
            self._pending.appendleft(self._taken)
            self._taken = None
        if self._sampling:  # it ended the sampler's generator, perhaps
            self._open(self._progress)
        else:
            self._start_over(self._pending)

    def _start_over(self, pending: deque[Wanted]) -> None:
        self._pending, self._unasked = deque(), []
        self._start()
        self._pending.extend(replace(each) if each.left else each for each in pending)
        if self._recipe.iterable:
            self._asked_of = [
                max([self._made[seat], *(w.position + 1 for w in self._pending if w.seat == seat)])
                for seat in range(self._size)
            ]
        self._stage.ask([each for each in self._pending if each.left])

    @property
    def _exiting(self) -> bool:
        return not self._finalizer.alive

    # -- around ----------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """The counts and times of this epoch so far; its elements are batches."""
        coordinator, meter = self._coordinator, self._account.stage
        meter.in_flight = sum(wanted.left for wanted in list(self._pending))
        meter.ready, meter.window = len(self._pending) - meter.in_flight, self._limit
        stats = self._account.stats()
        return stats if coordinator is None else coordinator.standing(stats)

    @property
    def copies(self) -> int:
        return 0 if self._coordinator is None else self._coordinator.memory.copies

    def worker_pids(self) -> list[int]:
        return [] if self._coordinator is None else self._coordinator.worker_pids()

    def close(self) -> None:
        self._close_workers()
        self._account.end()

    def _close_workers(self) -> None:
        _close_all(self._box)


def _close_all(coordinators: list[Coordinator]) -> None:
    for coordinator in coordinators:
        coordinator.close()
