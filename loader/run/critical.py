"""Steps that an interrupt must not cut in two."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done.

    Starting and ending workers opens descriptors and processes; an exception between two of those
    steps would leave some behind. Only the main thread gets interrupts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler: Any = signal.getsignal(signal.SIGINT)
    try:
        # The mask is only this thread's: where there is another, the system gives the signal to it,
        # and Python calls the handler here.
        if handler is not None:  # else it is not Python's
            signal.signal(signal.SIGINT, lambda number, _: held.append(number))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            if held:
                signal.raise_signal(signal.SIGINT)
