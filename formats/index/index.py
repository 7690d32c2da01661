"""What is known of a file: where its records are, or why nobody can tell."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tundish.formats.bytes.file import StorageOptions, is_remote, local_path, open_file

if TYPE_CHECKING:
    from tundish.formats.format import Identity, Places

__all__ = ["Index", "identity_of"]


@dataclass(frozen=True, eq=False)
class Index:
    """Where the records of a file are.

    Parameters
    ----------
    places : Places
        Of all of them; none if there is an error.
    identity : Identity or None
        Of the file they are of; None where it changed while it was looked at, or is not there.
    error : Exception, optional
        Why nobody can tell.
    """

    places: Places
    identity: Identity | None
    error: Exception | None = None

    def says_the_same(self, other: Index) -> bool:
        """Whether another index of the same file says what this one says."""
        if self.identity != other.identity:
            return False
        if self.error is not None or other.error is not None:
            return type(self.error) is type(other.error) and str(self.error) == str(other.error)
        if isinstance(self.places, range) or isinstance(other.places, range):
            return type(self.places) is type(other.places) and self.places == other.places
        return np.array_equal(self.places, other.places)


def identity_of(path: str, storage_options: StorageOptions = None) -> Identity | None:
    """A file's identity now; None if that cannot be told."""
    try:
        if not is_remote(path):
            found = os.stat(local_path(path))  # noqa: PTH116 - a `Path` would cost ten times the call
            return found.st_size, found.st_mtime_ns
        with open_file(path, storage_options) as file:
            return file.identity
    except (OSError, ImportError, ValueError):
        return None
