"""The payloads of datasets beside the journal, by digest; in memory where the dispatcher has no folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tundish.errors import DataLossError
from tundish.loader.service.connections.handshake import digest_of
from tundish.snapshot.files.store import open_store

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

FOLDER = "datasets"
_PAYLOAD = re.compile("[0-9a-f]{32}")
_MOST_READ = 64 << 20


class DatasetsInMemory:
    """The payloads of a dispatcher without a folder: they end with its process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def keep(self, digest: str, data: bytes) -> None:
        self._blobs[digest] = bytes(data)

    def find(self, digest: str) -> bytes:
        return self._blobs[digest]

    def only(self, digests: Iterable[str]) -> None:
        """Do nothing: nothing is left by anybody."""


class StoredDatasets:
    """Payloads as files of a folder, or objects at a URL: created whole or not at all.

    Parameters
    ----------
    work_dir : str
        The dispatcher's folder or URL.
    """

    def __init__(self, work_dir: str) -> None:
        self._store: Store = open_store(work_dir).subfolder(FOLDER)

    def keep(self, digest: str, data: bytes) -> None:
        """Keep a payload; it is durable when this returns."""
        if not self._store.create(digest, data) and self._store.size(digest) != len(data):
            self._store.replace(digest, data)  # damaged since

    def find(self, digest: str) -> bytes:
        """Return a payload; raise `DataLossError` if it no longer exists or was changed."""
        try:
            data = self._store.read(digest, limit=1 << 40)
        except FileNotFoundError:
            problem = "is not there any more"
        else:
            if digest_of(data) == digest:
                return data
            problem = "was changed"
        raise DataLossError(
            f"{self._store.shown(digest)}, the payload of a registered dataset, {problem}: "
            "register the dataset again, with a new work_dir"
        )

    def only(self, digests: Iterable[str]) -> None:
        """Remove all other payloads, which a crash left if a dataset's entry was never written.

        The folder may hold files that are not ours (`work_dir` may be where somebody keeps data). They stay, and so
        do files that would take long to identify.
        """
        for name in set(self._store.list()) - set(digests):
            small = (self._store.size(name) or 0) <= _MOST_READ
            if not (_PAYLOAD.fullmatch(name) and small):
                continue
            if digest_of(self._store.read(name, limit=_MOST_READ)) == name:
                self._store.remove(name)


DatasetStore = DatasetsInMemory | StoredDatasets
