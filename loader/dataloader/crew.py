"""The workers of a `DataLoader`, as its iterator uses them: batches asked for, outcomes.

It lives in the consumer's process and has no thread. A worker that dies takes nothing along but
time: its batches are made again elsewhere. The one it was at is made again with the worker saying
which sample it begins, so that a sample that kills is named.
"""

from __future__ import annotations

import os
import pickle
import warnings
from array import array
from collections import deque
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SharedMemoryError, WorkerDiedError
from tundish.loader.dataloader.flavour import modules_to_preload
from tundish.loader.dataloader.wanted import Outcome, Wanted
from tundish.loader.dataloader.wire import unpack_batch
from tundish.loader.protocols.raised import carried, opened
from tundish.loader.run.coordinating.store import Reserve, bury, shared_ring, visit_graves
from tundish.loader.run.pool.outfit import crew_of_processes, moment_of
from tundish.loader.run.pool.peers import Job
from tundish.loader.run.pool.pool import Pool
from tundish.loader.run.starting.agreeing import told_of
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.starting.payload import loads_exception, pack
from tundish.loader.run.starting.watchdog import deadlocked
from tundish.loader.run.watching.tracing import open_trace
from tundish.loader.run.wire.messages import (
    EXTRA,
    EXTRA_IN_SLOT,
    NO_SLOT,
    POINTER,
    STREAM_END,
    Items,
    Kind,
    Task,
)
from tundish.shm.budget import default_budget
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.dataloader.flavour import Finish
    from tundish.loader.dataloader.recipe import Recipe
    from tundish.loader.plan.reads import GlobalName
    from tundish.loader.run.pool.outfit import Part
    from tundish.loader.run.pool.peers import Crew
    from tundish.loader.run.starting.launcher import Exit
    from tundish.loader.run.starting.moment import Moment
    from tundish.loader.run.starting.payload import Met
    from tundish.loader.run.wire.messages import Done
    from tundish.loader.watch.stats import Stats
    from tundish.loader.watch.watch import StageMeter
    from tundish.shm.layout import Layout

_MOST_DEATHS = 3
_FIRST_SHARE = 16
_SLACK = 65536
_TAIL_BYTES = 32768
_QUICK_S = 0.0005
_INTEGERS = {int}
_ADVICE = "make it in worker_init_fn=, make it when it is first needed, or use num_workers=0"


class LoaderCrew:
    """The workers and what they have been asked for.

    Parameters
    ----------
    recipe : Recipe
        What is to be done.
    base_seed : int
        The loader's.
    finish : Finish or None
        Told of slots before they are leased.
    """

    moved = True  # a wait ends with any answer

    def __init__(self, recipe: Recipe, base_seed: int, finish: Finish | None) -> None:
        visit_graves()
        self._recipe, self._owner = recipe, os.getpid()
        self.base_seed, self._finish = base_seed, finish
        self.budget = default_budget().nbytes
        self._ring = shared_ring(self.budget)
        self._arena = None if self._ring is None else self._ring.arena
        if self._ring is not None and self._ring.used_bytes > self.budget:
            self._ring.trim(self.budget)
        self._reserve = Reserve(self._ring, self.budget)
        self._deferred: deque[tuple[Job, int]] = deque()
        self._queue: list[Job] = []
        self._asked: dict[int, Wanted] = {}
        self._stage = self._blocks = 0
        self._nbytes = 0
        self._batch_s = 1.0
        self.copies = 0
        self.meter: StageMeter | None = None
        """Where batches are counted as they are made."""
        with uninterrupted():
            self._crew = crew = _crew_of(recipe, base_seed)
            self._changed: set[GlobalName] = set()
            trace = open_trace(None, "DataLoader", recipe.workers)
            self._pool: Pool | None = Pool(
                recipe.workers, self._arena, crew, owner=self, trace=trace
            )

    @property
    def pool(self) -> Pool:
        """The processes; open."""
        assert self._pool is not None
        return self._pool

    @property
    def closed(self) -> bool:
        """True if the workers have been ended."""
        return self._pool is None

    @property
    def idle(self) -> bool:
        """True if an interrupt fell into the last `wait`, and nothing has been done since."""
        return self._pool is not None and self._pool.idle

    # -- asking --------------------------------------------------------------------------------

    def begin(self, epoch: dict[str, Any]) -> None:
        """Begin an epoch; what is still asked for of the last one is forgotten."""
        self._stage += 1
        self._forget()
        moment = self._moment.of(self._changed)  # whatever a worker that stays has been told of it
        self.pool.define(self._stage, False, {**epoch, "moment": moment})

    def refresh(self) -> bool:
        """Look at what holds in the consumer now, for workers that stay and those in their places.

        Returns
        -------
        bool
            False where so much has changed that only new workers can be told.
        """
        before, policy = self._moment, self._recipe.globals
        self._crew.config["moment"] = moment_of(self._crew.met, policy)
        told = told_of(before.entries, self._moment.entries, policy)
        self._changed |= self._moment.changes(before)
        for text in told:
            warnings.warn(text, stacklevel=callers_level())
        return sum(len(each.value) for each in self._moment.of(self._changed).entries) < _TAIL_BYTES

    @property
    def _moment(self) -> Moment:
        """Settings and globals of the consumer when it last looked."""
        moment: Moment = self._crew.config["moment"]
        return moment

    def ask(self, wanted: Wanted) -> None:
        """Ask for a batch; `flush` hands it out."""
        ring = self._ring
        self._blocks += 1
        self._asked[self._blocks] = wanted
        if ring is not None:
            wanted.slot = ring.acquire()
        quota = self._quota()
        job = self._job(self._blocks, wanted, quota)
        if self._reserve.take(wanted, quota):
            self._queue.append(job)
        else:
            self._deferred.append((job, quota))

    def flush(self) -> None:
        """Hand out what has been asked for, as far as there is memory."""
        while self._deferred and self._grant(*self._deferred[0]):
            self._deferred.popleft()
        if self._queue:
            jobs, self._queue = self._queue, []
            if self.quick:
                # One message to one worker, instead of two to two.
                peers = self.pool.by_load()
                for at, job in enumerate(jobs):
                    job.prefer = job.prefer or (peers[at // 2 % len(peers)] if peers else None)
            self.pool.submit(jobs)

    @property
    def quick(self) -> bool:
        """True if a batch takes less time than a message is worth."""
        return self._batch_s < _QUICK_S

    def wait(self, timeout_s: float | None) -> None:
        """Take in what workers have answered; wait for something, so long."""
        pool = self.pool
        pool.idle = False
        if self._deferred and not (pool.in_flight or pool.starts):
            # Nobody will give memory back: what is ready waits, and consumers hold the rest.
            job, nbytes = self._deferred.popleft()
            self._grant(job, nbytes, force=True)
            self.flush()
        pool.pump(timeout_s)
        self.flush()

    def complaint(self) -> BaseException | None:
        """Return what ``worker_init_fn`` raised in a worker; None where none has said so yet."""
        complaints = self.pool.complaints
        return opened(loads_exception(complaints[0])) if complaints else None

    def _quota(self) -> int:
        known = self._nbytes
        if known:
            return min(self.budget, known + known // 8 + _SLACK)
        return self.budget // _FIRST_SHARE

    def _job(self, block: int, wanted: Wanted, quota: int) -> Job:
        keys, kind, tail = wanted.keys, Items.ENCODED, b""
        if isinstance(keys, list) and set(map(type, keys)) <= _INTEGERS:
            try:
                kind, tail = Items.INDICES, array("q", keys).tobytes()
            except OverflowError:
                kind, tail = Items.ENCODED, pickle.dumps(keys)
        elif keys is not None:
            tail = pickle.dumps(keys)
        tail, held = self._told(tail)
        slot = NO_SLOT if wanted.slot is None else wanted.slot
        have = self._ring.allocated(slot) if self._ring is not None and slot != NO_SLOT else 0
        task = Task(
            Kind.TASK,
            kind,
            self._stage,
            block,
            slot,
            0,
            max(1, wanted.samples),
            int(wanted.careful),
            have,
            max(have, quota),
            wanted.number,
            wanted.position,
            len(tail),
        )
        return Job(task, tail, wanted, cost=1.0, seat=wanted.seat, held=held)

    def _told(self, keys: bytes) -> tuple[bytes, list[int]]:
        """Keys as a tail; or a tail that names the slot they were written to, if they are many."""
        ring, arena = self._ring, self._arena
        slot = None
        if ring is not None and len(keys) > _TAIL_BYTES:
            slot = ring.acquire()
        if ring is None or arena is None or slot is None:
            return b"\0" + keys, []
        arena.allocate(slot, 0, len(keys))
        ring.grew(slot, len(keys))
        arena.root(slot, len(keys))[:] = np.frombuffer(keys, np.uint8)
        return b"\1" + POINTER.pack(slot, len(keys)), [slot]

    def _let_go(self, job: Job) -> None:
        """Give back what a task's keys were written to."""
        held, job.held = job.held, []
        for slot in held:
            assert self._ring is not None
            self._ring.release(slot)

    # -- what workers answer -------------------------------------------------------------------

    def done(self, job: Job, done: Done, layout: Layout | None, tail: memoryview) -> None:
        """Take in a batch."""
        wanted: Wanted = job.block
        self._let_go(job)
        self._reserve.give_back(wanted)
        self._batch_s = 0.8 * self._batch_s + 0.2e-6 * done.micros
        if self.meter is not None and job.task.stage == self._stage:
            self.meter.did(1, done.micros * 1e-6, done.busy * 1e-6)
            self.meter.nbytes += done.nbytes + len(tail)
        if self._ring is not None and wanted.slot is not None:
            self._ring.grew(wanted.slot, done.nbytes)
        if self._asked.pop(job.task.block, None) is None:
            self._release(wanted)
            return
        root = None
        if done.flags & EXTRA_IN_SLOT:
            assert self._ring is not None
            assert wanted.slot is not None
            if self._finish is not None:
                self._finish.lend(wanted.slot, self._ring.allocated(wanted.slot))
            root, wanted.slot = self._ring.lease(wanted.slot, done.nbytes), None
            self._nbytes = max(done.nbytes, self._nbytes // 2)
        else:
            self._release(wanted)
        if done.flags & EXTRA:
            wanted.outcome = Outcome(error=carried(loads_exception(tail)))
        else:
            wanted.outcome = Outcome(bytes(tail), root, ended=bool(done.flags & STREAM_END))

    def need(self, job: Job, nbytes: int, *, alone: bool) -> None:
        """Take note that a batch needs a larger slot."""
        wanted: Wanted = job.block
        self._reserve.give_back(wanted)
        self._nbytes = max(self._nbytes, nbytes)
        if job.task.block not in self._asked:
            self._drop(job)
        elif nbytes <= self.budget:
            self._deferred.append((job, nbytes))
        else:
            advice = "set TUNDISH_BUDGET, or use smaller batches"
            self._fail(job, SharedMemoryError("a batch", nbytes, self.budget, advice))

    def _grant(self, job: Job, nbytes: int, *, force: bool = False) -> bool:
        wanted: Wanted = job.block
        if job.task.block not in self._asked:
            self._drop(job)
            return True
        if not self._reserve.take(wanted, nbytes) and not force:
            return False
        if wanted.slot is not None and self._ring is not None:
            have = self._ring.allocated(wanted.slot)
            job.task = job.task._replace(have=have, may=max(have, nbytes))
        self._queue.append(job)
        return True

    def _release(self, wanted: Wanted, *, counted: bool = True) -> None:
        """Put a batch's slot back; emptied, where nobody has counted what a worker wrote."""
        slot, wanted.slot = wanted.slot, None
        self._reserve.give_back(wanted)
        if slot is not None:
            assert self._ring is not None
            if not counted:
                self._ring.empty(slot)
            self._ring.release(slot)

    def _drop(self, job: Job) -> None:
        """Give back everything a task had that nobody will answer."""
        self._let_go(job)
        self._release(job.block, counted=False)

    def _forget(self) -> None:
        self._asked.clear()
        for job in [*self._queue, *(job for job, _ in self._deferred)]:
            self._drop(job)
        self._queue.clear()
        self._deferred.clear()

    # -- deaths --------------------------------------------------------------------------------

    def lost(self, jobs: list[Job], begun: Job | None, how: Exit) -> None:
        """Hand on the batches of a worker that died, or make them errors."""
        for job in jobs:
            wanted: Wanted = job.block
            if job.task.block not in self._asked:
                self._drop(job)
            elif how.stuck and job is begun:
                self._fail(job, deadlocked(self._named(wanted, job.progress), how.stderr))
            elif not self._recipe.makes_again:
                self._fail(job, WorkerDiedError(self._named(wanted), _as_torch(how), 1, how.stderr))
            elif job is begun:
                self._begun(job, how)
            else:
                self._queue.append(job)
        self.flush()

    def _begun(self, job: Job, how: Exit) -> None:
        wanted: Wanted = job.block
        wanted.deaths += 1
        if wanted.deaths >= _MOST_DEATHS:
            who = self._named(wanted, job.progress)
            self._fail(job, WorkerDiedError(who, _as_torch(how), wanted.deaths, how.stderr))
            return
        wanted.careful = True
        job.task = job.task._replace(total=1)
        self._queue.append(job)

    def _named(self, wanted: Wanted, at: int | None = None) -> str:
        if wanted.keys is None:
            return f"batch {wanted.position} of worker {wanted.seat}"
        if at is None or not isinstance(wanted.keys, list):
            shown = repr(wanted.keys)
            return f"the batch of indices {shown if len(shown) < 200 else shown[:200] + '...'}"
        return f"the sample of index {wanted.keys[at]!r}"

    def _fail(self, job: Job, error: BaseException) -> None:
        wanted: Wanted = job.block
        del self._asked[job.task.block]
        self._drop(job)
        wanted.outcome = Outcome(error=error)

    # -- delivering ----------------------------------------------------------------------------

    def open(self, outcome: Outcome) -> tuple[Any, Any]:
        """A batch and its replica's state; the batch is a view of its slot while there is room."""
        root = outcome.root
        copy = root is not None and self._short_of()
        self.copies += copy
        batch, state = unpack_batch(outcome.message, root, copy=copy)
        return batch, state

    def _short_of(self) -> bool:
        """Return True if another lease would leave too little memory to go on with."""
        ring = self._ring
        assert ring is not None
        need = 3 * self._quota()
        room = self.budget - ring.used_bytes - self._reserve.nbytes
        return (room < need and room + ring.free_bytes < need) or (
            ring.free <= 2 * self._recipe.workers + 4
        )

    # -- around --------------------------------------------------------------------------------

    def standing(self, stats: Stats) -> Stats:
        """Return what was measured, with how workers and memory stand."""
        pool, ring = self._pool, self._ring
        return replace(
            stats,
            pool=() if pool is None else pool.measured(),
            restarts=0 if pool is None else pool.restarts,
            tasks=0 if pool is None else pool.tasks,
            copies=self.copies,
            leased=0 if ring is None else ring.leased,
            used_bytes=0 if ring is None else ring.used_bytes,
            budget_bytes=self.budget,
        )

    def worker_pids(self) -> list[int]:
        """The processes that are known to run."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers at once, whatever they are doing. Safe to call twice."""
        pool, self._pool = self._pool, None
        if pool is None or os.getpid() != self._owner:
            return
        with uninterrupted():
            there = pool.close()
            jobs = [*pool.jobs(), *self._queue, *(job for job, _ in self._deferred)]
            slots = [job.block.slot for job in jobs if job.block.slot is not None]
            slots += [slot for job in jobs for slot in job.held]
            if self._ring is not None and slots:
                if there:
                    bury(self._ring, there, slots)
                else:
                    for slot in slots:
                        self._ring.empty(slot)
                        self._ring.release(slot)
            self._asked.clear()
            self._queue.clear()
            self._deferred.clear()


def _as_torch(how: Exit) -> str:
    """Say how a worker ended, in words that logs of torch are searched for."""
    if how.code < 0:
        return f"DataLoader worker (pid {how.pid}) is killed by signal: {how.how}"
    return f"DataLoader worker (pid(s) {how.pid}) exited unexpectedly: {how.how}"


def _crew_of(recipe: Recipe, base_seed: int) -> Crew:
    """Describe the workers: their entry, and how the dataset reaches them."""
    return crew_of_processes(
        "tundish.loader.dataloader.worker:main",
        {"base_seed": base_seed},
        _parts(recipe),
        start=recipe.start,
        pack=partial(pack, advice=_ADVICE),
        preload=lambda payload: modules_to_preload(recipe, payload.modules),
        policy=recipe.globals,
        met=_met_in(recipe),
    )


def _met_in(recipe: Recipe) -> tuple[Met, ...]:
    """The functions and types at the surface of what is forked, which nobody looks through."""
    held = [recipe.dataset, recipe.collate, recipe.worker_init]
    held += getattr(recipe.dataset, "__dict__", {}).values()
    return tuple(each if isinstance(each, FunctionType) else type(each) for each in held)


def _parts(recipe: Recipe) -> list[Part]:
    """Take a recipe apart for `assemble`, each part with its name in errors."""
    bare = replace(recipe, dataset=None, collate=None, worker_init=None, collate_types=[])
    return [
        ("the dataset", recipe.dataset),
        ("collate_fn", recipe.collate),
        ("worker_init_fn", recipe.worker_init),
        ("default_collate_fn_map", recipe.collate_types),
        ("the loader", bare),
    ]
