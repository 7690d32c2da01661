"""``tundish top``: the pipelines of a running process, live, read from outside.

The process publishes what it measures on its board (`tundish.shm.board`); it is not stopped, and does
not know who looks.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import psutil

from tundish.cli.frame import BoardReading, History, clip, frame
from tundish.cli.terminal import dim, live, refuse, say, table
from tundish.loader.watch.wording import rate_text
from tundish.shm.board import pids_with_a_board, read_board

if sys.platform != "win32":
    import termios
    import tty

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY_S = 0.5
_FIRST_S = 1.5  # the wait for a second reading, if only one frame is shown
_WIDTH = 120  # if the output is no terminal
_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"


def run(pid: int | None = None, *, once: bool = False, as_json: bool = False) -> int:
    """Show a process's pipelines until it ends, or until q or Ctrl-C.

    Parameters
    ----------
    pid : int, optional
        Which process; without one those that may be asked for are listed.
    once : bool
        Print one frame. So it is where the output is no terminal.
    as_json : bool
        Print one line of JSON.

    Returns
    -------
    int
        The exit status: 2 when there is nothing to be seen.
    """
    try:
        if pid is None:
            return show_processes(as_json=as_json)
        watched = WatchedProcess(pid)
        watched.look()
    except (OSError, ValueError, NotImplementedError) as error:
        return refuse(_reason(error))
    if once or as_json or not live():
        return show_once(watched, as_json=as_json)
    with Screen() as screen:
        while watched.look():
            screen.show(watched.frame(screen.width))
            if screen.asked_to_leave(_EVERY_S):
                return 0
    for line in watched.frame(_columns()):
        say(line)
    say()
    say(f"process {pid} {watched.end}")
    return 0


class WatchedProcess:
    """A process, and the measurements that were read from it so far.

    Parameters
    ----------
    pid : int
        The id of the process.

    Raises
    ------
    OSError, ValueError, NotImplementedError
        As `read_board` does.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.history = History()
        self.reading = BoardReading.of(read_board(pid))
        # It knows the start time: another process may get the pid.
        self._process = psutil.Process(pid)
        self.end = ""

    def look(self) -> bool:
        """Read again; return True if the process still publishes. If not, `end` has the reason."""
        try:
            self.reading = BoardReading.of(read_board(self.pid))
        except TimeoutError:
            pass  # stopped in the middle, perhaps: the next look may find more
        except ProcessLookupError:
            self.end = "has ended"
            return False
        except OSError:
            self.end = "runs something else now"
            return False
        if not self._process.is_running():  # and another has its pid
            self.end = "has ended"
            return False
        self.history.add(self.reading)
        return True

    def frame(self, width: int) -> list[str]:
        """Return the lines to show."""
        return frame(self.pid, self.reading, self.history, width)


def show_once(watched: WatchedProcess, *, as_json: bool) -> int:
    """Print a frame, after a second reading: rates need two."""
    deadline = time.monotonic() + _FIRST_S
    while not watched.history.moved and time.monotonic() < deadline:
        time.sleep(_EVERY_S / 5)
        if not watched.look():
            break
    if as_json:
        iterators = watched.history.as_dicts(watched.reading)
        head = {"pid": watched.pid, "argv": list(watched.reading.argv)}
        say(json.dumps({**head, "iterators": iterators}))
        return 0
    for line in watched.frame(_columns()):
        say(line)
    return 0


def show_processes(*, as_json: bool) -> int:
    """List the processes of this user that publish."""
    if sys.platform != "linux":
        read_board(os.getpid())  # says why not
    found: list[tuple[int, BoardReading]] = []
    for pid in pids_with_a_board():
        try:
            found.append((pid, BoardReading.of(read_board(pid))))
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    if as_json:
        say(json.dumps([{"pid": pid, "argv": list(each.argv)} for pid, each in found]))
        return 0
    if not found:
        say(
            "none of your processes has a tundish pipeline that has been iterated for half a second"
        )
        return 0
    rows = [["pid", "iterators", "since start", "command"]]
    for pid, each in found:
        rates = sum(t.stats.elements / max(t.stats.wall_s, 1e-9) for t in each.iterators)
        rows.append([str(pid), str(len(each.iterators)), rate_text(rates), " ".join(each.argv)])
    table(rows, right=(0, 1, 2))
    say()
    say(dim("`tundish top PID` shows one of them"))
    return 0


class Screen:
    """The terminal while frames are shown; restored at the end in any case."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._keys = sys.stdin.isatty()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._stack.enter_context(_heard(signal.SIGTERM, self._end))
        self._stack.enter_context(_heard(signal.SIGHUP, self._end))
        self._stack.enter_context(_heard(signal.SIGTSTP, self._pause))
        self._stack.callback(self._give_back)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def width(self) -> int:
        """The number of columns."""
        return _columns()

    def show(self, lines: list[str]) -> None:
        """Write a frame over the last one."""
        columns, rows = shutil.get_terminal_size()
        hint = dim("q: leave")
        if len(lines) > rows - 1:
            hint = dim(f"{len(lines) - rows + 2} more lines; q: leave")
            lines = lines[: rows - 2]
        lines = [*lines, "", hint][:rows]
        text = "\x1b[K\n".join(clip(line, columns) for line in lines)
        sys.stdout.write(f"\x1b[H{text}\x1b[K\x1b[J")
        sys.stdout.flush()

    def asked_to_leave(self, seconds: float) -> bool:
        """Wait for some time; return True if q or Escape was typed meanwhile."""
        if not self._keys:
            time.sleep(seconds)
            return False
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return False
        typed = os.read(sys.stdin.fileno(), 256)
        return not typed or typed == b"\x1b" or b"q" in typed.lower()  # an arrow's begins with \x1b

    def _take(self) -> None:
        if self._keys:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin, termios.TCSANOW)
        _write(_ENTER)

    def _give_back(self) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
        _write(_LEAVE)

    def _pause(self, *_: object) -> None:
        """Handle Ctrl-Z: give the terminal back to the shell until this process continues."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _end(self, number: int, _: object) -> None:
        raise SystemExit(128 + number)


def _write(text: str) -> None:
    """Write past Python's buffer: a signal may have come in the middle of writing through it."""
    os.write(sys.stdout.fileno(), text.encode())


@contextmanager
def _heard(number: signal.Signals, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _columns() -> int:
    return shutil.get_terminal_size((_WIDTH, 40)).columns


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
