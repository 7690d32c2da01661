"""Starting of host processes: the first consumer of a name starts one, detached from the consumer's own process."""

from __future__ import annotations

import json
import os
import subprocess
import time
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

    from tundish.loader.service.host.link import HostSettings
    from tundish.loader.service.host.plan import HostedPlan

_STARTS = 6  # attempts, when each host process ends before it answers
_SHOWN = 4096


def attach(
    plan: HostedPlan, settings: HostSettings, asked: dict[str, Any] | None
) -> tuple[HostLink, dict[str, Any]]:
    """Connect to the host process of a name, and start it if there is none.

    Parameters
    ----------
    plan, settings
        The dataset, and the name and settings of the host process.
    asked : dict or None
        The position from which elements are wanted, as for `HostLink.join`; None only makes sure that the process runs.

    Returns
    -------
    HostLink, dict
        The connection, and what `HostLink.join` gave.

    Raises
    ------
    ConnectionError
        It ends before it answers, again and again; with what it wrote to stderr.
    ValueError
        It runs another dataset.
    """
    deadline = time.monotonic() + ANSWERED_S
    log: int | None = None
    problem = ""
    try:
        for _ in range(_STARTS):
            with HostFolder.open() as folder:
                sock = folder.connect(settings.name)
                if sock is None:
                    log = scratch_file() if log is None else log
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
        if log is not None:
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
    told = {"window": settings.window, "linger": settings.linger, "consumers": settings.consumers}
    with folder.listen(settings.name) as listener:
        fd = listener.fileno()
        statement = (
            "from tundish.loader.service.host.server import main;"
            f"main({fd},{log},{settings.name!r},{json.dumps(told)!r})"
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


def _last_lines(log: int | None) -> str:
    if log is None:
        return ""
    end = os.fstat(log).st_size
    return os.pread(log, _SHOWN, max(0, end - _SHOWN)).decode(errors="replace").strip()
