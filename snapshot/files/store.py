"""Stores: folders of immutable files, on a local disk or at a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tundish.formats.bytes.file import is_remote, local_path
from tundish.formats.bytes.regular import LIMIT
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.files.mapping import Mapping
from tundish.snapshot.files.publishing import Sink
from tundish.snapshot.files.remote import RemoteStore, remote_store

if TYPE_CHECKING:
    from collections.abc import Mapping as Options

__all__ = ["LocalStore", "Mapping", "RemoteStore", "Sink", "Store", "open_store"]


class Store(Protocol):
    """A folder of immutable files. Names are relative, with ``/``.

    Reading a missing file raises `FileNotFoundError`, other problems an `OSError`, both with the
    file's name; a file that is larger than possible raises `SnapshotCorruptError`.
    """

    root: str
    """The folder."""

    local: bool
    """Whether `shown` gives a path that `open` takes."""

    @property
    def mappable(self) -> bool:
        """True if `map` is safe: on a disk of this machine."""

    def shown(self, name: str = "") -> str:
        """The full name, for messages."""

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        """Return all bytes of a file of at most `limit` bytes."""

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return a range of a file's bytes; fewer at its end."""

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""

    def modified(self, name: str) -> float | None:
        """Return a file's modification time, by the filesystem's clock; None if it does not exist."""

    def list(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the files in a folder with their sizes; none if it does not exist."""

    def create(self, name: str, data: bytes, step: str = "") -> bool:
        """Write a durable file, if its name is free; return False if it is taken.

        `step` is the prefix of failpoints on the way: ``<step>.begin`` ... ``<step>.durable``.
        """

    def claim(self, name: str, data: bytes) -> bool:
        """Write a hint file if its name is free; it is neither durable nor atomic."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a durable file, replacing the existing one."""

    def sink(self, name: str, step: str = "shard") -> Sink:
        """Open a new file, under its name plus ``.tmp`` until it is published."""

    def touch(self, name: str) -> None:
        """Set a file's modification time to now."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def prune(self, name: str) -> None:
        """Remove a folder, if it is empty; a process that writes to it creates it again."""

    def remove_tree(self, name: str = "") -> None:
        """Remove a folder, beginning with the files that mark it as complete."""

    def map(self, name: str) -> Mapping:
        """Map a local file for reading."""

    def free_bytes(self) -> int | None:
        """Return how many bytes may still be written; None if unknown."""

    def subfolder(self, name: str) -> Store:
        """Return the store of a subfolder."""


def open_store(
    path: str | os.PathLike[str], storage_options: Options[str, Any] | None = None
) -> Store:
    """Return the store of a path or a URL.

    Parameters
    ----------
    path : str or os.PathLike
        A local path (full guarantees), or a URL that fsspec knows: ``s3://bucket/snapshots``.
    storage_options : mapping, optional
        Options of a URL's filesystem.

    Raises
    ------
    SnapshotError
        fsspec, or its driver for this protocol, is not installed.
    """
    text = os.fspath(path)
    if is_remote(text):
        return remote_store(text, storage_options)
    local = local_path(text)
    return LocalStore(local if local != text else Path(text).expanduser())
