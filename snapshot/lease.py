"""Leases: hints that say who writes under a key; they save duplicate work, and never decide correctness.

The lease is a file with the name of a process. It is stale if that process is known to be gone
(it ran on this machine), or if nobody has touched the file for `STALE_S`, by the clock of its filesystem. Of all
processes that find a stale lease, one replaces it by its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from tundish.errors import SnapshotError
from tundish.snapshot.failpoints import reach
from tundish.snapshot.frame import JSON, Fields, pack, unpack
from tundish.snapshot.takeover import STALE_S, age, replace_stale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.snapshot.files.store import Store

_LIMIT = 1 << 16  # bytes of a lease


@dataclass(frozen=True)
class Holder:
    """A process, distinguished from later ones with the same id.

    Parameters
    ----------
    place : str
        The machine, its boot, and the namespace of process ids: processes are only looked up
        if this is equal.
    host : str
        The machine's name, for messages.
    pid : int
        The process id.
    born : str
        When it was started, in the system's units.
    """

    place: str
    host: str
    pid: int
    born: str

    @classmethod
    def here(cls) -> Self:
        """Return the calling process."""
        return cls(_place(), socket.gethostname(), os.getpid(), _born(os.getpid()) or "")

    @classmethod
    def from_json(cls, value: Mapping[str, JSON], path: str = "") -> Self:
        """Parse the result of `to_json`; raise SnapshotError for anything else."""
        fields = Fields(dict(value), path)
        return cls(
            fields.text("place"), fields.text("host"), fields.integer("pid"), fields.text("born")
        )

    def to_json(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return asdict(self)

    @property
    def alive(self) -> bool | None:
        """Return True if it is running; None if that cannot be known from here."""
        if self.place != _place():
            return None
        return _born(self.pid) == self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@cache
def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{socket.gethostname()} {boot.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return f"{socket.gethostname()} {sys.platform}"


def _born(pid: int) -> str | None:
    """Return when a process was started; None if there is none, or it is a zombie."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    with suppress(psutil.Error):  # where there is no /proc
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return f"{process.create_time():.2f}"
    return None


def lease_name(key: str, part: tuple[int, int] | None = None) -> str:
    """Return the file name of a key's lease, or of the lease of a part."""
    return f"{key}/lease.json" if part is None else f"{key}/lease-{part[0]}-of-{part[1]}.json"


@dataclass(frozen=True)
class Lease:
    """A lease that this process holds."""

    store: Store
    name: str
    run: str
    token: str

    def refresh(self) -> bool:
        """Renew the lease; return False if it is no longer ours."""
        if not self._ours():
            return False
        with suppress(FileNotFoundError):
            self.store.touch(self.name)
            return True
        return False

    def release(self) -> None:
        """Release the lease, if it is still ours."""
        if self._ours():
            self.store.remove(self.name)
            reach("lease.released")

    def _ours(self) -> bool:
        fields = _read(self.store, self.name)
        return fields is not None and fields.value.get("token") == self.token


def take(
    store: Store,
    key: str,
    run: str,
    *,
    holder: Holder | None = None,
    part: tuple[int, int] | None = None,
) -> Lease | None:
    """Take the lease of a key; return None if another process holds it.

    Parameters
    ----------
    store : Store
        The store of the snapshot's path.
    key, run : str
        The key; and the run to be written, which `info` shows.
    holder : Holder, optional
        Default: this process.
    part : (int, int), optional
        (i, n) for the i-th of n parts, each of which has its own lease.
    """
    name, token = lease_name(key, part), secrets.token_hex(8)
    lease = Lease(store, name, run, token)
    data = pack({"run": run, "token": token, "holder": (holder or Holder.here()).to_json()})
    if store.claim(name, data):
        reach("lease.taken")
        return lease
    with suppress(FileNotFoundError):
        found = store.read(name, _LIMIT)
        if is_stale(store, name) and replace_stale(store, name, found, data):
            return lease
    return None


def is_stale(store: Store, name: str) -> bool:
    """Return True if the lease's holder is gone, or has not renewed it.

    Parameters
    ----------
    store : Store
        The store of the snapshot's path.
    name : str
        The result of `lease_name`.
    """
    holder = holder_of(store, name)
    if holder is not None and holder.alive is not None:
        return not holder.alive
    return age(store, name) > STALE_S


def holder_of(store: Store, name: str) -> Holder | None:
    """Return the holder of a lease; None if there is none, or if it cannot be read."""
    fields = _read(store, name)
    if fields is None:
        return None
    with suppress(SnapshotError):
        return Holder.from_json(fields.mapping("holder"), fields.path)
    return None


def own_token(store: Store, name: str) -> str | None:
    """Return the token of a lease that this process has taken and not released."""
    fields = _read(store, name)
    if fields is None or holder_of(store, name) != Holder.here():
        return None
    with suppress(SnapshotError):
        return fields.text("token")
    return None


def _read(store: Store, name: str) -> Fields | None:
    """Return the lease's fields; None if it is gone, or was cut off when its writer died."""
    with suppress(FileNotFoundError, SnapshotError):
        return unpack(store.read(name, _LIMIT), store.shown(name))
    return None
