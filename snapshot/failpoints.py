"""Failpoints: named steps of writing at which a test can kill the process or raise an error.

``TUNDISH_FAILPOINT=journal.linked:kill`` kills the process at that step, ``:raise``
raises an OSError there; ``journal.linked:3:kill`` does so the third time. With
``TUNDISH_FAILPOINT_ONCE=<file>`` it happens in only one process: the first that creates the file.
The environment is read at import; without the variable, `reach` does nothing.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field

_FILES = ("header", "pipeline", "state", "journal", "index", "order", "manifest")

STEPS: tuple[str, ...] = (
    # A small file: its temporary file, its link, the folder's entry.
    *(
        f"{file}.{step}"
        for file in _FILES
        for step in ("begin", "written", "synced", "linked", "durable")
    ),
    # A shard: opened, each batch in it, its log; then as any file.
    *(
        f"shard.{step}"
        for step in ("begin", "batch", "logged", "closed", "synced", "linked", "durable")
    ),
    # What a writer does with them.
    *(f"writer.{step}" for step in ("adopt", "sealed", "committed", "finished")),
    # Taking over the run of a dead writer: the fence, each file that goes.
    *(f"adopt.{step}" for step in ("fenced", "removed")),
    # The lease.
    *(f"lease.{step}" for step in ("taken", "released")),
    # Replacing a file: what compact does with the manifest.
    *(f"replace.{step}" for step in ("written", "synced", "renamed", "durable")),
)
"""Every step there is, in the order in which a run reaches them."""


@dataclass
class Failpoint:
    """The step in `TUNDISH_FAILPOINT`, and what happens there."""

    step: str
    action: str
    nth: int = 1
    once: str | None = None
    seen: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str, once: str | None = None) -> Failpoint:
        """Parse ``step[:n]:kill`` or ``step[:n]:raise``."""
        step, *rest = text.split(":")
        action = rest[-1] if rest else ""
        nth = rest[0] if len(rest) == 2 else "1"
        if step not in STEPS or action not in {"kill", "raise"} or not nth.isdecimal():
            raise ValueError(
                f"TUNDISH_FAILPOINT={text} is not STEP[:N]:kill or STEP[:N]:raise with one of the "
                f"steps {', '.join(STEPS)}"
            )
        return cls(step, action, int(nth), once)

    def reach(self, step: str) -> None:
        """Kill or raise, if this is the step and the call to fail."""
        if step not in STEPS:
            raise ValueError(f"{step} is not in tundish.snapshot.failpoints.STEPS")
        if step != self.step:
            return
        self.seen += 1
        if self.seen != self.nth or not self._first():
            return
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.EIO, "a failpoint", step)

    def _first(self) -> bool:
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def _nothing(step: str) -> None:
    pass


def _wanted() -> Failpoint | None:
    text = os.environ.get("TUNDISH_FAILPOINT")
    return Failpoint.parse(text, os.environ.get("TUNDISH_FAILPOINT_ONCE")) if text else None


ACTIVE = _wanted()
reach = ACTIVE.reach if ACTIVE is not None else _nothing
"""Say that a step is reached."""
