"""The process of a shared job, on its own side: it serves the consumers whose connections the agent hands over.

Each job has a process, so its modules are those of today's files, its globals are nobody else's, and an agent survives a job that does not.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tundish.loader.run.starting.control import Control, ControlKind
from tundish.loader.service.connections.loop import READ, WRITE, Loop
from tundish.loader.service.jobs.dealing import Dealing
from tundish.loader.service.jobs.jobserver import JobServer
from tundish.loader.service.jobs.registration import Registration

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import TlsFiles
    from tundish.loader.service.connections.roles import Accepted
    from tundish.loader.service.jobs.hosting import JobOrder

NAME = "tundish-job"
"""The name of the process, as ``ps`` shows it."""

_TELL_S = 0.25
"""Between messages that tell how many consumers there are."""
_MOST_SHOWN = 4000


def main(fds: list[int], config: bytes) -> int:
    """Serve a job until the agent closes its end. The descriptors: the socket to the agent, a file with the dataset's registration."""
    with contextlib.suppress(OSError):  # for `ps`; not everywhere
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    order: JobOrder
    tls: TlsFiles | None
    order, tls = pickle.loads(config)
    control, loop = Control(socket.socket(fileno=fds[0])), Loop()
    try:
        dataset = Registration.from_bytes(_read(fds[1])).dataset_alone()
        dealing = Dealing(order.kind, **(order.parameters or {}))
        # Told before the element is sent: if this process is killed then, the agent has it nevertheless.
        gives = partial(control.send, ControlKind.GIVES)
        job = JobServer(dataset, loop, dealing, again=order.again, gives=gives)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the consumer's to hear
        text = f"{type(error).__name__}: {error}"[:_MOST_SHOWN]
        control.send(ControlKind.FAILED, text=text.encode())
        return 0
    control.send(ControlKind.READY)
    JobEnd(control, loop, job, tls)
    loop.run()
    job.close()
    return 0


def _read(fd: int) -> bytes:
    """Return the content of a file, and close it: it may be large, and nobody else has it by now."""
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()


class JobEnd:
    """The end of the socket to the agent that the job's process has, in the loop of the job.

    Parameters
    ----------
    control : Control
        The socket.
    loop : Loop
        The loop.
    job : JobServer
        The job's server.
    tls : TlsFiles or None
        The certificates for sessions with consumers.
    """

    def __init__(self, control: Control, loop: Loop, job: JobServer, tls: TlsFiles | None) -> None:
        self._control, self._loop, self._job, self._tls = control, loop, job, tls
        self._told = 0
        loop.watch(control.fileno(), READ, self._heard)
        loop.later(_TELL_S, self._tell)

    def _heard(self, _: int) -> None:
        for message in self._control.receive():
            if message.kind is ControlKind.CONSUMER and message.fds:
                accepted: Accepted = pickle.loads(message.text)
                accepted.socket = socket.socket(fileno=message.fds[0])
                self._begin(accepted)
        if self._control.closed:
            self._loop.unwatch(self._control.fileno())
            self._loop.stop()
        else:
            self._send()

    def _begin(self, accepted: Accepted) -> None:
        if not accepted.secret:
            accepted.socket.setblocking(False)
            self._job.begin(accepted)
            return
        # A handshake takes several messages, and the job goes on meanwhile.
        threading.Thread(target=self._shake, args=(accepted,), daemon=True).start()

    def _shake(self, accepted: Accepted) -> None:
        from tundish.loader.service.connections.tls import resumed  # noqa: PLC0415 - few use TLS

        assert self._tls is not None
        try:
            stream = resumed(accepted.socket, self._tls, accepted.secret, accepted.peer)
        except OSError:  # it left, or is none of ours
            return
        accepted.socket = stream  # type: ignore[assignment]  # it has a socket's methods
        self._loop.soon(lambda: self._job.begin(accepted))

    def _tell(self) -> None:
        count = self._job.consumers()
        if count != self._told:
            self._told = count
            self._control.send(ControlKind.CONSUMERS, value=count)
        self._send()
        self._loop.later(_TELL_S, self._tell)

    def _send(self) -> None:
        """Send what is queued, when there is room."""
        self._control.flush()
        mask = READ | WRITE if self._control.unsent else READ
        self._loop.watch(self._control.fileno(), mask, self._heard)
