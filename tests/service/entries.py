"""Functions that workers of an agent run in tests, in the place of a pipeline's worker."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from typing import Any


def _connection(fds: list[Any]) -> Any:
    sock = fds[0] if not isinstance(fds[0], int) else socket.socket(fileno=fds[0])
    sock.setblocking(True)
    return sock


def echo(fds: list[Any], config: bytes) -> int:
    """Say the process id, and echo until the end."""
    sock = _connection(fds)
    sock.send(b"%10d" % os.getpid())
    scratch = bytearray(1 << 20)
    while count := sock.recv_into(scratch):
        view = memoryview(scratch)[:count]
        while view:
            view = view[sock.send(view) :]
    return 0


def tell(fds: list[Any], config: bytes) -> int:
    """Say what it was given."""
    payload = b"" if len(fds) < 2 else os.pread(fds[1], 1 << 30, 0)
    data = pickle.dumps((config, payload, sys.path, str(os.getcwd())))  # noqa: PTH109
    _connection(fds).send(len(data).to_bytes(8, "little") + data)
    return 0


def sleep(fds: list[Any], config: bytes) -> int:
    """Say the process id, and sleep for ever; no signal but SIGKILL ends it."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    _connection(fds).send(b"%10d" % os.getpid())
    while True:
        time.sleep(1000)


def have_a_child(fds: list[Any], config: bytes) -> int:
    """Say the id of a process that inherits the connection, and sleep for ever."""
    sock = _connection(fds)
    apart = config == b"apart"
    child = subprocess.Popen(
        ["/bin/sleep", "1000"], pass_fds=[sock.fileno()], start_new_session=apart
    )
    sock.send(b"%10d" % child.pid)
    while True:
        time.sleep(1000)


def fail(fds: list[Any], config: bytes) -> int:
    """End with an error."""
    raise ZeroDivisionError("of the worker")


def receive(fds: list[Any], config: bytes) -> int:
    """Send so many bytes as the config says."""
    sock = _connection(fds)
    left, piece = int(config), memoryview(bytes(1 << 20))
    while left:
        left -= sock.send(piece[:left])
    return 0
