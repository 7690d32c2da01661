"""A watch on progress, for tests of what may wait for ever."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Stuck(KeyboardInterrupt):
    """The interrupt of a run in which nothing comes: an exception that pipelines and tests do not take for an element's."""


class Watch:
    """Ends a run in which nothing has come for long, with where it waits.

    Parameters
    ----------
    told : callable
        Returns what else is to be told then.
    stuck_s : float
        The longest time between two calls of `now`.
    """

    def __init__(self, told: Callable[[], Any], stuck_s: float = 60) -> None:
        self._told, self._stuck_s, self.doing = told, stuck_s, "begin"

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGALRM, self._stuck)
        self.now("begin")
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        if isinstance(error, Stuck):
            raise AssertionError(str(error)) from None  # noqa: TRY004 - no type is wrong

    def now(self, doing: str) -> None:
        """Say what is begun: the time begins anew."""
        self.doing = doing
        signal.setitimer(signal.ITIMER_REAL, self._stuck_s)

    def _stuck(self, _: int, frame: FrameType | None) -> None:
        stack = "".join(traceback.format_stack(frame)[-8:])
        try:
            told = self._told()
        except Exception as error:  # noqa: BLE001 - it is only told
            told = repr(error)
        raise Stuck(f"nothing for {self._stuck_s} s, in {self.doing!r}:\n{stack}\n{told}")
