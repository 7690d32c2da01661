"""A job that is told to end: it has ten seconds, to commit and leave."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from tundish.cli.snapshot.exits import told

__all__ = ["Leaving", "Told"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE_S = 2.0
"""How long the element that is being waited for may still take."""
LIMIT_S = 9.0
"""When the process ends, whatever it is doing. Slurm and Kubernetes kill after 30 s by default."""


class Told(BaseException):
    """Raised while the next element is waited for, when patience is at its end."""


class Leaving:
    """Handles SIGTERM and SIGINT while it is entered: notes the first, obeys the second at once.

    Attributes
    ----------
    signal : int or None
        The signal that came.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = False
        self._previous: dict[int, Any] = {}
        self._left = threading.Event()

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals are handled in the main thread only")
        # A byte for each signal reaches the thread though this one sits in a long C call.
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
    def waiting(self) -> Iterator[None]:
        """While this is entered `Told` may be raised, some time after a signal."""
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
                raise Told
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
