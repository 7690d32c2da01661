"""Ctrl-C held back: during steps that must not be interrupted, and calls that are about to return."""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

PATIENCE_S = 0.2


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended.

    Starting and ending workers opens descriptors and processes; an exception between two such steps would leak them.
    Only the main thread receives interrupts. The block must not call user code, which may never return.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    # Changing the mask runs the handlers of pending signals, which may raise, so its undoing is registered first.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handler: Any = signal.getsignal(signal.SIGINT)
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        # The mask is only this thread's: if there is another thread, the system gives the signal to it,
        # and Python calls the handler here.
        if handler is not None:  # else it is not Python's
            signal.signal(signal.SIGINT, lambda number, _: held.append(number))
        yield
    finally:
        try:  # the handler of another signal may raise
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        finally:
            if handler is not None:
                signal.signal(signal.SIGINT, handler)
                if held:
                    signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended, but for at most `PATIENCE_S`.

    Repeated interrupts would otherwise make the caller start over for ever. An interrupt that came in
    the meantime is raised just after the block, when its result has been returned.
    """
    handler: Any = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    patience = _Patience(handler)
    signal.signal(signal.SIGINT, patience.take)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) == patience.take:  # else the block has set one
            signal.signal(signal.SIGINT, handler)
        patience.end()


def stay_away() -> None:
    """Suspend this thread for good while the interpreter exits, as it does with threads that compute.

    What the thread found in an engine that the exit has closed is neither an error nor the end of the elements.
    """
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


class _Patience:
    """A signal handler that collects interrupts and raises them when they are due."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler
        self._main = threading.get_ident()
        self._over = False
        self._waits = _thread.allocate_lock()  # the only kind that a signal's handler may use

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._over:
            self._handler(number, frame)
        elif self._waits.acquire(blocking=False):
            # Not `threading.Thread`, whose locks the code that is interrupted may hold.
            _thread.start_new_thread(self._hand_on, ())

    def end(self) -> None:
        """Raise collected interrupts, and from now on pass them on at once."""
        self._over = True
        if self._waits.locked():
            self._waits.release()

    def _hand_on(self) -> None:
        self._waits.acquire(timeout=PATIENCE_S)
        self._over = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._main, signal.SIGINT)
        else:
            _thread.interrupt_main()
