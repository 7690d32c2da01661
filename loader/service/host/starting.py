"""Starting of host processes: the first consumer of a name starts one, detached from the consumer's own process."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.surroundings import (
    command,
    exec_environ,
    import_path,
    interpreter,
)
from tundish.loader.service.host.folder import HostFolder
from tundish.loader.service.host.link import ANSWERED_S, HostEndedError, HostLink

if TYPE_CHECKING:
    import socket

    from tundish.loader.service.host.plan import HostedPlan
    from tundish.loader.service.host.settings import HostSettings

_STARTS = 6  # attempts, when each host process ends before it answers
_SHOWN = 4096


def attach(
    plan: HostedPlan, settings: HostSettings, asked: dict[str, Any] | None
) -> tuple[HostLink, dict[str, Any]]:
    """Connect to the host process of a name, and start it if there is none; then `HostLink.join`, if anything is asked.

    Raises
    ------
    ConnectionError
        It ends before it answers, again and again; with what it wrote to stderr.
    ValueError
        It runs another dataset.
    """
    deadline = time.monotonic() + ANSWERED_S
    log, problem = scratch_file(), ""
    try:
        for _ in range(_STARTS):
            with HostFolder.open() as folder:
                sock = folder.connect(settings.name)
                if sock is None:
                    sock = _started(folder, settings, log, deadline)
            if sock is None:
                continue
            link = HostLink(sock, settings.name)
            try:
                link.welcome(plan)
                joined = {} if asked is None else link.join(asked)
            except HostEndedError as error:
                problem = str(error)
                link.leave()
            except BaseException:
                link.leave()
                raise
            else:
                return link, joined
        told = _last_lines(log)
        raise HostEndedError(
            f"the host process {settings.name!r} could not be reached in {_STARTS} attempts: {problem}"
            + (f"; it wrote:\n{told}" if told else "")
        )
    finally:
        os.close(log)


def _started(
    folder: HostFolder, settings: HostSettings, log: int, deadline: float
) -> socket.socket | None:
    """Start a host process and connect to it, unless another consumer has started it meanwhile."""
    with folder.locked(deadline):
        sock = folder.connect(settings.name)
        if sock is None:
            start_host(folder, settings, log)
            sock = folder.connect(settings.name)
        return sock


def start_host(folder: HostFolder, settings: HostSettings, log: int) -> None:
    """Start a host process that listens on the socket of a name; the caller holds the folder's lock."""
    with folder.listen(settings.name) as listener:
        fd = listener.fileno()
        statement = (
            "from tundish.loader.service.host.server import main;"
            f"main({fd},{log},{json.dumps(asdict(settings))!r})"
        )
        *argv, code = command(interpreter(), import_path(), statement)
        # Detached by a second fork: the consumer that started it may end first, and never has to reap it.
        process = subprocess.Popen(
            [*argv, f"import os;os.fork() and os._exit(0);{code}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            # Not buffered: what functions print is in the log at once.
            env={"PYTHONUNBUFFERED": "1", **exec_environ(), **os.environ},
            pass_fds=(fd, log),
            start_new_session=True,
        )
        process.wait()


def _last_lines(log: int) -> str:
    end = os.fstat(log).st_size
    return os.pread(log, _SHOWN, max(0, end - _SHOWN)).decode(errors="replace").strip()
