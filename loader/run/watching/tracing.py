"""The trace (``TUNDISH_TRACE=file``, ``StatsOptions(trace=file)``): one line of JSON for each event of a task.

Every line has ``t`` (seconds since its iterator's first line), ``it`` (the iterator: ``PID.NUMBER``),
``dir`` (``->`` to a worker, ``<-`` from it, ``--`` in the consumer's process), ``worker`` (0: none),
``kind``, and fields of its own. Beside the messages with workers (`messages.MessageKind`), and ``DIED``:

========  ==========================================================================================
BEGIN     the first line: ``pid``, ``at`` (seconds since 1970), ``plan``, ``workers``
STAGE     names the stage that a number stands for from now on: ``stage``, ``name``
NEXT      the consumer received something: ``us``, how long that took; ``calls``, if several calls in
          quick succession share the line, which then covers the time between them, too
WAIT      a wait for workers ended: ``us``
NODE      a timed element left an operator, in the consumer's process: ``node``, ``us``
LEVEL     current levels: blocks ``ready``, slots ``leased``, bytes ``used``, ...
END       the last line
========  ==========================================================================================

The duration in a line ends at its ``t``. If the process is killed, the last line may be torn.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.loader.run.wire.messages import MessageKind

if TYPE_CHECKING:
    from tundish.loader.run.wire.messages import Done, Task

_SHORT_S = 0.0002
_SPAN_S = 0.01
_numbers = itertools.count(1)


def open_trace(path: str | None, plan: str, workers: int) -> Trace | None:
    """Open the trace that is requested; None if none is.

    Parameters
    ----------
    path : str or None
        The path from the options; ``TUNDISH_TRACE`` takes precedence.
    plan : str
        The plan's operators, for display.
    workers : int
        The number of workers.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    forced = os.environ.get("TUNDISH_TRACE")
    path = forced or path
    if not path:
        return None
    try:
        return Trace(path, plan=plan, workers=workers)
    except OSError as error:
        asked = "TUNDISH_TRACE" if forced else "StatsOptions.trace"
        why = f"{error.strerror or error}; the trace that {asked} asks for cannot be written"
        raise type(error)(error.errno, why, path) from None


class Trace:
    """A trace file, written line by line as events happen.

    Parameters
    ----------
    path : str
        The file; lines are appended.
    plan : str
        The iterator's operators, for display.
    workers : int
        The number of workers.
    """

    def __init__(self, path: str, *, plan: str = "", workers: int = 0) -> None:
        # Unbuffered: a line is one write, so lines of several processes stay whole.
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - kept open
        self.start = time.monotonic()
        self._it = f"{os.getpid()}.{next(_numbers)}"
        self._calls = 0
        self._from = self._until = 0.0
        about = {"pid": os.getpid(), "at": round(time.time(), 6), "plan": plan, "workers": workers}
        self._write(0.0, "--", 0, "BEGIN", about)

    def __call__(self, direction: str, worker: int, kind: str, **fields: Any) -> None:
        """Write an event."""
        self._write(self._now(), direction, worker, kind, fields)

    def stage(self, number: int, name: str) -> None:
        """Write the name that a stage number stands for from now on."""
        self("--", 0, "STAGE", stage=number, name=name)

    def task(self, worker: int, task: Task) -> None:
        """Write that a task was sent to a worker."""
        _, _, stage, block, slot, first, rows, *_ = task
        self("->", worker, "TASK", stage=stage, block=block, first=first, rows=rows, slot=slot)

    def answer(self, worker: int, done: Done) -> None:
        """Write that a worker has answered a task."""
        about = {"stage": done.stage, "block": done.block, "first": done.first, "rows": done.rows}
        kind = MessageKind(done.kind).name
        self("<-", worker, kind, **about, us=done.micros, bytes=done.nbytes)

    def gave(self, seconds: float) -> None:
        """Write that the consumer received something, after `seconds`.

        Short calls in quick succession share a line.
        """
        now = self._now()
        begin = now - seconds
        short = seconds < _SHORT_S and begin - self._until < _SHORT_S
        if not (self._calls and short and now - self._from < _SPAN_S):
            self._flush()
            self._from = begin
        self._calls += 1
        self._until = now

    def waited(self, seconds: float) -> None:
        """Write that a wait for workers ended; call it before the events that the wait led to."""
        self._flush()
        self("--", 0, "WAIT", us=round(seconds * 1e6))

    def computed(self, node: str, seconds: float) -> None:
        """Write that an element left an operator in this process; `seconds` does not include its inputs."""
        self._flush()
        self("--", 0, "NODE", node=node, us=round(seconds * 1e6))

    def level(self, **numbers: float) -> None:
        """Write the current levels."""
        self("--", 0, "LEVEL", **numbers)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._file.closed:
            return
        self._flush()
        self("--", 0, "END")
        self._file.close()

    def _now(self) -> float:
        return time.monotonic() - self.start

    def _flush(self) -> None:
        if not self._calls:
            return
        fields = {"us": round((self._until - self._from) * 1e6)}
        if self._calls > 1:
            fields["calls"] = self._calls
        self._calls = 0
        self._write(self._until, "--", 0, "NEXT", fields)

    def _write(
        self, at: float, direction: str, worker: int, kind: str, fields: dict[str, Any]
    ) -> None:
        if self._file.closed:
            return
        head = {"t": round(at, 6), "it": self._it, "dir": direction, "worker": worker}
        line = json.dumps({**head, "kind": kind, **fields}) + "\n"
        try:
            self._file.write(line.encode())
        except OSError as error:  # a full disk: the pipeline goes on
            self._file.close()
            notice(f"the trace {self._file.name} ends here: {error.strerror or error}")


def notice(message: str) -> None:
    """Warn; never raises, even where warnings are errors, but prints the message then.

    An exception here would lose an element in flight, or leave workers running.

    Parameters
    ----------
    message : str
        What happened, and what happens instead.
    """
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        warnings.showwarning(message, RuntimeWarning, __file__, 0)
