"""The zygote: a bare interpreter that starts worker processes on request.

It is started with ``python -c``, so it does not run the user's ``__main__``. It imports the heavy modules once and
forks a worker for each request, in a few milliseconds. Where forking is unsafe (macOS, ``TUNDISH_PORTABLE=1``) it
imports nothing and starts a fresh interpreter for each worker instead.

::

    consumer --- START: environment, entry, config, descriptors --> zygote --- fork ---> worker
             <-- STARTED: pid, pidfd; ENDED: exit code, stderr ---         <- stderr, death -

- A session of its own shields all of them from the terminal's Ctrl-C.
- Each worker has its own process group: its subprocesses end when it ends.
- The zygote watches its parent (a pidfd; a closed socket proves nothing if the user has forked) and ends
  everything when the parent exits. It must not ask for a death signal itself: that comes when the *thread* that
  started it ends. Workers do ask for one.
- It forwards the workers' stderr, and keeps each one's last lines for the error that names it.

Only the standard library is imported at the top: this module is loaded before the heavy ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import json
import os
import re
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from tundish.loader.run.starting.control import Control, ControlKind, Message
from tundish.loader.run.starting.request import Request, run_worker
from tundish.loader.run.starting.surroundings import command, exec_environ, uncollected
from tundish.shm.liveness import kill_session

__all__ = ["Started", "Zygote", "run_worker", "serve"]

_TAIL = 4096  # bytes of stderr kept of each worker
_LATE = re.compile(rb"Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!\n")
"""The line that a worker writes when an element's deadline is over."""
_HELD = 1 << 16  # bytes of stderr taken in while the user's stderr takes nothing
_PATIENCE_MS = 100  # with the user's stderr, at the end
_PARENT_CHECK_MS = 100  # how often to look for the parent where there is no pidfd
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def serve(fd: int, parent: int, forks: bool, preload: Sequence[str]) -> NoReturn:
    """Run the zygote until the parent exits.

    Parameters
    ----------
    fd : int
        The socket to the consumer.
    parent : int
        The consumer's process id.
    forks : bool
        True to fork workers, False to start an interpreter for each.
    preload : sequence of str
        Modules to import first; if one does not exist, the worker that needs it raises the error.
    """
    # Masks and handlers of the user's thread must not apply here.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _do_nothing)
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    zygote = Zygote(Control(socket.socket(fileno=fd)), parent, forks)
    with uncollected():
        for name in preload:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise
    zygote.run()


def _do_nothing(*_: object) -> None:
    """Handle a signal that only has to wake the loop; unlike SIG_IGN this is not inherited by an exec."""


class _Outlet:
    """The user's stderr, which may be an unread pipe or a stopped terminal."""

    def __init__(self) -> None:
        self.held = bytearray()

    @property
    def full(self) -> bool:
        return len(self.held) >= _HELD

    def write(self, data: bytes = b"", patience_ms: int = 0) -> None:
        """Queue data, and write what can be written within `patience_ms`."""
        self.held += data
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        try:
            while self.held and poll.poll(patience_ms):  # there is room for PIPE_BUF bytes
                del self.held[: os.write(2, self.held[: select.PIPE_BUF])]
        except OSError:  # its reader is gone
            self.held.clear()


@dataclass
class Started:
    """A worker that the zygote has started."""

    number: int
    pid: int
    reap: Callable[[], int | None]
    stderr: int
    tail: bytes = b""
    why: bytes = b""
    """The reason for which it is ended, if it is."""

    def kill(self) -> None:
        """Kill the worker and the processes it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class Zygote:
    """Starts workers, forwards their stderr, and reports their exits to the consumer.

    Parameters
    ----------
    control : Control
        The socket to the consumer.
    parent : int
        The consumer's process id.
    forks : bool
        True to fork workers, False to start an interpreter for each.
    """

    name = b"tundish-zygote"

    def __init__(self, control: Control, parent: int, forks: bool) -> None:
        self.control = control
        self.parent = parent
        self.forks = forks
        self.safe = True
        self.workers: dict[int, Started] = {}
        self.outlet = _Outlet()
        self.wakeup, wakeup_end = os.pipe()
        self.life, self.life_end = os.pipe()  # see `run_worker`
        self.pipes = (self.wakeup, wakeup_end, self.life, self.life_end)
        self.began: tuple[int, ...] = ()
        for fd in (self.wakeup, wakeup_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        self.parent_fd = -1
        if forks:
            with contextlib.suppress(ProcessLookupError):  # found out below
                self.parent_fd = os.pidfd_open(parent)
            self.prctl = ctypes.CDLL(None).prctl
            self.prctl(_PR_SET_NAME, self.name)

    def run(self) -> NoReturn:
        self.control.send(ControlKind.READY)
        while True:
            ready = self.wait()
            if self.parent_fd in ready or os.getppid() != self.parent:
                self.end()
            if 2 in ready:
                self.outlet.write()
            for worker in self.workers.values():
                if worker.stderr in ready:
                    self.pass_on(worker)
            if self.wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wakeup, 4096)
                self.reap()
            self.look_after()
            for message in self.control.receive():
                self.hear(message)
            if self.control.closed:
                self.end()
            self.control.flush()

    def wait(self) -> set[int]:
        """Wait for something to do; the set of descriptors is made anew each time."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN | (select.POLLOUT if self.control.unsent else 0))
        poll.register(self.wakeup, select.POLLIN)
        if self.parent_fd >= 0:
            poll.register(self.parent_fd, select.POLLIN)
        if self.outlet.held:
            poll.register(2, select.POLLOUT)
        if not self.outlet.full:
            for worker in self.workers.values():
                if worker.stderr >= 0:
                    poll.register(worker.stderr, select.POLLIN)
        return {fd for fd, _ in poll.poll(self.patience_ms())}

    def patience_ms(self) -> int | None:
        """Return the longest time to wait, in milliseconds; None for no limit."""
        return None if self.parent_fd >= 0 else _PARENT_CHECK_MS

    def look_after(self) -> None:
        """Check on the workers; called at least every `patience_ms`."""

    def hear(self, message: Message) -> None:
        if message.kind is ControlKind.START:
            try:
                self.start(message)
            except OSError as error:
                if message.worker in self.workers:
                    self.workers[message.worker].kill()
                text = str(error.strerror).encode()
                self.control.send(ControlKind.FAILED, message.worker, error.errno or 0, text=text)
            for fd in message.fds:
                os.close(fd)
        elif message.kind is ControlKind.KILL:
            if message.worker in self.workers:
                self.workers[message.worker].kill()
        elif message.kind is ControlKind.PRELOAD:
            self.preload(message.text)
        elif message.kind is ControlKind.QUIT:
            self.end()

    def preload(self, text: bytes) -> None:
        """Import modules for all later workers; a worker that needs a module that fails will raise its error."""
        wanted = json.loads(text)
        before = list(sys.path)
        sys.path[:] = wanted["path"]
        with uncollected():
            for name in wanted["modules"]:
                with contextlib.suppress(Exception), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    importlib.import_module(name)
            if "pyarrow" in sys.modules:
                # As it first makes or reads an array, it imports pandas, if that is installed: in each worker.
                with contextlib.suppress(Exception):
                    sys.modules["pyarrow"].array(())
        sys.path[:] = before
        if _threads() > 1:
            # A module has started one, and a lock that it holds would be held in a fork for ever.
            self.safe = False

    def start(self, message: Message) -> None:
        if len(message.fds) < message.value:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        body, stdout, stderr, *fds = message.fds
        if not os.path.sameopenfile(stderr, 2):
            os.dup2(stderr, 2)  # where the user's stderr is now
        self.began = read, write = os.pipe()
        os.set_blocking(read, False)
        try:
            begin = self.fork if self.forks and self.safe else self.execute
            pid, reap = begin(body, stdout, write, fds)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.workers[message.worker] = Started(message.worker, pid, reap, read)
        self.announce(self.workers[message.worker])

    def fork(
        self, body: int, stdout: int, stderr: int, fds: Sequence[int]
    ) -> tuple[int, Callable[[], int | None]]:
        me = os.getpid()
        pid = os.fork()
        if pid:
            with contextlib.suppress(OSError):  # the child does it, too, whichever is first
                os.setpgid(pid, pid)
            return pid, partial(_reap, pid)
        try:
            self.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:
                os._exit(1)
            os.setpgid(0, 0)
            self.prctl(_PR_SET_NAME, b"tundish-worker")
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            self.become(Request.read(body), fds)
        except BaseException:  # noqa: BLE001 - a worker must never return into the zygote's loop
            traceback.print_exc()
        finally:
            os._exit(1)

    def become(self, request: Request, fds: Sequence[int]) -> NoReturn:
        """Become a worker, in the process that was just forked for it."""
        _close_but(fds)
        reseed()
        request.fulfil(fds)

    def execute(
        self, body: int, stdout: int, stderr: int, fds: Sequence[int]
    ) -> tuple[int, Callable[[], int | None]]:
        import subprocess  # noqa: PLC0415 - takes a while, and forking does not need it

        request = Request.read(body)
        if self.forks:  # `run_worker` expects one more, which is only to be held
            fds = (*fds, self.life)
        statement = f"run_worker({body},{self.life},{list(fds)})"
        process = subprocess.Popen(
            command(sys.executable, request.path, statement),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**exec_environ(), **request.environ},
            pass_fds=(body, self.life, *fds),
            process_group=0,
        )
        return process.pid, process.poll

    def announce(self, worker: Started) -> None:
        fds: tuple[int, ...] = ()
        if self.forks:
            fds = (os.pidfd_open(worker.pid),)  # not reaped yet, so this is the one
        self.control.send(ControlKind.STARTED, worker.number, worker.pid, fds=fds)
        for fd in fds:
            os.close(fd)

    def pass_on(self, worker: Started) -> None:
        if worker.stderr < 0:
            return
        try:
            data = os.read(worker.stderr, _HELD)
        except BlockingIOError:
            return
        if not data:  # closed by the worker itself
            os.close(worker.stderr)
            worker.stderr = -1
        kept = worker.tail + data
        late = _LATE.search(kept)
        kept = kept[late.start() :] if late else kept
        # The innermost frames are at the beginning of a stack.
        worker.tail = kept[:_TAIL] if worker.why or late else kept[-_TAIL:]
        self.outlet.write(data)

    def reap(self) -> None:
        for worker in list(self.workers.values()):
            code = worker.reap()
            if code is None:
                continue
            worker.kill()  # what it started must not outlive it
            self.pass_on(worker)
            if worker.stderr >= 0:
                os.close(worker.stderr)
            del self.workers[worker.number]
            self.control.send(ControlKind.ENDED, worker.number, code, text=self.last_words(worker))

    def last_words(self, worker: Started) -> bytes:
        """Return the last lines of stderr of a worker that has ended."""
        return worker.tail

    def end(self) -> NoReturn:
        for worker in self.workers.values():
            worker.kill()
        kill_session(os.getpid())  # what left its worker's group
        for worker in self.workers.values():
            self.pass_on(worker)
        self.outlet.write(patience_ms=_PATIENCE_MS)
        os._exit(0)


def reseed() -> None:
    """Seed the global generators from the system, or every worker would draw the same numbers."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(int.from_bytes(os.urandom(7), "little"))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a zygote forks on Linux only


def _reap(pid: int) -> int | None:
    """Return a child's exit code if it has exited, like `subprocess.Popen.poll`."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _close_but(kept: Sequence[int]) -> None:
    """Close every descriptor except the standard ones and `kept`."""
    start = 3
    for fd in sorted(kept):
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))
