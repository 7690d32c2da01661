"""What an iterator has done so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SnapshotStats:
    """What an iterator does with one snapshot.

    Attributes
    ----------
    path, key, run : str
        Which; the run is that which is written, or "".
    doing : str
        "read": it is complete; "write"; "pass": another process writes it, or nothing may be written.
    elements : int
        Elements that are known to this iterator: all of a complete one, those that have passed
        of one that is written.
    durable : int
        How many of them stand in files, whatever happens now.
    nbytes : int
        What this iterator has written to files.
    commits : int
        How often what had passed was made durable.
    """

    path: str
    key: str
    run: str
    doing: str
    elements: int
    durable: int
    nbytes: int = 0
    commits: int = 0


@dataclass(frozen=True)
class Stats:
    """Counts of one iterator, of this process.

    Attributes
    ----------
    workers : int
        How many compute for it; 0: this process.
    elements : int
        Elements delivered.
    errors : int
        Elements whose error was raised.
    restarts : int
        Workers that died and were replaced.
    tasks : int
        Tasks that workers have done.
    copies : int
        Batches delivered as private copies, for want of room to lease them.
    leased : int
        Slots that somebody holds a view of.
    used_bytes, budget_bytes : int
        Shared memory of this process: in use, and allowed.
    sources : mapping of str to int
        How many elements named mixtures (`sample_from_datasets` of a dict) have given of each
        source, up to the last delivered element. It goes on where a restored state left off, and
        begins anew with each pass of a `repeat` around a mixture.
    skipped : mapping of str to int
        How many elements each operator with ``on_error="skip"`` has left out, and `ignore_errors`, by its
        name in the plan: ``{"map#2": 3}``. It goes on where a restored state left off.
    snapshots : tuple of SnapshotStats
        What is done with each snapshot that is run, the one next to the source first.
    """

    workers: int = 0
    elements: int = 0
    errors: int = 0
    restarts: int = 0
    tasks: int = 0
    copies: int = 0
    leased: int = 0
    used_bytes: int = 0
    budget_bytes: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    snapshots: tuple[SnapshotStats, ...] = ()


def count_skipped(state: Any) -> dict[str, int]:
    """How many elements were left out, by operator, wherever it stands in a position."""
    found: dict[str, int] = {}
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    for below in parts:
        for label, count in count_skipped(below).items():
            found[label] = found.get(label, 0) + count
    for event, count in state.get("counts", {}).items() if isinstance(state, dict) else ():
        label, _, what = event.rpartition(" ")
        if what in ("skipped", "ignored"):
            found[label] = found.get(label, 0) + count
    return found
