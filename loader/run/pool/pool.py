"""The pool of one iterator's workers: started, given tasks, replaced when they die.

The pool does not know what tasks mean: it hands each to the least loaded
worker, passes workers' answers to its owner, and reports the tasks that a dead worker leaves.
Everything happens in calls of the consumer's thread; the wait for data also notices deaths.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.errors import WorkerDiedError
from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.raised import is_interrupt
from tundish.loader.run.pool.members import BACK_OFF_S, LOAD, Members
from tundish.loader.run.pool.peers import Peer
from tundish.loader.run.pool.recruiting import SHORT, too_many
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.starting.watchdog import deadlocked
from tundish.loader.run.starting.workerprocess import Exit
from tundish.loader.run.wire.messages import (
    DONE,
    EXTRA,
    MORE,
    RECORD,
    ROWS_INLINE,
    TASK,
    Done,
    MessageKind,
    in_pieces,
)
from tundish.shm.channel import ChannelClosed
from tundish.shm.layout import Layout, decode
from tundish.shm.liveness import Poller
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.run.pool.peers import Job, Owner, WorkerSpec
    from tundish.loader.run.watching.tracing import Trace
    from tundish.shm.frames import Placing
    from tundish.shm.memory import Arena

_START_DEATHS = 8
_ELSEWHERE_S = 10.0
"""Seconds for which starts on other machines may fail while no worker is up."""
_ENDING_S = 0.1
_CONFIRM_S = 5.0
_PACKET = 65536
_MOST_LAYOUTS = 1024
"""The largest number of layouts that a pool keeps: elements may all differ in shape."""
_ANSWERS = (MessageKind.DONE, MessageKind.NEED)
_new = tuple.__new__
"""Makes a named tuple without the call of a Python function that its class makes."""


class Pool(Members):
    """The workers of one iterator.

    Parameters
    ----------
    size, arena, crew, writers, homes
        As for `Members`.
    owner : Owner
        Receives answers.
    trace : Trace, optional
        Records every message; it is closed with the pool.
    """

    def __init__(
        self,
        size: int,
        arena: Arena | None,
        crew: WorkerSpec,
        *,
        owner: Owner,
        writers: int = 0,
        homes: int = 1,
        trace: Trace | None = None,
    ) -> None:
        super().__init__(size, arena, crew, writers=writers, homes=homes)
        self._owner = owner
        self._stages: dict[int, bytes] = {}
        self._layouts: dict[bytes, Layout] = {}
        self._orphans: list[Job] = []
        self._deaths_in_a_row = 0
        self._start_deaths = 0
        self._failing_since = 0.0
        self.restarts = 0
        self.tasks = 0
        self.in_flight = 0
        self.received = 0
        """Bytes received from other machines."""
        self.receiving_s = 0.0
        """Seconds spent receiving them."""
        self._warnings: list[str] = []
        self.waited_s = 0.0
        """Seconds for which the last `pump` has waited."""
        self.cut = False
        """True if an interrupt came while messages were sent or received: some may be lost."""
        self.idle = False
        """True if an interrupt came while waiting: nothing has been done since."""
        self.complaints: list[bytes] = []
        """Packed errors of workers that are up, and will raise them with their first task."""
        self._trace = trace
        try:
            self._fill()
            self._check_spare()
        except BaseException:
            self.close(0.0)
            raise

    # -- workers -------------------------------------------------------------------------------

    def _welcome(self, peer: Peer) -> None:
        if peer.where is not None:
            peer.channel.receive_into(partial(self._place, peer))
        super()._welcome(peer)

    def resize(self, size: int) -> None:
        """Change the number of workers: start new ones, or let the least loaded go when they are done.

        If the system has no more processes or descriptors, the number stays smaller.
        """
        self.size = size
        with uninterrupted():
            self._part()
            self.starts.clear()
            try:
                self._fill()
                self._check_spare()
            except (OSError, RuntimeError):  # RuntimeError: no more threads
                if not self._here:
                    raise
                self.size = max(1, 3 * self._here // 4)  # the last descriptors are the consumer's
                self._part()
        self._hand_out()

    @property
    def expects(self) -> bool:
        """True if an answer is to come, or a worker for tasks that wait for one."""
        coming = self._orphans and self._recruiting.due is not None
        return bool(self.in_flight or self.starts or coming)

    def jobs(self) -> list[Job]:
        """Return all unanswered tasks."""
        return [*self._orphans, *(j for p in self._peers for j in p.jobs)]

    # -- tasks ---------------------------------------------------------------------------------

    def define(self, number: int, flag: int, where: Any) -> None:
        """Define a stage by its number; workers are told when they need it.

        A number may be reused when its stage is finished: messages over a channel arrive in
        order, so earlier tasks still find the old definition.
        """
        for peer in self._peers:
            peer.known.discard(number)
        tail = pickle.dumps(where)
        self._stages[number] = RECORD.pack(MessageKind.STAGE, flag, 0, number, len(tail)) + tail

    def submit(self, jobs: list[Job]) -> None:
        """Send tasks, each to the least loaded worker, in one message a worker."""
        before, self.cut = self.cut, True
        parts: dict[Peer, list[bytes]] = {}
        sizes: dict[Peer, int] = {}
        peers = self._staying
        for job in jobs:
            tail = job.tail
            if job.is_order or job.home or job.seat is not None:
                peer = self._appointed(job, peers)
            else:
                peer = job.prefer if job.prefer in peers else min(peers, key=LOAD, default=None)
            if peer is not None and peer.where is not None and (job.held or job.roots):
                try:
                    tail = self._owner.by_value(job)
                except Exception:  # noqa: BLE001 - of an input that cannot be sent: it stays here
                    job.home, job.prefer = True, None
                    peer = self._appointed(job, peers)
            if peer is None:
                self._orphans.append(job)
                continue
            task = job.task
            if tail is not job.tail:
                task = task._replace(tail=len(tail))
            out = parts.setdefault(peer, [])
            if task.stage not in peer.known:
                peer.known.add(task.stage)
                out.append(self._stages[task.stage])
            record = TASK.pack(*task)
            size = sizes.get(peer, 0) + len(record) + len(tail) + 256
            if size > _PACKET and out and len(out) > 1:
                self._send(peer, b"".join(out))
                out.clear()
                size = len(record) + len(tail)
            sizes[peer] = size
            out.append(record)
            out.append(tail)
            if peer.where is not None:
                job.sent = time.perf_counter()
            peer.jobs.append(job)
            peer.load += job.cost
            job.prefer = peer
            self.in_flight += 1
            if self._trace is not None:
                self._trace(
                    "->",
                    peer.name,
                    "TASK",
                    stage=task.stage,
                    block=task.block,
                    first=task.first,
                    rows=task.rows,
                    slot=task.slot,
                )
        for peer, out in parts.items():
            if out:
                self._send(peer, b"".join(out))
        self.cut = before

    def supersede(self, job: Job) -> None:
        """Wait no longer for a task that another worker has answered; rows that are just arriving go nowhere."""
        job.superseded = True
        for peer in self._peers:
            if job in peer.jobs:
                self.in_flight -= 1
                if peer.jobs[0] is job:
                    peer.channel.divert()

    def _appointed(self, job: Job, peers: list[Peer]) -> Peer | None:
        """Return the worker for a task that not every worker may do; None if there is none now."""
        if job.is_order:
            return next((p for p in self._peers if p.writes and not p.leaving), None)
        if job.seat is not None:
            return next((p for p in peers if p.seat == job.seat), None)
        peers = [p for p in peers if p.where is None] or self._at_home()
        return job.prefer if job.prefer in peers else min(peers, key=LOAD, default=None)

    def _send(self, peer: Peer, message: bytes) -> None:
        try:
            if not peer.channel.send(message):
                self._poller.modify(peer.channel.fileno(), peer, write=True)
        except ChannelClosed:
            pass  # the wait for data notices it, after the messages that the worker still sent

    # -- waiting -------------------------------------------------------------------------------

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `pump` has something to do; None where there is none."""
        return self._poller.fileno()

    def pump(self, timeout_s: float | None = 0.0) -> None:
        """Process workers' answers.

        Parameters
        ----------
        timeout_s : float or None
            How long to wait for something; None: until an answer has changed something, or none is to come.
        """
        self.waited_s = 0.0
        while True:
            while self._warnings:
                warnings.warn(self._warnings.pop(0), stacklevel=callers_level())
            soon_s = timeout_s
            if self.starts or self._recruiting.due is not None:
                soon_s = self._start_again(timeout_s)
            for peer in self._peers:
                if peer.sentinel is None:  # another pool may have received the news of its start
                    self._watch_sentinel(peer)
            self.idle, began = True, time.perf_counter()
            found = self._poller.poll(soon_s)
            self.idle, waited_s = False, time.perf_counter() - began
            self.waited_s += waited_s
            if self._trace is not None and soon_s is None:
                self._trace.waited(waited_s)
            for source, readable, writable in found:
                if type(source) is not Peer:
                    self._hear(source)
                    continue
                if source not in self._peers:
                    continue  # it has died meanwhile
                if writable:
                    self._flush(source)
                if readable:
                    self._receive(source, waiting=soon_s is None)
            if soon_s is not None or self._owner.moved or not self.in_flight:
                return

    def _hear(self, source: object) -> None:
        """Process news of starting workers; give waiting tasks to those that have arrived."""
        found = self._recruiting.hear(source)
        for peer in found:
            self._welcome(peer)
        if found:
            self._hand_out()

    def _hand_out(self) -> None:
        """Send the tasks for which there was no worker."""
        orphans, self._orphans = self._orphans, []
        if orphans:
            self._owner.hand_out(orphans)

    def _start_again(self, timeout_s: float | None) -> float | None:
        """Start the workers that are due; return how long to wait, at most until the next one is."""
        now = time.monotonic()
        due = self._recruiting.due
        if due is not None and due <= now:
            self._recruiting.look()
            self._owner.look()
        again = any(t <= now for t in self.starts)
        self.starts = [t for t in self.starts if t > now]
        if again:
            self._refill()
        due = self._recruiting.due
        soonest = min(self.starts if due is None else [*self.starts, due], default=None)
        if soonest is not None:
            soon = max(0.0, soonest - now)
            timeout_s = soon if timeout_s is None else min(timeout_s, soon)
        if again:
            self._hand_out()
        return timeout_s

    def _flush(self, peer: Peer) -> None:
        try:
            if peer.channel.flush():
                self._poller.modify(peer.channel.fileno(), peer)
        except ChannelClosed:
            self._poller.modify(peer.channel.fileno(), peer)

    def _receive(self, peer: Peer, *, waiting: bool) -> None:
        """Read a worker's messages: one if somebody waits for it, since there is rarely more than one."""
        dead = False
        began = time.perf_counter()
        before, self.cut = self.cut, True
        try:
            while True:
                try:
                    messages = peer.channel.recv_all(1 if waiting else math.inf)
                except ChannelClosed:
                    messages, dead = [], True
                for message in messages:
                    self._take_in(peer, memoryview(message))
                # What is held depended on these; and a worker that is left by them is let go.
                if not (messages and peer.where and peer.channel.held and peer in self._peers):
                    break
        except Exception as error:
            self.cut = before or is_interrupt(error)
            raise
        self.cut = before
        if peer.where is not None:
            self.receiving_s += time.perf_counter() - began
        if not dead and peer.process is not None and not messages and peer.sentinel is not None:
            # Readable without a message: the sentinel, unless the kernel was early.
            dead = bool(self._ended(peer))
        if dead:
            with uninterrupted():
                self._dead(peer)

    def _ended(self, peer: Peer) -> bool:
        probe = Poller()
        try:
            assert peer.sentinel is not None
            probe.register(peer.sentinel, peer)
            return bool(probe.poll(0.0))
        finally:
            probe.close()

    def _take_in(self, peer: Peer, message: memoryview) -> None:
        at, end = 0, len(message)
        if peer.where is not None:
            self._note_received(peer, end)
        while at < end:
            kind = message[at]
            if kind in _ANSWERS:
                done: Done = _new(Done, DONE.unpack_from(message, at))
                at += DONE.size
                tail = message[at : at + done.tail]
                at += done.tail
                jobs = peer.jobs
                job = jobs[0] if jobs else None
                if job is None or (job.task.block, job.task.first) != (done.block, done.first):
                    raise AssertionError(f"worker {peer.name} answered a task it does not have")
                jobs.popleft()
                self.in_flight -= not job.superseded
                peer.load = max(0.0, peer.load - job.cost) if jobs else 0.0
                if self._trace is not None:
                    self._trace(
                        "<-",
                        peer.name,
                        MessageKind(done.kind).name,
                        stage=done.stage,
                        block=done.block,
                        first=done.first,
                        rows=done.rows,
                        us=done.micros,
                        bytes=done.nbytes,
                    )
                if done.kind == MessageKind.NEED:
                    if peer.where is not None:
                        peer.answered = time.perf_counter()
                    alone = bool(done.flags & EXTRA)
                    self._owner.need(job, done.nbytes, alone=alone, after=done.encoded)
                    continue
                self.tasks += 1
                peer.tasks += 1
                peer.rows += done.rows
                peer.busy_s += done.micros * 1e-6
                peer.cpu_s += done.busy * 1e-6
                if peer.where is not None:
                    peer.came_back(job, done.micros * 1e-6)
                self._deaths_in_a_row = 0
                self._owner.done(job, done, peer.layouts.get(done.layout), tail)
                if peer.leaving and not jobs:
                    self._let_go(peer)
                continue
            _, flag, _, number, size = RECORD.unpack_from(message, at)
            at += RECORD.size
            tail = message[at : at + size]
            at += size
            if flag == MORE:
                peer.told += tail
                continue
            if peer.told:
                tail, peer.told = memoryview(peer.told + tail), b""
            if kind == MessageKind.LAYOUT:
                peer.layouts[number] = self._layout(bytes(tail))
            elif kind == MessageKind.HELLO:
                peer.up(number)
                self._start_deaths = 0
                if tail:
                    self.complaints.append(bytes(tail))
            elif kind == MessageKind.PROGRESS:
                peer.jobs[0].progress = number
            elif kind == MessageKind.ASK:
                self._answer(peer, bytes(tail))
            elif kind == MessageKind.FATAL:
                self._recruiting.unfit(peer, loads_exception(bytes(tail)))
            if self._trace is not None:
                about = {"pid": number} if kind == MessageKind.HELLO else {"bytes": size}
                if kind == MessageKind.HELLO and peer.where is not None:
                    about["where"] = peer.where
                self._trace("<-", peer.name, MessageKind(kind).name, **about)

    def _place(self, peer: Peer, head: bytes, size: int) -> Placing | None:
        """Return where to receive the rows of an answer, by its head; None for memory of their own."""
        if head[0] != MessageKind.DONE:
            return None
        done = Done(*DONE.unpack_from(head))
        job = peer.jobs[0] if peer.jobs else None
        if job is None or (job.task.block, job.task.first) != (done.block, done.first):
            return None  # `_take_in` raises an error
        if not done.flags & ROWS_INLINE or size != DONE.size + done.tail:
            return None
        place = self._owner.place(job, done, peer.layouts.get(done.layout))
        if place is not None:
            self._note_received(peer, size)
        return place

    def _note_received(self, peer: Peer, nbytes: int) -> None:
        peer.received += nbytes
        self.received += nbytes

    def _layout(self, told: bytes) -> Layout:
        """Return a layout, the same object for all workers that send it, so that comparing is fast."""
        if told not in self._layouts:
            if len(self._layouts) == _MOST_LAYOUTS:  # elements may all differ in shape
                self._layouts.clear()
            self._layouts[told] = Layout(*decode(bytearray(told)))
        return self._layouts[told]

    def _answer(self, peer: Peer, question: bytes) -> None:
        """Answer a starting worker's question; the worker waits for the answer."""
        assert self._crew.answer is not None
        answer, warned_of = self._crew.answer(question)
        for message in in_pieces(MessageKind.TOLD, 0, answer):
            self._send(peer, message)
        self._warnings += warned_of

    # -- deaths --------------------------------------------------------------------------------

    def _dead(self, peer: Peer) -> None:
        """Handle a worker's death: make sure that it writes no more, return its tasks, start another."""
        self._forget(peer)
        how = Exit(0, "its thread ended", "")
        if peer.process is not None:
            # A worker that closed its channel is about to exit: wait, to learn how.
            ended = peer.process.wait_exit(_ENDING_S)
            if ended is None:
                peer.process.kill()
                ended = peer.process.wait_exit(_CONFIRM_S)
            how = ended or Exit(-9, "not confirmed", "")
            peer.process.release()
        if self._trace is not None:
            self._trace("<-", peer.name, "DIED", how=how.how)
        self.restarts += 1
        self._deaths_in_a_row += 1
        jobs = list(peer.jobs)
        peer.jobs.clear()
        self.in_flight -= sum(not job.superseded for job in jobs)
        if not peer.ready:
            if how.errno in SHORT:
                self._leave(jobs)
                raise too_many(how.errno, "a worker")
            now = time.monotonic()
            self._failing_since = self._failing_since if self._start_deaths else now
            self._start_deaths += 1
            if how.stuck:
                self._leave(jobs)
                raise deadlocked("the start of a worker", how.stderr)
            # A connection that ends says little: machines come and go, and one may fail where others succeed.
            patient = peer.where is not None and (
                now - self._failing_since < _ELSEWHERE_S or any(each.ready for each in self._peers)
            )
            if self._start_deaths >= _START_DEATHS and not patient:
                self._leave(jobs)
                raise WorkerDiedError("its start", how.how, self._start_deaths, how.stderr)
        pause = BACK_OFF_S[min(self._deaths_in_a_row // max(1, self.size), len(BACK_OFF_S) - 1)]
        if pause:
            self.starts.append(time.monotonic() + pause)
        else:
            try:
                self._refill()
            except OSError:
                self._orphans += jobs
                raise
        for job in jobs:
            job.prefer = None
        self._owner.lost(jobs, jobs[0] if jobs and peer.ready else None, how)

    def _leave(self, jobs: list[Job]) -> None:
        """Keep the tasks of a worker that could not start; another is started in a while, if there is a next call."""
        self._orphans += jobs
        self.starts.append(time.monotonic() + BACK_OFF_S[-1])

    def close(self, wait_s: float = 0.25, *, linger: bool = False) -> list[Peer]:
        there = super().close(wait_s, linger=linger)
        if self._trace is not None:
            self._trace.close()
        return there
