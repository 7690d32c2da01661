"""The request for a new worker: its environment, its descriptors and the function it runs."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from tundish.loader.run.starting.control import scratch_file

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Request:
    """The consumer's environment when it requests a worker, and the function that the worker runs.

    Attributes
    ----------
    entry : str
        ``module:function``; the function is called with the descriptors and the config.
    config : bytes
        Passed to the function.
    environ : dict
        The environment variables.
    path, argv : list of str
        ``sys.path`` and ``sys.argv``.
    cwd : str or None
        The working directory; None if it no longer exists.
    """

    entry: str
    config: bytes
    environ: dict[str, str]
    path: list[str]
    argv: list[str]
    cwd: str | None

    def write(self) -> int:
        """Write the request to an unnamed file, since it may be of any size; return the descriptor."""
        fields = dict(vars(self))
        config = fields.pop("config")
        head = json.dumps(fields).encode()
        return scratch_file(_LENGTH.pack(len(head)) + head + config)

    @classmethod
    def read(cls, fd: int) -> Request:
        """Read a request by offset: several processes share the file's position."""
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        return cls(config=data[end:], **json.loads(data[_LENGTH.size : end]))

    def fulfil(self, fds: Sequence[int]) -> NoReturn:
        """Become the worker: adopt the environment, call the function, exit."""
        self.run(fds, self._take_on)

    def _take_on(self) -> None:
        for name in os.environ.keys() - self.environ.keys():
            del os.environ[name]
        for name, value in self.environ.items():
            if os.environ.get(name) != value:  # a zygote's are the same, or nearly so
                os.environ[name] = value
        sys.path[:] = self.path
        sys.argv[:] = self.argv
        if self.cwd is not None:
            os.chdir(self.cwd)
        importlib.invalidate_caches()
        # A main module of its own, where the payload puts the classes of the user's.
        sys.modules["__main__"] = types.ModuleType("__main__")
        # A killed worker flushes nothing.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def run(self, fds: Sequence[int], first: Callable[[], None]) -> NoReturn:
        """Call the function, and exit with its result.

        Parameters
        ----------
        fds : sequence of int
            The worker's descriptors.
        first : callable
            Called first; if it raises, the process exits as well.
        """
        code: object = 1
        try:
            first()
            module, _, name = self.entry.partition(":")
            code = getattr(importlib.import_module(module), name)(list(fds), self.config)
        except SystemExit as stop:
            code = stop.code
            if code is not None and not isinstance(code, int):
                sys.stderr.write(f"{code}\n")
                code = 1
        except BaseException:  # noqa: BLE001 - whatever it is, the process ends with it
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(BaseException):
                    stream.flush()
            os._exit(code & 0xFF if isinstance(code, int) else 0)


def run_worker(body: int, life: int, fds: Sequence[int]) -> NoReturn:
    """Run a worker in an interpreter of its own, started by a zygote that does not fork.

    Parameters
    ----------
    body : int
        Descriptor of the request.
    life : int
        A pipe whose other end only the zygote holds. The zygote kills its workers when it is told to and when its
        parent exits; this pipe tells them if it is killed itself.
    fds : sequence of int
        The worker's descriptors, followed by the other end of the sentinel, which is only kept open.
    """
    for fd in (body, life, *fds):
        os.set_inheritable(fd, False)
    threading.Thread(target=_end_with, args=(life,), daemon=True, name="tundish-life").start()
    request = Request.read(body)
    os.close(body)
    request.fulfil(fds[:-1])


def _end_with(life: int) -> None:
    os.read(life, 1)
    os.killpg(0, signal.SIGKILL)
