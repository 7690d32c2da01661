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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.failure import loads_exception
from tundish.loader.protocols.raised import is_interrupt
from tundish.loader.run.pool.members import LOAD, Members
from tundish.loader.run.pool.peers import Peer
from tundish.loader.run.pool.replacing import LATER_S, Replacing
from tundish.loader.run.starting.critical import uninterrupted
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
    from tundish.loader.run.starting.workerprocess import Exit
    from tundish.loader.run.watching.tracing import Trace
    from tundish.shm.frames import Placing
    from tundish.shm.memory import Arena

_PACKET = 65536
"""The number of bytes from which tasks go into another message."""
_MOST_LAYOUTS = 1024
"""The largest number of layouts that a pool keeps: elements may all differ in shape."""
_ANSWERS = (MessageKind.DONE, MessageKind.NEED)
_new = tuple.__new__
"""Makes a named tuple without the call of a Python function that its class makes."""


@dataclass(eq=False)
class Totals:
    """The counts of a pool's workers, also of those that have ended; named as in `Stats`."""

    restarts: int = 0
    tasks: int = 0
    received: int = 0
    """Bytes received from other machines."""
    receiving_s: float = 0.0
    """Seconds spent receiving them."""


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
        self._replacing = Replacing()
        self.totals = Totals()
        self.in_flight = 0
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
        parts: dict[Peer, bytearray] = {}
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
            out = parts.setdefault(peer, bytearray())
            if out and len(out) + TASK.size + len(tail) > _PACKET:
                self._send(peer, bytes(out))
                out.clear()
            if task.stage not in peer.known:
                peer.known.add(task.stage)
                out += self._stages[task.stage]
            out += TASK.pack(*task)
            out += tail
            if peer.where is not None:
                job.sent = time.perf_counter()
            peer.jobs.append(job)
            peer.load += job.cost
            job.prefer = peer
            self.in_flight += 1
            if self._trace is not None:
                self._trace.task(peer.name, task)
        for peer, out in parts.items():
            self._send(peer, bytes(out))
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
            self.totals.receiving_s += time.perf_counter() - began
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
        """Process a worker's message, record by record; answers here, since each call would cost all tasks."""
        at, end = 0, len(message)
        if peer.where is not None:
            self._note_received(peer, end)
        while at < end:
            kind = message[at]
            if kind not in _ANSWERS:
                _, flag, _, number, size = RECORD.unpack_from(message, at)
                at += RECORD.size + size
                peer.told += message[at - size : at]
                if flag != MORE:
                    told, peer.told = peer.told, b""
                    self._told(peer, kind, number, told)
                continue
            done: Done = _new(Done, DONE.unpack_from(message, at))
            at += DONE.size + done.tail
            jobs = peer.jobs
            job = jobs[0] if jobs else None
            if job is None or (job.task.block, job.task.first) != (done.block, done.first):
                raise AssertionError(f"worker {peer.name} answered a task it does not have")
            jobs.popleft()
            self.in_flight -= not job.superseded
            peer.load = max(0.0, peer.load - job.cost) if jobs else 0.0
            if self._trace is not None:
                self._trace.answer(peer.name, done)
            if peer.where is not None:
                peer.came_back(job, done)
            if kind == MessageKind.NEED:
                alone = bool(done.flags & EXTRA)
                self._owner.need(job, done.nbytes, alone=alone, after=done.encoded)
                continue
            self.totals.tasks += 1
            peer.tasks += 1
            peer.rows += done.rows
            peer.busy_s += done.micros * 1e-6
            peer.cpu_s += done.busy * 1e-6
            self._replacing.in_a_row = 0
            tail = message[at - done.tail : at]
            self._owner.done(job, done, peer.layouts.get(done.layout), tail)
            if peer.leaving and not jobs:
                self._let_go(peer)

    def _told(self, peer: Peer, kind: int, number: int, told: bytes) -> None:
        """Process a worker's record that is no answer."""
        if kind == MessageKind.LAYOUT:
            peer.layouts[number] = self._layout(told)
        elif kind == MessageKind.HELLO:
            peer.up(number)
            self._replacing.at_start = 0
            if told:
                self.complaints.append(told)
        elif kind == MessageKind.PROGRESS:
            peer.jobs[0].progress = number
        elif kind == MessageKind.ASK:
            self._answer(peer, told)
        elif kind == MessageKind.FATAL:
            self._recruiting.unfit(peer, loads_exception(told))
        if self._trace is not None:
            about: dict[str, Any] = {"bytes": len(told)}
            if kind == MessageKind.HELLO:
                about = {"pid": number}
                if peer.where is not None:
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
        self.totals.received += nbytes

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
        """Handle a worker's death: make sure that it writes no more, start another, return its tasks."""
        self._forget(peer)
        how = peer.end()
        if self._trace is not None:
            self._trace("<-", peer.name, "DIED", how=how.how)
        self.totals.restarts += 1
        jobs = list(peer.jobs)
        peer.jobs.clear()
        self.in_flight -= sum(not job.superseded for job in jobs)
        try:
            self._replace(peer, how)
        except Exception:  # another worker starts in a while, if there is a next call
            self._orphans += jobs
            raise
        for job in jobs:
            job.prefer = None
        self._owner.lost(jobs, jobs[0] if jobs and peer.ready else None, how)

    def _replace(self, peer: Peer, how: Exit) -> None:
        """Start another worker in the place of one that died, now or after a pause."""
        now, pause_s = time.monotonic(), self._replacing.pause_s(self.size)
        if not peer.ready:
            others = any(each.ready for each in self._peers)
            error = self._replacing.refuse(how, elsewhere=peer.where is not None, others=others)
            if error is not None:
                self.starts.append(now + LATER_S)
                raise error
        if pause_s:
            self.starts.append(now + pause_s)
        else:
            self._refill()

    def close(self, wait_s: float = 0.25, *, linger: bool = False) -> list[Peer]:
        there = super().close(wait_s, linger=linger)
        if self._trace is not None:
            self._trace.close()
        return there
