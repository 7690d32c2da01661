"""The snapshots of a plan as found when an iterator is made: served from disk, or written."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.storing.recorder import Recorder
    from tundish.snapshot.reading.reader import Reader

Served = tuple["Reader | None", int, Any]
"""A reader of the elements on disk, their number, and the input's state after them."""


@dataclass(frozen=True)
class ActiveSnapshot:
    """An incomplete snapshot, as one iterator uses it.

    Parameters
    ----------
    recorder : Recorder or None
        Records the elements that pass; None if nothing is written.
    served : callable
        Returns what is on disk now.
    content : str or None
        The fingerprint of what the upstream pipeline draws at random, beyond what the plan says.
    """

    recorder: Recorder | None
    served: Callable[[], Served]
    content: str | None = None


def nothing_served() -> Served:
    """Return the served part of a snapshot with nothing on disk: none."""
    return None, 0, None


@dataclass
class Setup:
    """A plan as it is run, and the snapshots in it.

    Parameters
    ----------
    root : Operator
        The plan, with complete snapshots in place of the operators before them.
    seed, graph_seed : int
        The seeds of operators that have none of their own; a continued run keeps its seeds.
    live : dict
        The incomplete snapshots, by node.
    """

    root: Operator
    seed: int
    graph_seed: int | None
    live: dict[int, ActiveSnapshot] = field(default_factory=dict)

    def leave(self) -> None:
        """Release the right to write, for other processes: no iterator was made after all."""
        for live in self.live.values():
            if live.recorder is not None:
                live.recorder.leave()


# -- writers of iterators that were closed --------------------------------------------------------
#
# They continue for a moment, and commit what had passed. Only an iterator that needs the same run next waits for
# them, and the interpreter when it ends.

_AT_EXIT_S = 1.5


_Gone = Callable[[float], bool]
"""Waits at most the given seconds for a worker that was told to exit; returns True if it has."""

_lingering: list[tuple[str, str, Sequence[_Gone]]] = []
"""Writers of closed iterators. It has no lock, since garbage collection closes iterators at any point of any thread."""


def linger(path: str, key: str, writers: Sequence[_Gone]) -> None:
    """Register workers that are still writing a snapshot after its iterator was closed."""
    _lingering.append((path, key, writers))


def wait_for(path: str, key: str, timeout_s: float = 60.0) -> None:
    """Wait until no worker of this process writes a snapshot whose iterator was closed."""
    deadline = time.monotonic() + timeout_s
    for entry in list(_lingering):
        if entry[:2] == (path, key):
            for gone in entry[2]:
                gone(deadline - time.monotonic())
        if all(gone(0.0) for gone in entry[2]):
            with contextlib.suppress(ValueError):  # another thread was faster
                _lingering.remove(entry)


def _at_exit() -> None:
    deadline = time.monotonic() + _AT_EXIT_S
    for _, _, writers in _lingering:
        for gone in writers:
            gone(deadline - time.monotonic())


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_lingering.clear)  # they are the parent's
