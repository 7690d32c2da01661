"""The template: a single-threaded fork of the consumer, from which an iterator's workers are forked.

It is forked at ``iter()``, so workers have everything as it was then: globals, settings, open files, objects that cannot
be pickled. Nothing is sent: the objects of a payload are simply there (`inherited`). Workers that start later,
to replace one that died or because more are wanted, are forked from it as well, and have the same.

After the fork no code of the consumer's runs any more. Signal handlers are reset, `atexit` is never reached, no
garbage is collected, and no frame of the consumer's is ever returned to. Our own locks are free, and descriptors of
other iterators closed (`tundish.forked`); everything of the user's stays open.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import re
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tundish.forked import let_go
from tundish.loader.run.starting.control import Control, Message
from tundish.loader.run.starting.surroundings import find_pools, malloc_settings
from tundish.loader.run.starting.watchdog import ENDS, Ward, new_page, take_page
from tundish.loader.run.starting.zygote import Started, Zygote, reseed

if TYPE_CHECKING:
    from tundish.loader.run.starting.request import Request


_LOOK_MS = 100
_WARNS = sys.version_info >= (3, 12)  # Python itself warns of every thread when a process forks

_CONSUMERS = re.compile(rb'  File "[^"]*", line \d+ in become\n(?:  File .*\n?)*')
"""In a worker's stacks: the frames of the consumer, which it was forked in."""

_inherited: list[Any] = []
_kept: list[Any] = []  # the consumer's streams: one that is let go would write what they still hold


def inherited() -> list[Any]:
    """Return the objects that this worker was forked with."""
    return _inherited


class Forked:
    """A forked child, with the part of `subprocess.Popen`'s interface that a launcher needs.

    Parameters
    ----------
    pid : int
        Its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while it is running."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for it to exit, and return the exit code."""
        code = self._waited(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill it, if it is running."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _waited(self, flags: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:  # somebody else has waited for it
                self.returncode = 0
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@dataclass(frozen=True)
class Heritage:
    """Objects and settings of workers that differ from the consumer's.

    Parameters
    ----------
    objects : sequence
        What `inherited` returns in workers.
    environ : mapping
        Environment variables for workers.
    threads : int
        The number of threads that a library may use within a worker.
    """

    objects: Sequence[Any]
    environ: Mapping[str, str]
    threads: int


def fork_template(theirs: socket.socket, ours: Control, heritage: Heritage) -> Forked:
    """Fork this process; the child serves as a template until the parent exits.

    Parameters
    ----------
    theirs : socket.socket
        The child's end of the control socket.
    ours : Control
        The parent's end, which the child closes.
    heritage : Heritage
        Objects and settings for its workers.
    """
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):  # their buffers would be written twice
        with contextlib.suppress(Exception):
            stream.flush()
    # A handler of the user's, or an interrupt, has no business in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = _fork()
        if not pid:
            _serve(theirs, ours, parent, heritage)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Forked(pid)


def _fork() -> int:
    if not _WARNS:
        return os.fork()
    with warnings.catch_warnings():  # we warn of threads ourselves, if they matter
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(theirs: socket.socket, ours: Control, parent: int, heritage: Heritage) -> NoReturn:
    try:
        gc.disable()
        gc.freeze()
        os.setsid()
        let_go()
        ours.close()
        _set_signals_back()
        _close_stdin()
        os.environ.update(heritage.environ)
        for parameter, value in malloc_settings():
            ctypes.CDLL(None).mallopt(parameter, value)
        _inherited[:] = heritage.objects
        control = Control(theirs)
        template = _Template(control, parent, heritage.threads)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        template.run()
    except BaseException:  # noqa: BLE001 - nothing may return into the consumer's code
        traceback.print_exc()
    finally:
        os._exit(1)


def _set_signals_back() -> None:
    """Reset signal handlers: the consumer's might save a checkpoint, say, in each worker."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and not isinstance(
            signal.getsignal(number), signal.Handlers
        ):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _do_nothing)


def _do_nothing(*_: object) -> None:
    """Handle a signal that only has to wake the loop."""


def _close_stdin() -> None:
    """Close stdin, so that the consumer alone reads the terminal."""
    if sys.stdin is None:
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)
    _kept.append(sys.stdin)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good


class _Template(Zygote):
    name = b"tundish-templat"  # the system keeps 15 characters

    def __init__(self, control: Control, parent: int, threads: int) -> None:
        super().__init__(control, parent, forks=True)
        self.threads = threads
        self.pools = find_pools()
        self.wards: dict[int, Ward] = {}
        self.asked: Message | None = None
        self.page = new_page()

    def patience_ms(self) -> int | None:
        return _LOOK_MS if self.workers else super().patience_ms()

    def look_after(self) -> None:
        now = time.monotonic()
        self.wards = {number: self.wards[number] for number in self.workers}
        for number, worker in self.workers.items():
            why = self.wards[number].look(now)
            if why == ENDS:
                worker.kill()
            elif why is not None:
                worker.why, worker.tail = f"{why}!\n".encode(), b""

    def start(self, message: Message) -> None:
        self.asked, self.page = message, new_page()
        super().start(message)

    def announce(self, worker: Started) -> None:
        self.wards[worker.number] = Ward(worker.pid, self.page)
        super().announce(worker)

    def last_words(self, worker: Started) -> bytes:
        return worker.why + _CONSUMERS.sub(b"", worker.tail)

    def end(self) -> NoReturn:
        for worker in self.workers.values():
            worker.kill()
        for worker in self.workers.values():  # once this process has ended, they are certainly gone
            with contextlib.suppress(ChildProcessError):
                os.waitpid(worker.pid, 0)
        super().end()

    def become(self, request: Request, fds: Sequence[int]) -> NoReturn:
        gc.enable()
        for fd in self._own() - set(fds) - {0, 1, 2}:  # which are the worker's by now
            os.close(fd)
        take_page(self.page)
        reseed()
        request.run(fds, self._settle)

    def _own(self) -> set[int]:
        """Return the descriptors of the template itself, which workers close; those of the user's stay open."""
        assert self.asked is not None
        own = {self.control.fileno(), *self.pipes, self.parent_fd, *self.asked.fds, *self.began}
        return {fd for fd in (*own, *(each.stderr for each in self.workers.values())) if fd >= 0}

    def _settle(self) -> None:
        for set_threads in self.pools:
            set_threads(self.threads)
        # Streams of its own: another thread may hold the lock of the consumer's.
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = getattr(sys, name)
            if stream is not None and stream is getattr(sys, f"__{name}__"):
                _kept.append(stream)
                errors, encoding = stream.errors, stream.encoding
                raw = io.FileIO(fd, "w", closefd=False)
                new = io.TextIOWrapper(
                    io.BufferedWriter(raw), encoding, errors, line_buffering=True
                )
                setattr(sys, name, new)
                setattr(sys, f"__{name}__", new)
