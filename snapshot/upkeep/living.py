"""Which files are below a folder, and which runs somebody writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tundish.errors import SnapshotError
from tundish.snapshot.frame import unpack
from tundish.snapshot.lease import holder_of, is_stale

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store


def files_below(store: Store, folder: str = "") -> Iterator[tuple[str, int]]:
    """Every file below a folder: (name, size)."""
    sizes = store.sizes(folder)
    for name in store.list(folder):
        inner = f"{folder}/{name}" if folder else name
        if name in sizes:
            yield inner, sizes[name]
        else:
            yield from files_below(store, inner)


def live_runs(store: Store, key: str) -> dict[str, str]:
    """The runs that leases of a key name, and who holds these; stale leases do not count.

    Parameters
    ----------
    store : Store
        Of the snapshot's path.
    key : str
        Which.

    Returns
    -------
    dict of str to str
        A lease that was just taken and cannot be read yet has the run "".
    """
    found = {}
    for file in store.list(key):
        name = f"{key}/{file}"
        if file.startswith("lease") and file.endswith(".json") and not is_stale(store, name):
            holder = holder_of(store, name)
            try:
                run = unpack(store.read(name), store.shown(name)).text("run")
            except (SnapshotError, FileNotFoundError):
                run = ""
            found[run] = "a process" if holder is None else str(holder)
    return found
