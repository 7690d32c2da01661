"""The request for a new process: what it is to be a worker as, where, and with what."""

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

__all__ = ["Request", "run_worker"]

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Request:
    """The consumer's surroundings at the moment it asks for a worker, and what the worker runs.

    Attributes
    ----------
    entry : str
        ``module:function``; the function is called with the descriptors and the config.
    config : bytes
        Handed to the function as it is.
    environ : dict
        The environment variables.
    path, argv : list of str
        ``sys.path`` and ``sys.argv``.
    cwd : str or None
        The working directory; None when it does not exist any more.
    """

    entry: str
    config: bytes
    environ: dict[str, str]
    path: list[str]
    argv: list[str]
    cwd: str | None

    def write(self) -> int:
        """Return a file without a name that holds the request: it may be of any size."""
        fields = dict(vars(self))
        config = fields.pop("config")
        head = json.dumps(fields).encode()
        return scratch_file(_LENGTH.pack(len(head)) + head + config)

    @classmethod
    def read(cls, fd: int) -> Request:
        """Read what `write` wrote, without the file's position, which several processes share."""
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        return cls(config=data[end:], **json.loads(data[_LENGTH.size : end]))

    def fulfil(self, fds: Sequence[int]) -> NoReturn:
        """Be the worker: take on the surroundings, call the function, end the process."""
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
        """Call the function, and end the process with what it returns.

        Parameters
        ----------
        fds : sequence of int
            Its descriptors.
        first : callable
            Called before; what it raises ends the process as well.
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
    """Be a worker in an interpreter of its own, which a zygote that does not fork has started.

    Parameters
    ----------
    body : int
        The request.
    life : int
        A pipe whose other end only the zygote holds. The zygote kills its workers when it is told
        to and when its parent is gone, but not when it is killed itself.
    fds : sequence of int
        The worker's descriptors, and last the sentinel's other end, which is only to be held.
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
