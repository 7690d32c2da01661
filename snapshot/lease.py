"""Leases: hints that say who writes under a key; they save duplicate work, and never decide correctness.

The lease is a file with the name of a process. It is stale if that process is known to be gone
(it ran on this machine), or if nobody has touched the file for `STALE_S`, by the clock of its filesystem. Of all
processes that find a stale lease, one replaces it by its own, and continues the dead writer's run.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from tundish.errors import SnapshotError
from tundish.snapshot.failpoints import reach
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.frame import JSON, Fields, pack, unpack
from tundish.snapshot.records import JournalRecord, append_record, record_name
from tundish.snapshot.run import INDEX_FILE, Prefix, read_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.snapshot.files.store import Store


STALE_S = 60.0
"""Seconds without a sign of life after which a lease or a writer of another machine is stale."""


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


# -- the place of a writer that died --------------------------------------------------------------


def age(store: Store, name: str) -> float:
    """Return the seconds since a file was touched, by the clock of its filesystem.

    The clock is read by touching another file, since machines' clocks are never compared.
    """
    touched = store.modified(name)
    probe = f"{name}.{secrets.token_hex(8)}.tmp"
    store.claim(probe, b"now")
    try:
        now = store.modified(probe)
    finally:
        store.remove(probe)
    return 0.0 if now is None or touched is None else now - touched


def replace_stale(store: Store, name: str, seen: bytes, data: bytes) -> bool:
    """Replace a file of a dead writer; return False if another process did.

    Parameters
    ----------
    store : Store
        The store of the file.
    name : str
        The file's name.
    seen : bytes
        Its present contents.
    data : bytes
        Its new contents.
    """
    guard = f"{name}.{crc32(seen):08x}.tmp"  # one process at a time may replace what was seen
    if not store.claim(guard, b"guard"):
        if age(store, guard) > STALE_S:
            store.remove(guard)
        return False
    try:
        with suppress(FileNotFoundError, SnapshotError):  # a longer one is another
            if store.read(name, len(seen)) == seen:
                store.replace(name, data)
                return True
        return False
    finally:
        store.remove(guard)


def adopt_run(store: Store, run: str, holder: Mapping[str, JSON]) -> Prefix | None:
    """Take over the run of a writer that died, or only seems dead.

    An empty record after the last one is the fence: journal records are created, never replaced,
    so a writer that is still alive cannot commit any more, and what the journal does not name belongs to nobody.
    A process that continues its own run, and finds nothing that the journal does not name, needs none.

    Parameters
    ----------
    store : Store
        The store of the folder ``<path>/<key>``.
    run : str
        The run's name.
    holder : mapping
        The process that takes over: `tundish.snapshot.lease.Holder` as JSON.

    Returns
    -------
    Prefix or None
        The durable prefix, including the fence if there is one. None: the run is damaged, or another process was faster;
        begin a new one.
    """
    found = read_run(store, run)
    if not found.outcome.continued:
        return None
    if found.holder == holder and not _unnamed(store, run, found):
        return found
    name = record_name(run, found.records)
    fence = JournalRecord(
        found.records, (), (), (), found.next, found.state_file, found.counts, holder
    )
    fenced = append_record(store, run, fence) or (
        store.size(name) == 0 and replace_stale(store, name, b"", fence.to_bytes())
    )  # empty: see `read_records`
    if not fenced:
        return None
    reach("adopt.fenced")
    clean_run(store, run, found)
    return replace(found, records=found.records + 1, holder=holder)


def clean_run(store: Store, run: str, prefix: Prefix) -> list[str]:
    """Remove files that no journal record names. Only for the owner of the run: see `adopt_run`.

    Returns
    -------
    list of str
        The names of the removed files.
    """
    names = _unnamed(store, run, prefix)
    for name in names:
        store.remove(name)
        reach("adopt.removed")
    return names


def _unnamed(store: Store, run: str, prefix: Prefix) -> list[str]:
    """Return the files of a run that no journal record names."""
    folder = f"runs/{run}"
    named = {shard.file for shard in prefix.shards}
    names = [
        f"{folder}/{name}"
        for name in store.list(folder)
        if temporary(name) or (name.endswith(".arrow") and name != INDEX_FILE and name not in named)
    ]
    for inner in ("journal", "state"):
        names += [f"{folder}/{inner}/{n}" for n in store.list(f"{folder}/{inner}") if temporary(n)]
    late = [
        name
        for name in store.list(f"{folder}/state")
        if name >= f"{prefix.records:08d}" and not temporary(name)
    ]
    return names + [f"{folder}/state/{name}" for name in late]


def temporary(name: str) -> bool:
    """Return True if a name is that of a temporary file."""
    return name.endswith((".tmp", ".tmp.log"))
