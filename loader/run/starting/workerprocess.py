"""A worker process as its launcher knows it, and how it ended."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.run.starting.launcher import Launcher

_PIECE_S = 0.02


@dataclass(frozen=True)
class Exit:
    """The end of a worker process: its exit code and what it wrote to stderr.

    Attributes
    ----------
    code : int
        The exit status, or minus the number of a signal; `os.EX_OSERR` if it was never started.
    how : str
        The same, in words.
    stderr : str
        The last 4 KB it wrote to stderr.
    pid : int or None
        Its process id, if it was started.
    errno : int
        The system's reason for not starting it, if known.
    """

    code: int
    how: str
    stderr: str
    pid: int | None = field(default=None, compare=False)
    errno: int = field(default=0, compare=False)

    @property
    def stuck(self) -> bool:
        """True if the worker was ended because it was certainly deadlocked."""
        from tundish.loader.run.starting.watchdog import STUCK  # noqa: PLC0415 - when it has ended

        return self.stderr.startswith(STUCK)


class WorkerProcess:
    """A requested worker; made by `Launcher.start`.

    Attributes
    ----------
    pid : int or None
        Known once the zygote has answered.
    sentinel : int or None
        A descriptor that is readable once the worker has ended; None until the zygote has
        answered (with ``spawn`` it is there at once), and after `release`.
    exit : Exit or None
        How it ended, once the zygote has reported it.
    changed : callable
        Called after each such report, from the thread that has read it.
    """

    def __init__(
        self,
        launcher: Launcher,
        number: int,
        sentinel: int | None,
        changed: Callable[[], object],
    ) -> None:
        self.pid: int | None = None
        self.sentinel = sentinel
        self.exit: Exit | None = None
        self.changed = changed
        self._launcher = launcher
        self._number = number

    def __repr__(self) -> str:
        state = "starting" if self.pid is None else f"pid {self.pid}"
        return f"<WorkerProcess {state if self.exit is None else self.exit.how}>"

    def kill(self) -> None:
        """Kill the worker and the processes it started; a worker that is still starting is killed when it appears."""
        if self.exit is None:
            self._launcher.kill(self._number)

    def wait_exit(self, timeout_s: float | None = None) -> Exit | None:
        """Wait until the worker has ended; return its exit, or None after `timeout_s`."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while self.exit is None and self._launcher.alive:
            left = deadline - time.monotonic()
            # In short pieces: another thread may receive the report that this one waits for.
            self._launcher.wait(max(0.0, min(left, _PIECE_S)))
            if left <= 0:
                break
        return self.exit

    def release(self) -> None:
        """Close the sentinel; the worker is not killed, and its exit is not reported.

        Safe to call twice, and in a forked child.
        """
        self._launcher.forget(self._number)
        sentinel, self.sentinel = self.sentinel, None
        if sentinel is not None:
            os.close(sentinel)

    __del__ = release
