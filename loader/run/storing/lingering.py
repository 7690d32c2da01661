"""Writers that go on for a moment when their iterator has been closed: they commit what had passed.

Nobody waits for them but who wants the same run next, and the interpreter when it ends.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.run.peers import Peer

_AT_EXIT_S = 1.5
_lock = threading.Lock()
_lingering: list[tuple[str, str, list[Peer]]] = []


def linger(path: str, key: str, peers: list[Peer]) -> None:
    """Note that these still write a snapshot."""
    with _lock:
        _lingering.append((path, key, peers))


def wait_for(path: str, key: str, timeout_s: float = 60.0) -> None:
    """Wait until nobody of this process writes a snapshot that was closed."""
    deadline = time.monotonic() + timeout_s
    with _lock:
        mine = [peers for p, k, peers in _lingering if (p, k) == (path, key)]
    for peers in mine:
        for peer in peers:
            peer.is_gone(deadline - time.monotonic())
    _forget()


def _forget() -> None:
    with _lock:
        _lingering[:] = [entry for entry in _lingering if not all(p.is_gone(0.0) for p in entry[2])]


def _at_exit() -> None:
    deadline = time.monotonic() + _AT_EXIT_S
    with _lock:
        entries = list(_lingering)
    for _, _, peers in entries:
        for peer in peers:
            peer.is_gone(deadline - time.monotonic())


def _after_fork() -> None:
    """They are the other process's."""
    global _lock  # noqa: PLW0603 - somebody may have held it
    _lock = threading.Lock()
    _lingering.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
