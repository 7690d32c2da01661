"""All parts together: processes that write slots on request, and die in the middle of it."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tundish.shm.channel import Channel, ChannelClosed
from tundish.shm.liveness import Poller
from tundish.shm.memory import Arena
from tundish.shm.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

TASK = struct.Struct("<IIQ")  # slot, what to write, bytes
NBYTES = 3_000_000
DEADLINE_S = 30

# Answers a task twice: when half of the slot is written, and at the end. Between the two it waits
# to be told to go on, so that a test decides where it dies.
WORKER = """
    import os, struct, sys
    from tundish.shm.channel import Channel, ChannelClosed
    from tundish.shm.memory import Arena

    fd, stride, slots, end, kind = *map(int, sys.argv[1:5]), sys.argv[5]
    arena = Arena.attach(fd, stride, slots)
    channel = Channel.adopt(end, kind)
    try:
        while True:
            task = channel.recv()
            slot, mark, nbytes = struct.unpack("<IIQ", task)
            root = arena.root(slot, nbytes)
            root[: nbytes // 2] = mark
            channel.send(task)
            assert channel.recv() == b"go on"
            root[nbytes // 2 :] = mark
            channel.send(task)
    except ChannelClosed:
        sys.exit(7)
    """


class Worker:
    """A process, and the coordinator's end of its channel."""

    def __init__(self, arena: Arena) -> None:
        self.channel, theirs = Channel.pair()
        self.channel.set_nonblocking()
        fds = (arena.fd, theirs.fileno())
        numbers = (arena.fd, arena.stride, arena.slots, theirs.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), *map(str, numbers), theirs.kind],
            pass_fds=fds,
        )
        theirs.close()
        self.poller = Poller()
        self.poller.register(self.channel.fileno(), "data")

    def answer(self) -> bytes | None:
        """Wait for the next message; None when the worker is gone."""
        while self.poller.poll(DEADLINE_S):
            try:
                message = self.channel.recv()
            except ChannelClosed:
                return None
            if message is not None:
                return bytes(message)
        raise AssertionError("nothing happens")

    def close(self) -> int:
        """Hang up and return how it ended."""
        self.poller.close()
        self.channel.close()
        return self.process.wait(DEADLINE_S)


@pytest.fixture(params=["0", "1"], ids=["linux", "portable"])
def arena(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    monkeypatch.setenv("TUNDISH_PORTABLE", request.param)
    arena = Arena.create()
    yield arena
    arena.close()


def start(arena: Arena, ring: Ring, worker: Worker, mark: int) -> int:
    """Grant a slot and have the worker write half of it."""
    slot = ring.acquire()
    assert slot is not None
    if ring.allocated(slot) < NBYTES:
        arena.allocate(slot, 0, NBYTES)
        ring.grew(slot, NBYTES)
    worker.channel.send(TASK.pack(slot, mark, NBYTES))
    assert worker.answer() == TASK.pack(slot, mark, NBYTES)
    return slot


def finish(ring: Ring, worker: Worker, slot: int) -> np.ndarray[Any, Any]:
    """Have the worker write the rest, and deliver it."""
    worker.channel.send(b"go on")
    assert worker.answer() is not None
    return ring.lease(slot, NBYTES)


def test_batches_come_through_and_slots_go_round(arena: Arena) -> None:
    ring = Ring(arena)
    worker = Worker(arena)
    open_before = len(list(Path("/dev/fd").iterdir()))
    held: list[np.ndarray[Any, Any]] = []
    for mark in range(1, 60):
        batch = finish(ring, worker, start(arena, ring, worker, mark))
        assert (batch == mark).all()
        held = [*held[-1:], batch]
        del batch
    assert [int(batch[-1]) for batch in held] == [58, 59]
    assert ring.used_bytes == 3 * NBYTES
    assert len(list(Path("/dev/fd").iterdir())) == open_before
    assert worker.close() == 7


def test_a_worker_killed_while_it_writes_costs_nothing(arena: Arena) -> None:
    ring = Ring(arena)
    worker = Worker(arena)
    delivered = [finish(ring, worker, start(arena, ring, worker, 1))]
    slot = start(arena, ring, worker, 2)
    ring.quarantine(slot)
    worker.process.kill()
    assert worker.answer() is None
    others = [ring.acquire() for _ in range(ring.free)]
    assert slot not in others  # it may be written until the worker is known to be dead
    for other in others:
        assert other is not None
        ring.release(other)
    assert worker.close() == -signal.SIGKILL
    ring.clear(slot)
    worker = Worker(arena)
    again = start(arena, ring, worker, 2)
    assert again == slot
    delivered.append(finish(ring, worker, again))
    delivered.append(finish(ring, worker, start(arena, ring, worker, 3)))
    assert [(batch == mark).all() for mark, batch in enumerate(delivered, 1)] == [True] * 3
    assert worker.close() == 7
    delivered.clear()
    assert ring.free == arena.slots


COORDINATOR = """
    import os, signal, subprocess, sys
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena

    worker, pipe = sys.argv[1], int(sys.argv[2])
    arena = Arena.create()
    arena.allocate(0, 0, 1 << 20)
    mine, theirs = Channel.pair()
    numbers = (arena.fd, arena.stride, arena.slots, theirs.fileno())
    subprocess.Popen(
        [sys.executable, "-c", worker, *map(str, numbers), theirs.kind],
        pass_fds=(arena.fd, theirs.fileno(), pipe),
    )
    theirs.close()
    os.close(pipe)
    mine.send((0).to_bytes(4, "little") + (1).to_bytes(4, "little") + (1000).to_bytes(8, "little"))
    mine.recv()  # the worker is in the middle of a task
    os.kill(os.getpid(), signal.SIGKILL)
    """


@pytest.mark.parametrize("portable", ["0", "1"])
def test_the_worker_of_a_killed_coordinator_ends(portable: str) -> None:
    reading, writing = os.pipe()  # held by the worker alone, in the end
    done = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(COORDINATOR)),
            *(textwrap.dedent(WORKER), str(writing)),
        ],
        env={**os.environ, "TUNDISH_PORTABLE": portable},
        pass_fds=(writing,),
        timeout=DEADLINE_S,
        check=False,
    )
    os.close(writing)
    assert done.returncode == -signal.SIGKILL
    assert select.select([reading], [], [], DEADLINE_S)[0], "the worker lives on"
    assert os.read(reading, 1) == b""
    os.close(reading)
