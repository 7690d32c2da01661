"""The watchdog, which ends workers that passed an element's deadline or are certainly deadlocked.

A worker forked from the consumer has a copy of its locks, including those held by threads that do not exist in it:
whoever waits for one waits for ever. The system shows that: if every thread of a process waits, without a timeout,
for a lock that nobody outside the process can release (a private futex), and none of them has run in the
meantime, none ever will.

The template checks, since it is the workers' parent and waits for them anyway. It asks for the worker's stacks,
which go to the worker's stderr, and kills it a moment later. Deadlines work in the same way, through a page that
both share: `faulthandler.dump_traceback_later`, which is used elsewhere, never returns in a fork of a process
that has called it too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import platform
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from tundish.errors import StalledError

STUCK = "Deadlock (every thread of this worker waits for a lock that none of them will release)"
"""The beginning of the message about a worker that was ended for that reason."""

ENDS = "it ends"
"""Says that a worker must be killed now."""

_LOOK_S = 0.5  # between two looks that have to agree
_TELLING_S = 0.1  # for a worker's stacks to arrive
_FUTEX = {"x86_64": 202, "aarch64": 98, "arm64": 98, "riscv64": 98}.get(platform.machine(), -1)
_WAITING = {0, 6, 9, 13}  # FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2
_COMMAND, _PRIVATE = 0x7F, 0x80
_EXPIRY = struct.Struct("d")
_NEVER = 0.0

_own: list[mmap.mmap] = []


def limit(seconds: float) -> None:
    """Print this process's stacks and end it, unless `lift` or another `limit` is called within `seconds`."""
    if _own:
        _EXPIRY.pack_into(_own[0], 0, time.monotonic() + seconds)
    else:
        faulthandler.dump_traceback_later(seconds, exit=True)


def lift() -> None:
    """Cancel the limit."""
    if _own:
        _EXPIRY.pack_into(_own[0], 0, _NEVER)
    else:
        faulthandler.cancel_dump_traceback_later()


def new_page() -> mmap.mmap:
    """Return memory that is shared with a worker to be forked."""
    return mmap.mmap(-1, mmap.PAGESIZE)


def take_page(page: mmap.mmap) -> None:
    """In a worker, keep deadlines in a page that the template reads, and print stacks when it asks."""
    _own[:] = [page]
    faulthandler.register(_signal(), file=2, all_threads=True, chain=False)


def _signal() -> int:
    return signal.SIGRTMAX - 1


@dataclass
class Ward:
    """A worker under the watchdog's eyes.

    Parameters
    ----------
    pid : int
        Its process id.
    page : mmap.mmap
        The shared page with its deadline.
    """

    pid: int
    page: mmap.mmap
    _seen: list[str] | None = None
    _look_at: float = 0.0
    _ends_at: float | None = None

    def look(self, now: float) -> str | None:
        """Check the worker once.

        Parameters
        ----------
        now : float
            The current `time.monotonic`.

        Returns
        -------
        str or None
            The reason to end the worker, once; it has then been asked for its stacks. `ENDS` when they have had the
            time to arrive; None if nothing is wrong.
        """
        if self._ends_at is not None:
            return ENDS if now >= self._ends_at else None
        why = self._why(now)
        if why is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, _signal())
            self._ends_at = now + _TELLING_S
        return why

    def _why(self, now: float) -> str | None:
        (expiry,) = _EXPIRY.unpack_from(self.page)
        if expiry != _NEVER and now >= expiry:
            return "Timeout (an element took longer than its deadline)"
        if now < self._look_at:
            return None
        self._look_at = now + _LOOK_S
        before, self._seen = self._seen, stuck_threads(self.pid)
        return STUCK if self._seen is not None and self._seen == before else None


def deadlocked(what: str, stacks: str) -> StalledError:
    """Return the error for a process that would wait forever.

    Parameters
    ----------
    what : str
        What waits, for the message.
    stacks : str
        The stack of each thread.
    """
    return StalledError(
        f"{what} waits for a lock that no thread will release: another thread of the consumer held it when "
        'workers were forked (leave start="fork" out, or make the iterator before that thread starts), or '
        "the function has a deadlock of its own",
        detail=stacks,
    )


def stuck_threads(pid: int) -> list[str] | None:
    """Describe the threads of a process if all of them wait for a lock without a timeout.

    Parameters
    ----------
    pid : int
        A child of this process.

    Returns
    -------
    list of str or None
        A description that stays the same as long as no thread runs; None if one of them does something else, or if
        the system does not show it.
    """
    found = []
    try:
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            if not _waits_for_ever((task / "syscall").read_text(encoding="ascii").split()):
                return None
            found.append((task / "status").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found


def _waits_for_ever(call: list[str]) -> bool:
    """Return True if a system call, as shown by ``/proc/.../syscall``, waits without a timeout."""
    if len(call) < 5 or call[0] != str(_FUTEX):
        return False
    operation, timeout = int(call[2], 16), int(call[4], 16)
    return operation & _COMMAND in _WAITING and bool(operation & _PRIVATE) and not timeout
