"""Requests for one element after another, until the pipeline ends or the job is stopped."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tundish.cli.snapshot import BAD_RECORDS, DONE, Refusal, told
from tundish.cli.snapshot.log import Log, RecentRates
from tundish.errors import SnapshotError

if TYPE_CHECKING:
    from types import FrameType

    from tundish.cli.snapshot.badrecords import BadRecords
    from tundish.cli.snapshot.estimate import Room
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.watch.stats import SnapshotStats

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE_S = 2.0
"""Seconds that the element in progress may still take."""
LIMIT_S = 9.0
"""When the process ends, whatever it is doing. Slurm and Kubernetes kill after 30 s by default."""


class OutOfPatience(BaseException):
    """Raised if the patience runs out while waiting for the next element."""


class Leaving:
    """Handles SIGTERM and SIGINT in a ``with`` block: notes the first signal, and obeys the second at once.

    Attributes
    ----------
    signal : int or None
        The signal that arrived.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = False
        self._previous: dict[int, Any] = {}
        self._left = threading.Event()

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are handled in the main thread only")
        # Each signal sends a byte to the other thread, even while this one is in a long C call.
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._fd = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._guard = threading.Thread(target=self._watch, name="tundish leaving", daemon=True)
        self._guard.start()
        for number in (*SIGNALS, signal.SIGALRM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd)
        self._left.set()
        self._mouth.close()
        self._guard.join()
        self._ear.close()

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Allow `OutOfPatience` to be raised in the body, some time after a signal."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            # Not while workers are being started or ended, which holds Ctrl-C back too.
            if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
            elif self._waiting:
                self._waiting = False
                raise OutOfPatience
            return
        if self.signal is not None:
            os._exit(told(number))
        self.signal = number
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        # Not print: the signal may have come in the midst of one.
        os.write(2, f"\n{signal.Signals(number).name}: committing\n".encode())

    def _watch(self) -> None:
        """End the process when its time is up."""
        number = 0
        while number not in SIGNALS:
            heard = self._ear.recv(1)
            if not heard:
                return
            number = heard[0]
        if not self._left.wait(LIMIT_S):
            os._exit(told(number))


@dataclass
class Pull:
    """The loop that requests the elements of a pipeline, and reports progress.

    Parameters
    ----------
    elements : Iterator
        The elements of a plan whose last operator is a snapshot that is being written.
    log : Log
        The log to which progress is reported.
    bad : BadRecords
        The elements that failed.
    max_errors : int
        The number of elements that may fail.
    room : Room
        Whether all will fit.
    at : int
        The index of the next element.
    of : int or None
        The total number of elements; None if it is not known.
    """

    elements: Iterator
    log: Log
    bad: BadRecords
    max_errors: int
    room: Room
    at: int
    of: int | None
    _commits: int = 0
    _pace: RecentRates = field(init=False)
    _begun_at: int = field(init=False)

    def __post_init__(self) -> None:
        self._begun_at = self.at
        self._pace = RecentRates(self.of, self.at)

    @property
    def seen(self) -> SnapshotStats:
        """The stats of the snapshot, as far as it is."""
        return self.elements.stats.snapshots[-1]

    def run(self, leaving: Leaving) -> int:
        """Request elements until the end, and make them durable; return the exit status.

        Raises
        ------
        SnapshotError
            It cannot be written any further.
        Refusal
            There will not be room for the rest.
        """
        try:
            status = self._ask(leaving)
        except Refusal:
            if self.seen.nbytes:
                self._commit()
            else:
                self._give_up()
            raise
        if status == BAD_RECORDS:
            self._give_up()
        elif status != DONE:
            self._commit()
        self._look()
        return status

    def _ask(self, leaving: Leaving) -> int:
        elements, bad, room = self.elements, self.bad, self.room
        next_look = time.monotonic() + self.log.every_s
        while leaving.signal is None:
            try:
                with leaving.waiting():
                    element = next(elements)
            except StopIteration:
                return DONE
            except OutOfPatience:
                break
            except SnapshotError:
                raise
            except Exception as error:  # noqa: BLE001 - the element's error, whatever it is
                self.log.bad_record(bad.add(self.at, error))
                if bad.count > self.max_errors:
                    return BAD_RECORDS
            else:
                if room.asking:
                    room.look(element)
                del element  # its memory is wanted for the next ones
            self.at += 1
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + self.log.every_s
                self._look()
                room.written(self.at - self._begun_at, self.seen.nbytes)
        assert leaving.signal is not None
        return told(leaving.signal)

    def _look(self) -> None:
        """Tell how far it is."""
        seen = self.seen
        self.log.progress(self._pace.reached(self.at, seen.nbytes, self.bad.count))
        if seen.commits != self._commits:
            self._commits = seen.commits
            self.log.committed(seen.durable, seen.nbytes)

    def _commit(self) -> None:
        """Make the elements so far durable."""
        with tempfile.TemporaryDirectory() as folder:
            self.elements.save(Path(folder, "state.json"))  # which commits first

    def _give_up(self) -> None:
        """Make nothing durable any more: an element that failed is to be tried again."""
        for recorder in self.elements._engine.context.recorders:  # noqa: SLF001 - a face of the same library
            recorder.give_up(InterruptedError("too many elements failed"))
