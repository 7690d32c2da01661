"""Folders of files that are never changed: on a local disk, or at a URL."""

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
    """A folder of files that are never changed. Names are relative, with ``/``.

    Reading what is not there is a `FileNotFoundError`, other trouble an `OSError`, both with the
    file's name; a file that is larger than it can be is a `SnapshotCorruptError`.
    """

    root: str
    """The folder."""

    local: bool
    """Whether `shown` gives a path that `open` takes."""

    @property
    def mappable(self) -> bool:
        """True if `map` can be used without fear: on a disk of this machine."""

    def shown(self, name: str = "") -> str:
        """The full name, for messages."""

    def read(self, name: str, limit: int = LIMIT) -> bytes:
        """Return all bytes of a file, which has at most `limit`."""

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Return some bytes of a file; fewer where it ends."""

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has; None if it is not there."""

    def modified(self, name: str) -> float | None:
        """Return when it was last touched, by the clock of the filesystem; None if it is not there."""

    def list(self, folder: str = "") -> list[str]:
        """Return what is in a folder, sorted; nothing if it is not there."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The files in a folder and their sizes; nothing if it is not there."""

    def create(self, name: str, data: bytes, step: str = "") -> bool:
        """Write a file, durable, if its name is free; False if it is taken.

        `step` names the failpoints on the way: ``<step>.begin`` ... ``<step>.durable``.
        """

    def claim(self, name: str, data: bytes) -> bool:
        """Write a file if its name is free, neither durable nor at once: for hints."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, durable, in the place of the one that is there."""

    def sink(self, name: str, step: str = "shard") -> Sink:
        """Open a new file under its name with ``.tmp`` after it, until it is published."""

    def touch(self, name: str) -> None:
        """Set its time to now."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def prune(self, name: str) -> None:
        """Remove a folder, if nothing is in it; who is just writing into it makes it again."""

    def remove_tree(self, name: str = "") -> None:
        """Remove a folder, what says that it is complete first."""

    def map(self, name: str) -> Mapping:
        """Map a local file for reading."""

    def free_bytes(self) -> int | None:
        """Return how much may still be written; None where nobody knows."""

    def subfolder(self, name: str) -> Store:
        """The store of a folder in it."""


def open_store(
    path: str | os.PathLike[str], storage_options: Options[str, Any] | None = None
) -> Store:
    """The store of a path or a URL.

    Parameters
    ----------
    path : str or os.PathLike
        A local path (full guarantees), or a URL that fsspec knows: ``s3://bucket/snapshots``.
    storage_options : mapping, optional
        What the URL's filesystem is made with.

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
