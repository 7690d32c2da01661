"""Consumers of a host process for tests: elements that carry a checksum of themselves, and forked consumers."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import pickle
import select
import signal
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.service.computed import checked_row

import tundish as td
from tundish.loader.service.host import server as hostserver
from tundish.loader.service.host.folder import HostFolder
from tundish.loader.service.host.host import HostedDataset, host
from tundish.loader.service.host.settings import HostSettings

ROWS = 4
GONE_S = 20.0


def checked(elements: int = 40, workers: int | None = None) -> td.Dataset:
    """Return a dataset of batches of such elements."""
    return td.Dataset.range(elements).map(checked_row, num_parallel_calls=workers).batch(ROWS)


def is_torn(batch: dict[str, Any]) -> bool:
    """Return True if what a batch holds is not what was computed."""
    return any(
        zlib.crc32(row.data) != crc for row, crc in zip(batch["data"], batch["crc"], strict=True)
    )


def firsts(batch: dict[str, Any]) -> list[int]:
    """Return the numbers of a batch's elements."""
    found: list[int] = batch["i"].tolist()
    return found


def hosted(
    name: str, elements: int = 40, workers: int | None = None, **given: Any
) -> HostedDataset:
    """Return the dataset, shared."""
    return host(checked(elements, workers), name, **{"linger": 0.2, **given})


def host_pids(folder: Path) -> list[int]:
    """Return the ids of the host processes that listen in a folder."""
    found = []
    mark = f"TUNDISH_RUNTIME_DIR={folder}".encode()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                started = b"service.host.server" in (process / "cmdline").read_bytes()
                if started and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
                named = (process / "comm").read_bytes() == b"tundish-host\n"
                if named and (process / "cwd").readlink() == folder:
                    found.append(int(process.name))
    return sorted({*found})


def await_end(folder: Path) -> None:
    """Wait until no host process listens in a folder, by their ends and not by looking."""
    deadline = time.monotonic() + GONE_S
    while pids := host_pids(folder):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                try:
                    left = max(0.0, deadline - time.monotonic())
                    assert select.select([handle], [], [], left)[0], "a host process is left"
                finally:
                    os.close(handle)


def forked_host(folder: HostFolder, settings: HostSettings, log: int) -> None:
    """Stand in for `start_host`: a fork of this process is the host process, which takes a second less."""
    with folder.listen(settings.name) as listener:
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                try:
                    os.chdir(folder.path)
                    for each in list(
                        Path("/proc/self/fd").iterdir()
                    ):  # others' connections, tests' pipes
                        with contextlib.suppress(OSError):
                            fd, whose = int(each.name), str(each.readlink())
                            if (
                                fd > 2
                                and fd != listener.fileno()
                                and whose[:5] in {"socke", "pipe:"}
                            ):
                                os.close(fd)
                    faulthandler.disable()
                    hostserver.main(listener.fileno(), log, json.dumps(asdict(settings)))
                except BaseException:  # noqa: BLE001 - it never returns to the tests
                    traceback.print_exc()
            os._exit(0)
        os.waitpid(middle, 0)


def descriptors(pid: int | None) -> int:
    """Return how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid or 'self'}/fd").iterdir()))


def end_of(pid: int) -> bool:
    """Return True if a process is gone, or a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True
    return state in b"ZX"


class Consumer:
    """A forked process that calls a function, and sends what it gives, one by one."""

    def __init__(self, function: Callable[..., Iterator[Any]], *args: Any, **given: Any) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(reading)
                with os.fdopen(writing, "wb") as file:
                    for each in function(*args, **given):
                        pickle.dump(each, file)
                        file.flush()
                status = 0
            except BaseException:  # noqa: BLE001 - it never returns to the tests
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        self._file = os.fdopen(reading, "rb")

    def next(self) -> Any:
        """Return the next thing that it sends."""
        return pickle.load(self._file)

    def rest(self) -> list[Any]:
        """Return everything that it still sends, until it ends."""
        found = []
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                found.append(pickle.load(self._file))
        self.wait()
        return found

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        self._file.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
