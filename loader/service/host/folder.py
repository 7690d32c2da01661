"""The folder in which the host processes of a user listen, each at a socket with its name.

A consumer that finds no process listening makes the socket, and starts a process that inherits it. All of this happens under a
lock of the folder itself, so nothing is left behind: no lock file, no process id. A socket whose process was
killed refuses connections, and is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CREDENTIALS = struct.Struct("3i")
_MOST_NAME = 63
_LOOK_S = 0.01
_BACKLOG = 128


def check_name(name: str) -> str:
    """Return the name of a host process, or raise if no file may have it."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a text, not {type(name).__name__} ({name!r})")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"name must be 1 to 100 letters, digits, dots, dashes and underscores, and begin with a "
            f"letter or digit, not {name!r}"
        )
    return name


def _file_of(name: str) -> str:
    """Return the file of a socket; a socket's path has room for 107 characters."""
    if len(name) > _MOST_NAME:
        name = f"{name[:30]}-{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"
    return f"{name}.sock"


def runtime_folder() -> Path:
    """Return this user's folder for sockets: ``TUNDISH_RUNTIME_DIR``, else one in ``XDG_RUNTIME_DIR`` or the temporary folder."""
    named = os.environ.get("TUNDISH_RUNTIME_DIR")
    if named:
        return Path(named)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session:
        return Path(session, "tundish")
    return Path(tempfile.gettempdir(), f"tundish-{os.geteuid()}")


@dataclass(frozen=True)
class HostFolder:
    """An open runtime folder.

    Parameters
    ----------
    path : Path
        Where it is.
    fd : int
        Its descriptor. Names are looked up relative to it, so a folder that is put in its place is not entered,
        and a socket's path may have any length.
    """

    path: Path
    fd: int

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[HostFolder]:
        """Open this user's folder, and make it if it is not there.

        Raises
        ------
        PermissionError
            It is another user's, or others may enter it.
        """
        path = runtime_folder()
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise PermissionError(
                    errno.EPERM,
                    "the folder for sockets of host processes is a link or a file",
                    str(path),
                ) from None
            raise
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(
                    errno.EPERM,
                    f"the folder for sockets of host processes must be yours alone (user {os.geteuid()}, mode 700), and "
                    f"is of user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}: fix it, or set "
                    "TUNDISH_RUNTIME_DIR to another",
                    str(path),
                )
            yield cls(path, fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def locked(self, deadline: float) -> Iterator[None]:
        """Keep other processes from making or removing sockets here, at most waiting until `deadline`."""
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(
                        errno.ETIMEDOUT,
                        "another process has kept the folder locked",
                        str(self.path),
                    ) from None
                time.sleep(_LOOK_S)
        try:
            yield
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def _at(self, name: str) -> str:
        return f"/proc/self/fd/{self.fd}/{_file_of(name)}"

    def connect(self, name: str) -> socket.socket | None:
        """Connect to a host process; None if none listens.

        Raises
        ------
        PermissionError
            Another user's process listens.
        """
        sock = packet_socket()
        try:
            sock.connect(self._at(name))
            check_peer(sock)
        except (ConnectionRefusedError, FileNotFoundError):
            sock.close()
            return None
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self, name: str) -> socket.socket:
        """Make the socket of a name that no process listens on; the caller holds the lock."""
        self.remove(name)
        sock = packet_socket()
        try:
            sock.bind(self._at(name))
            sock.listen(_BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock

    def remove(self, name: str) -> None:
        """Remove a socket, if it exists; the caller holds the lock and knows that no process listens on it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_file_of(name), dir_fd=self.fd)

    def remove_deserted(self, name: str, deadline: float) -> None:
        """Remove the socket of a process that was killed; keep one that a process listens on."""
        with self.locked(deadline):
            found = self.connect(name)
            if found is None:
                self.remove(name)
            else:
                found.close()


def packet_socket() -> socket.socket:
    """Return a new Unix socket that carries whole messages."""
    if not sys.platform.startswith("linux"):
        raise RuntimeError(
            f"one pipeline for several processes of a host needs Linux, but this is {sys.platform}: iterate over the dataset itself"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(None)  # the process's default may be another
    return sock


def check_peer(sock: socket.socket) -> int:
    """Return the id of the process at the other end; raise `PermissionError` if it is another user's."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int
    pid, uid, _ = _CREDENTIALS.unpack(data)
    if uid != os.geteuid():
        raise PermissionError(
            errno.EPERM,
            f"the process at the other end of the socket is user {uid}'s, not {os.geteuid()}'s",
        )
    return pid
