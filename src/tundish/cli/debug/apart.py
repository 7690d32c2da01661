"""Search for a failing element in a separate process, which the element may kill."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tundish.cli.inspect import find
from tundish.cli.terminal import live
from tundish.errors import CheckpointError
from tundish.loader.protocols.items import End
from tundish.testing.again.replay import Replay
from tundish.testing.again.watcher import Watcher

_STATE_EVERY_S = 0.2
_SHOWN_EVERY_S = 0.2
_PATIENCE_S = 2.0
_CODE = "from tundish.cli.debug.apart import main; main()"


@dataclass
class Search:
    """The result of a search.

    Attributes
    ----------
    kind : str
        "none" (of `index` elements), "failed", "died", "interrupted", or "refused":
        the search could not begin.
    index : int
        Which element after the state was being made, or how many there were.
    state : dict or None
        The last state that was told, and `state_index`, of which element it is that.
    node, number : str, int or None
        The call that was begun last, of this element.
    how : str
        The end of the process, in words.
    text : str
        The traceback, or what is wrong.
    """

    kind: str = "died"
    index: int = 0
    state: dict[str, Any] | None = None
    state_index: int = 0
    node: str | None = None
    number: int | None = None
    how: str = ""
    text: str = ""
    began: float = field(default_factory=time.monotonic)

    def where(self) -> str:
        """The call that was begun last, as text."""
        return f", in {self.node}" if self.node else ""

    def take(self, told: list[Any]) -> None:
        """Process a report of the other process."""
        match told:
            case ["state", index, state]:
                self.state, self.state_index = state, index
            case ["element", index]:
                self.index, self.node, self.number = index, None, None
            case ["call", node, number]:
                self.node, self.number = node, number
            case [kind, index, text]:
                self.kind, self.index, self.text = kind, index, text


def search(
    target: str, state: dict[str, Any] | str | None, limit: int, *, quiet: bool = False
) -> Search:
    """Continue from a state in another process until an element fails.

    Parameters
    ----------
    target : str
        The dataset, as for ``tundish inspect``.
    state : dict, str or None
        The state, its path, or None: the start.
    limit : int
        How many elements are looked at.
    quiet : bool
        True to drop what the process prints.
    """
    found = Search()
    here, there = os.pipe()
    with tempfile.TemporaryDirectory(prefix="tundish-debug-") as folder:
        if isinstance(state, dict):
            path = Path(folder, "state.json")
            path.write_text(json.dumps(state), encoding="utf-8")
            state = str(path)
        words = json.dumps({"target": target, "state": state, "limit": limit, "to": there})
        out = subprocess.DEVNULL if quiet else None
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, words, *sys.argv[1:]],
            pass_fds=(there,),
            stdout=out,
            stderr=out,
        )
        os.close(there)
        try:
            with _leaving_interrupts_to(process) as seen, os.fdopen(here, encoding="utf-8") as told:
                _listen(told, found)
        finally:
            status = _ended(process)
    if found.kind == "died" and seen:
        found.kind = "interrupted"
    elif found.kind == "died":
        found.how = _how(status)
    return found


def _listen(told: IO[str], found: Search) -> None:
    """Process all reports."""
    shown = time.monotonic()
    for line in told:
        with contextlib.suppress(ValueError):  # cut off by a death
            found.take(json.loads(line))
        if live() and time.monotonic() - shown > _SHOWN_EVERY_S:
            shown = time.monotonic()
            sys.stdout.write(f"\r\x1b[K{found.index:,} elements without a failure")
            sys.stdout.flush()
    if live():
        sys.stdout.write("\r\x1b[K")


@contextlib.contextmanager
def _leaving_interrupts_to(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Let the other process, which also receives Ctrl-C, report where it was; a second Ctrl-C kills it."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def interrupted(number: int, _: Any) -> None:
        if seen:
            process.kill()
        seen.append(number)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


# -- in the other process ----------------------------------------------------------------------


def main() -> None:
    """Run the search in the other process, and report."""
    given = json.loads(sys.argv.pop(1))
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a function printed before it died is seen
        sys.stdout.reconfigure(line_buffering=True)
    faulthandler.enable()
    os.set_inheritable(
        given["to"], False
    )  # a process that the user's function starts must not hold it
    with os.fdopen(given["to"], "w", buffering=1, encoding="utf-8") as file:

        def tell(*words: Any) -> None:
            file.write(json.dumps(words) + "\n")

        try:
            dataset = find(given["target"])
            watcher = Watcher(tell=lambda node, number: tell("call", node, number))
            replay = Replay(dataset, given["state"], watcher)
        except (CheckpointError, *_REFUSED) as error:
            tell("refused", 0, f"{given['target']}: {error}")
            return
        with replay:
            _look(replay, given["limit"], tell)


_REFUSED = (ImportError, OSError, AttributeError, TypeError, ValueError)


def _look(replay: Replay, limit: int, tell: Any) -> None:
    told = 0.0
    for index in range(limit):
        tell("element", index)
        if time.monotonic() - told > _STATE_EVERY_S:
            tell("state", index, replay.state(replay.here()))
            told = time.monotonic()
        try:
            replay.next()
        except End:
            tell("none", index, "")
            return
        except Exception as error:  # noqa: BLE001 - the element's error, which is looked for
            tell("state", index, replay.state(replay.mark))
            tell("failed", index, "".join(traceback.format_exception(error)))
            return
        except KeyboardInterrupt as interrupt:
            tell("interrupted", index, _place(interrupt))
            return
    tell("none", limit, "")


def _place(error: BaseException) -> str:
    """Return the location of the user's code in an error."""
    ours = str(Path(__file__).parents[2])
    stack = traceback.extract_tb(error.__traceback__)
    stack[:] = [frame for frame in stack if not frame.filename.startswith(ours)]
    return "".join(traceback.format_list(stack)).rstrip()
