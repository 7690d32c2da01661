"""A worker's loop: receives messages from a channel, and answers.

Subclasses define what is computed: a pipeline's `Worker`, a `DataLoader`'s `LoaderWorker`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.protocols.raised import carry_interrupts
from tundish.loader.run.starting.inside import be_worker
from tundish.loader.run.starting.kinship import become_child
from tundish.loader.run.starting.moment import Luggage
from tundish.loader.run.wire.mail import Inbox, Outbox
from tundish.loader.run.wire.marks import take_marks
from tundish.loader.run.wire.messages import RECORD, TASK, MessageKind, Task, in_pieces
from tundish.shm.channel import Channel, ChannelClosed
from tundish.shm.memory import Arena

_COMPUTING = [True]


class Serving:
    """Runs the tasks that come over a channel until it closes.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    forks : bool
        True for a process of its own: a child that the user's function forks and that
        returns is ended.
    """

    def __init__(self, channel: Channel, *, forks: bool = True) -> None:
        self._channel, self._outbox = channel, Outbox(channel)
        self._process = os.getpid() if forks else None

    def run(self, inbox: Inbox | None = None) -> None:
        """Serve until the coordinator closes the channel.

        Parameters
        ----------
        inbox : Inbox, optional
            Messages that arrived while the worker was being made.
        """
        inbox = inbox or Inbox(self._channel)
        tail = self._complaint()
        with contextlib.suppress(ChannelClosed):  # what was sent before is still received
            self._outbox.tell(MessageKind.HELLO, os.getpid(), tail)
            self._outbox.flush()
        _COMPUTING[0] = False
        with contextlib.suppress(ChannelClosed):
            while True:
                self._await(inbox)
                self.take(inbox.recv())
                self._outbox.flush()

    def _await(self, inbox: Inbox) -> None:
        """Do what is to be done at times while no message comes: by default nothing."""

    def take(self, message: bytes | memoryview) -> None:
        """Process the records of a message."""
        at, end = 0, len(message)
        while at < end:
            if message[at] == MessageKind.STAGE:
                _, flag, _, number, size = RECORD.unpack_from(message, at)
                at += RECORD.size + size
                self._open_stage(number, flag, pickle.loads(message[at - size : at]))
                continue
            task = Task(*TASK.unpack_from(message, at))
            at += TASK.size + task.tail
            _COMPUTING[0] = True
            try:
                self._task(task, message[at - task.tail : at])
            finally:
                _COMPUTING[0] = False
                if self._process is not None and os.getpid() != self._process:
                    os._exit(0)  # the user's function forked, and this is the child: see `_isolate`
            self._outbox.flush_if_due()

    def _complaint(self) -> bytes:
        """Return the pickled error for the first task; empty if the worker is ready."""
        return b""

    def _open_stage(self, number: int, flag: int, what: Any) -> None:
        """Prepare the tasks of a stage."""
        raise NotImplementedError

    def _task(self, task: Task, tail: bytes | memoryview) -> None:
        """Do a task, and answer it."""
        raise NotImplementedError


Make = Callable[[Channel, "Arena | None", Luggage, dict[str, Any]], Serving]
"""Makes a worker from its channel, the arena, the consumer's objects and settings, and its config."""


def serve(fds: list[int], config: bytes, make: Make, *, daemon: bool = False) -> int:
    """Run a worker process: the body of the launcher's entries.

    Parameters
    ----------
    fds : list of int
        Channel, arena if there is one, the table of verified batches if a snapshot was read, payload
        unless the worker was forked with its objects.
    config : bytes
        Pickled settings.
    make : callable
        Makes the worker. Its error is sent to the coordinator.
    daemon : bool, default False
        True if `multiprocessing` must refuse to start children in it.

    Returns
    -------
    int
        The exit status.
    """
    be_worker()
    carry_interrupts()
    signal.signal(signal.SIGINT, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `uninterrupted`
    settings = pickle.loads(config)
    become_child(settings["parent"], settings["seat"], daemon=daemon)
    fds = list(fds)  # the first may be a session of TLS over one
    channel = Channel.adopt(fds.pop(0), settings["channel"])
    inbox = Inbox(channel)
    try:
        arena = None
        if settings["stride"]:
            arena = Arena.attach(fds.pop(0), settings["stride"], settings["slots"])
        os.register_at_fork(after_in_child=partial(_isolate, channel, arena))
        if settings["verified"]:
            take_marks(fds.pop(0), settings["verified"])
        payload = None if settings["inherits"] else fds.pop(0)
        luggage = Luggage(payload, settings["moment"], inbox.ask)
        worker = make(channel, arena, luggage, settings)
    except BaseException as error:  # noqa: BLE001 - told to the coordinator
        tail = dumps_exception(error)
        with contextlib.suppress(ChannelClosed):
            for message in in_pieces(MessageKind.FATAL, os.getpid(), tail):
                channel.send(message)
        return 1
    worker.run(inbox)
    sys.stdout.flush()
    return 0


def _isolate(channel: Channel, arena: Arena | None) -> None:
    """Disconnect a child that the user's function forked: if it returned, it would answer the task a second time."""
    ours, other = socket.socketpair()
    other.close()
    os.dup2(ours.fileno(), channel.fileno())
    ours.close()
    if arena is not None:
        arena.make_private()


def _interrupt(*_: object) -> None:
    """Interrupt a computation; a worker that waits for a task is not interrupted."""
    if _COMPUTING[0]:
        raise KeyboardInterrupt
