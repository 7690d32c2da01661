"""Where a writer's unfinished files are: in the run's folder, or on this machine for a remote one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tundish.snapshot.files.store import LocalStore, Store

__all__ = ["Staging"]

PIECE = 16 << 20


class Staging:
    """The folder in which shards are written, and how they get from there to their run.

    In a local run it is the run's own folder. For a remote one it is a folder under the system's
    temporary one, so that the place of a dead writer can be taken there too; a shard is sent when it
    is sealed, and kept here until it is committed.

    Parameters
    ----------
    target : Store
        The run's folder.
    run, name : str
        The run and the writer.
    """

    def __init__(self, target: Store, run: str, name: str) -> None:
        self._target = target
        self._apart = not target.local
        folder = Path(tempfile.gettempdir()) / f"tundish-{run}-{name}"
        self.store = LocalStore(folder if self._apart else target.root)
        if self._apart:
            folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, name: str) -> Path:
        """The path of a file here."""
        return Path(self.store.shown(name))

    def deliver(self, file: str) -> None:
        """See that a file published here stands in the run."""
        if self._apart and self._target.size(file) != self.store.size(file):
            sink = self._target.sink(file)
            try:
                with self.path(file).open("rb", buffering=0) as source:
                    while data := source.read(PIECE):
                        sink.write(data)
                sink.publish()
            finally:
                sink.abandon()

    def discard(self, file: str) -> None:
        """Remove what is only here, once the run has it."""
        if self._apart:
            self.store.remove(file)

    def remove(self) -> None:
        """Remove the folder, if it is one apart."""
        if self._apart:
            self.store.remove_tree()
