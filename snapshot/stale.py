"""Files of writers that died: how old they are, and taking their place, which one process can do."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from tundish.errors import SnapshotError
from tundish.snapshot.files.checksum import crc32

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

__all__ = ["STALE_S", "age", "replace_stale"]

STALE_S = 60.0
"""After how long without a sign of life something of another machine is stale."""


def age(store: Store, name: str) -> float:
    """For how many seconds a file was not touched, by the clock of the filesystem it lies on.

    That clock is read by touching another file: clocks of machines are never compared.
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
    """Put a file in the place of one whose writer died; False if another process did.

    Parameters
    ----------
    store : Store
        Where.
    name : str
        The file.
    seen : bytes
        What it holds.
    data : bytes
        What it shall hold.
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
