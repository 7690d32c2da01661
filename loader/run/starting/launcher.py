"""The launcher: the consumer's end of the zygote, which starts workers and reports their exits.

One zygote serves all iterators of a process, and dies with it. It is started on first use, again after the user
forks, and again after it was killed; the workers of a killed zygote die with it, which coordinators notice like any
other death.

``TUNDISH_START=zygote|spawn|fork`` chooses how workers start: forked by the zygote (the default on
Linux), each in an interpreter of its own (elsewhere, and with ``TUNDISH_PORTABLE=1``), or forked by a
template, which is itself forked from the consumer for one iterator (`Template`).
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tundish.loader.run.starting.control import Control, ControlKind, Message, scratch_file
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.starting.request import Request
from tundish.loader.run.starting.surroundings import (
    Surroundings,
    command,
    exec_environ,
    import_path,
    interpreter,
    standard_stream,
    worker_environ,
)
from tundish.loader.run.starting.workerprocess import Exit, WorkerProcess
from tundish.shm.budget import portable
from tundish.shm.liveness import describe_exit, kill_session

if TYPE_CHECKING:
    from tundish.loader.run.starting.template import Forked

_PRELOAD = ("numpy", "cloudpickle")  # modules that every worker needs
_SHOWN = 4096  # characters of a failed zygote's stderr
_MOST_KILLED = 3  # zygotes killed in a row before they were ready, until that is an error
_QUIT_S = 0.2  # for a zygote to quit when told; then it and its workers are killed


class Launcher:
    """The consumer's end of one zygote. Safe to use from any thread.

    Parameters
    ----------
    kind : {"zygote", "spawn", "fork"}
        How workers start: forked by the zygote, each in a new interpreter, or forked from a template.
    threads : int
        The number of threads that a library may use within a worker (BLAS, OpenMP, ...).

    Attributes
    ----------
    alive : bool
        True if workers can be started; False once the zygote is known to be dead.
    """

    def __init__(self, kind: str, threads: int = 1) -> None:
        self.kind = kind
        self.alive = True
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._workers: weakref.WeakValueDictionary[int, WorkerProcess]
        self._workers = weakref.WeakValueDictionary()
        self._environ = worker_environ(threads)
        self._failure: str | None = None
        self._quitting = self._ready = False
        self._preloaded: set[str] = set()
        self._stderr: int | None = None  # the zygote's, until it is ready
        self._control, theirs = Control.pair()
        try:
            self._process = self._begin(theirs, threads)
        except BaseException:
            self._control.close()
            self._take_stderr()
            raise
        finally:
            theirs.close()
        # Not when it ends: others may be waiting for its descriptor.
        weakref.finalize(self, self._control.close).atexit = False
        _all.add(self)

    def _begin(self, theirs: socket.socket, threads: int) -> subprocess.Popen[bytes] | Forked:
        """Start the zygote with its end of the socket."""
        preload = _PRELOAD if self.kind == "zygote" else ()
        statement = f"serve({theirs.fileno()},{self._owner},{self.kind == 'zygote'},{preload})"
        python = interpreter()
        self._stderr = scratch_file()
        return subprocess.Popen(
            command(python, import_path(), statement),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**exec_environ(), **os.environ, **self._environ},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    def preload(self, modules: Sequence[str]) -> None:
        """Import modules once for all workers that are started afterwards.

        Returns at once. If workers do not share the zygote's imports, or a module fails to import, each worker
        imports it itself.
        """
        new = [name for name in modules if name not in self._preloaded]
        if new and self.kind == "zygote" and os.getpid() == self._owner:
            self._preloaded.update(new)
            text = json.dumps({"modules": new, "path": import_path()})
            with self._lock:
                self._control.send(ControlKind.PRELOAD, text=text.encode())

    def start(
        self,
        entry: str,
        fds: Sequence[int],
        config: bytes,
        *,
        hidden: bool = True,
        environ: Mapping[str, str] | None = None,
        surroundings: Surroundings | None = None,
        changed: Callable[[], object] = lambda: None,
    ) -> WorkerProcess:
        """Request a worker, without waiting for it.

        The worker gets this process's present stdout and stderr.

        Parameters
        ----------
        entry : str
            ``module:function``. The worker calls it with the list of descriptors (in this order; closed on exec) and
            the config; if it returns an int, that is the exit status.
        fds : sequence of int
            Descriptors that the worker gets copies of; the caller may close them afterwards.
        config : bytes
            Passed to the function.
        hidden : bool
            True to hide accelerators from it and limit its libraries' threads; False to leave its
            environment as this process's.
        environ : mapping, optional
            Environment variables that override those. With ``spawn``, the interpreter starts with them.
        surroundings : Surroundings, optional
            Its environment, ``sys.path``, ``sys.argv`` and working directory; default: this process's now.
        changed : callable, optional
            Called when its process has begun, and when it has ended, from the thread that reads the report; it must not wait.

        Returns
        -------
        WorkerProcess

        Raises
        ------
        RuntimeError
            The zygote could not be started; with what it wrote to stderr.
        """
        if os.getpid() != self._owner:
            raise RuntimeError(f"this launcher is process {self._owner}'s, not {os.getpid()}'s")
        overrides = {**(self._environ if hidden else {}), **(environ or {})}
        request = self._request(entry, config, overrides, surroundings or Surroundings.here())
        self.pump()
        with self._lock, contextlib.ExitStack() as copies:
            sentinel = None
            sent: list[int] = []
            for copy in (request.write, partial(standard_stream, 1), partial(standard_stream, 2)):
                sent.append(copy())
                copies.callback(os.close, sent[-1])  # at once: there may be none left for the next
            sent += fds
            if self.kind == "spawn":
                sentinel, end = os.pipe()  # the other end is held only by the worker
                copies.callback(os.close, end)
                sent.append(end)
            number = next(self._numbers)
            worker = self._workers[number] = WorkerProcess(self, number, sentinel, changed)
            self._control.send(ControlKind.START, number, len(sent), fds=tuple(sent))
            if not self.alive:
                self._lose(worker)
        return worker

    def _request(
        self, entry: str, config: bytes, overrides: Mapping[str, str], around: Surroundings
    ) -> Request:
        return Request(
            entry=entry,
            config=config,
            environ={**around.environ, **overrides},
            path=list(around.path),
            argv=list(around.argv),
            cwd=around.cwd,
        )

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `pump` has something to process; None if there is none.

        It stays open until `close`, or until the launcher is forgotten.
        """
        return self._control.fileno() if self.alive else None

    def pump(self) -> None:
        """Process the zygote's reports, without waiting: pids, sentinels and exits.

        Raises
        ------
        RuntimeError
            The zygote could not be started; with what it wrote to stderr.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self.alive:
                news = self._control.receive()
                try:
                    while news:
                        self._take_in(news)
                        del news[0]
                    self._control.flush()
                except BaseException:  # some of it may be lost: start over with another zygote
                    self._control.closed = True
                    kept = {worker.sentinel for worker in self._workers.values()}
                    told = {fd for message in news for fd in message.fds}
                    for fd in told - kept:
                        os.close(fd)
                    raise
                if self._control.closed:
                    self._end()
            if self._failure is not None:
                raise RuntimeError(self._failure)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for reports and process them; return True if there were any before `timeout_s`."""
        if not self.alive:
            return False
        poll = select.poll()
        poll.register(
            self._control, select.POLLIN | (select.POLLOUT if self._control.unsent else 0)
        )
        if not poll.poll(None if timeout_s is None else timeout_s * 1000):
            return False
        self.pump()
        return True

    def kill(self, number: int) -> None:
        """Kill a requested worker, now or when it appears."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            worker = self._workers.get(number)
            if self.kind != "spawn" and worker is not None and worker.sentinel is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(worker.sentinel, signal.SIGKILL)
            else:
                self._control.send(ControlKind.KILL, number)

    def forget(self, number: int) -> None:
        """Drop a worker from the reports."""
        self._workers.pop(number, None)

    def close(self) -> None:
        """End the zygote and every worker. Safe to call twice, and in a forked child."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            with contextlib.suppress(RuntimeError):
                self.pump()
            if self.alive and self._stderr is None:  # else it has no workers yet
                self._quitting = True
                self._control.send(ControlKind.QUIT)
                deadline = time.monotonic() + _QUIT_S
                while self.wait(max(0.0, deadline - time.monotonic())):
                    continue
            if self.alive:
                self._quitting = False
                self._take_stderr()
                self._end()
            self._control.close()

    def abandon(self) -> None:
        """Release everything in a forked child, since it belongs to the parent."""
        self.alive = False
        self._control.close()
        self._take_stderr()
        self._process.returncode = 0  # not our child: nobody here is to wait for it
        for worker in list(self._workers.values()):
            worker.release()

    def _take_in(self, news: list[Message]) -> None:
        """Process the first report."""
        message = news[0]
        if message.kind is ControlKind.READY:
            self._ready = True
            _killed_early.clear()
            with contextlib.suppress(OSError):
                os.write(2, self._take_stderr())  # warnings of what it has imported
            return
        worker = self._workers.get(message.worker)
        if worker is None:  # released meanwhile
            # First, since a descriptor that is closed twice could be somebody else's by then.
            news[0] = message._replace(fds=())
            for fd in message.fds:
                os.close(fd)
            return
        if message.kind is ControlKind.STARTED:
            worker.pid = message.value
            if self.kind != "spawn":
                if message.fds:
                    (worker.sentinel,) = message.fds
                else:
                    self._control.send(ControlKind.KILL, message.worker)
                    worker.exit = _not_started(
                        "no descriptor is left to watch it (ulimit -n)", errno.EMFILE
                    )
        elif message.kind is ControlKind.ENDED and worker.exit is None:
            stderr = message.text.decode(errors="replace")
            worker.exit = Exit(message.value, describe_exit(message.value), stderr, worker.pid)
        elif message.kind is ControlKind.FAILED:
            reason = message.text.decode(errors="replace")
            worker.exit = _not_started(reason, message.value)
        worker.changed()

    def _take_stderr(self) -> bytes:
        """Return, once, what the zygote wrote to stderr while starting."""
        fd, self._stderr = self._stderr, None
        if fd is None:
            return b""
        text = os.pread(fd, 1 << 16, 0)
        os.close(fd)
        return text

    def _end(self) -> None:
        """End a zygote that is dead or can no longer be trusted, and everything it has started."""
        self.alive = False
        if not self._quitting:  # else it ends its workers itself
            kill_session(self._process.pid)  # which nobody has waited for: the number is its own
            self._process.kill()
        code = self._process.wait()
        for worker in list(self._workers.values()):
            self._lose(worker)
        if self._stderr is not None:  # it never was ready
            text = self._take_stderr().decode(errors="replace").strip()
            if code == -signal.SIGKILL:  # from outside: the next zygote may succeed
                _killed_early.append(self._process.pid)
                if len(_killed_early) < _MOST_KILLED:
                    return
            self._failure = (
                f"the process that starts workers did not start: {describe_exit(code)}"
                + (f"; its last lines on stderr:\n{text[-_SHOWN:]}" if text else "")
            )

    def _lose(self, worker: WorkerProcess) -> None:
        if worker.exit is not None:
            return
        if self.kind == "spawn" and worker.pid is not None and worker.sentinel is not None:
            poll = select.poll()
            poll.register(worker.sentinel, select.POLLIN)
            if not poll.poll(0):  # it is still there, so the number is its own
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
        code = -signal.SIGKILL
        worker.exit = Exit(code, f"{describe_exit(code)}, together with its zygote", "", worker.pid)
        worker.changed()


def _not_started(reason: str, number: int) -> Exit:
    return Exit(os.EX_OSERR, f"it could not be started: {reason}", "", errno=number)


# ------------------------------------------------------------------------------ one for the process

_current: dict[tuple[str, int], Launcher] = {}
_all: weakref.WeakSet[Launcher] = weakref.WeakSet()
_killed_early: list[int] = []  # the last zygotes, none of which has become ready
_making = threading.Lock()


def launcher(threads: int = 1, kind: str | None = None) -> Launcher:
    """Return the process's launcher, started now if there is none alive.

    Parameters
    ----------
    threads : int, default 1
        The number of threads that a library may use within a worker. Libraries read it when they are loaded, so
        there is one zygote for each number.
    kind : {"zygote", "spawn"}, optional
        How workers start; by default as `start_method` says.

    Returns
    -------
    Launcher
        Workers may be requested at once; they start when the zygote is ready.
    """
    kind = kind or start_method()
    with _making:
        current = _current.get((kind, threads))
        if current is not None:
            with contextlib.suppress(RuntimeError):  # that one failed; the next may not
                current.pump()
        if current is None or not current.alive:
            current = _current[kind, threads] = Launcher(kind, threads)
        return current


def prestart(threads: int, start: str | None, modules: Sequence[str]) -> None:
    """Start the process's launcher early, so that its imports overlap with the caller's.

    Parameters
    ----------
    threads, start
        As `launcher` and `start_method` have them.
    modules : sequence of str
        The modules that workers will need.
    """
    # An error is raised when a worker is needed.
    with contextlib.suppress(OSError, RuntimeError, ValueError), uninterrupted():
        start = start_method(start)
        if start != "fork":  # a template is forked when its iterator is made
            launcher(threads, start).preload(modules)


def start_method(wanted: str | None = None) -> str:
    """Return the start method: ``zygote``, ``spawn`` or ``fork``.

    Parameters
    ----------
    wanted : str, optional
        The method from an iterator's options; ``TUNDISH_START`` takes precedence.

    Raises
    ------
    ValueError
        ``TUNDISH_START`` is none of the three.
    """
    asked = os.environ.get("TUNDISH_START", "")
    if asked not in ("", "zygote", "spawn", "fork"):
        raise ValueError(f"TUNDISH_START is {asked!r}; it must be 'zygote', 'spawn' or 'fork'")
    if asked or wanted:
        return asked or str(wanted)
    if portable() or not sys.platform.startswith("linux"):
        return "spawn"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # an old kernel, or a sandbox
        return "spawn"
    return "zygote"


def _close_all() -> None:
    for each in list(_all):
        each.close()


def _abandon_all() -> None:
    global _making  # noqa: PLW0603 - another thread may hold the parent's
    _making = threading.Lock()
    _current.clear()
    for each in list(_all):
        each.abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_abandon_all)
