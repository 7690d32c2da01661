"""Runs: reading the durable prefix of one from its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SnapshotCorruptError, SnapshotError, SnapshotVersionError
from tundish.snapshot.frame import JSON, EditedFileError, LostFileError, TornFileError, pack, parse
from tundish.snapshot.index import ENTRY, read_index
from tundish.snapshot.manifest import RunOutcome
from tundish.snapshot.records import (
    CheckedFile,
    JournalRecord,
    RunHeader,
    ShardRecord,
    StoredError,
    read_records,
    record_name,
    texts_of,
)

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

INDEX_FILE = "index.arrow"
_INDEX_LIMIT = 1 << 32  # bytes, enough for a hundred million batches


@dataclass(frozen=True)
class Prefix:
    """The durable prefix of a run: elements 0 .. `next`.

    Attributes
    ----------
    run : str
        The run's name.
    header : RunHeader
        Its ``run.json``.
    next, records : int
        The number of its elements, and of the journal records that commit them.
    shards : tuple of ShardRecord
        The shards, in the order of the journal.
    entries : numpy.ndarray of `tundish.snapshot.index.ENTRY`
        The batches, sorted by their first element; ``shard`` is an index into `shards`.
    forms : tuple of bytes
        The serialised schemas; a shard's `form` is an index into them.
    errors : dict of int to StoredError
        The elements that failed, by number.
    state : JSON
        The upstream's state after the last element; None if it is not known.
    counts : dict of str to int
        Sums over the prefix, as the writer gave them.
    holder : dict
        The process that wrote the last record, or began the run.
    outcome : RunOutcome
        The state of the run.
    problem : SnapshotError or None
        Why the prefix ends before the journal does, if so.
    """

    run: str
    header: RunHeader
    next: int
    records: int
    shards: tuple[ShardRecord, ...]
    entries: np.ndarray
    forms: tuple[bytes, ...]
    errors: Mapping[int, StoredError]
    state: Any
    counts: Mapping[str, int]
    holder: Mapping[str, JSON]
    outcome: RunOutcome
    problem: SnapshotError | None = None
    state_file: CheckedFile | None = None

    @property
    def bytes(self) -> int:
        """The total size of its shards in bytes."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def user_shards(self) -> bool:
        """True if a ``shard_func`` chose the shards."""
        return any(shard.user_shard is not None for shard in self.shards)


def read_header(store: Store, run: str) -> RunHeader:
    """Read a run's ``run.json``.

    Raises
    ------
    LostFileError
        The file does not exist.
    SnapshotError
        The file was changed, or has a higher version.
    """
    name = f"runs/{run}/run.json"
    try:
        data = store.read(name)
    except (FileNotFoundError, NotADirectoryError):
        raise LostFileError(store.shown(name), "is missing: there is no such run") from None
    return RunHeader.from_bytes(data, store.shown(name))


def read_run(store: Store, run: str, upto: int | None = None) -> Prefix:
    """Read the durable prefix of a run.

    Parameters
    ----------
    store : Store
        The store of the folder ``<path>/<key>``.
    run : str
        The run's name.
    upto : int, optional
        The number of journal records to read; default: up to the last, or before the first that is damaged,
        with its problem in `Prefix.problem`.

    Raises
    ------
    SnapshotError
        Its header is damaged or missing, or one of `upto` records is.
    """
    header = read_header(store, run)
    sizes = store.sizes(f"runs/{run}")
    growing = _Growing(store, run)
    problem: SnapshotError | None = None
    outcome, file = RunOutcome.PREFIX, "JOURNAL"
    try:
        for record in read_records(store, run, upto):
            growing.check(record)
            file = "SHARD"
            check_sizes(store, run, record.shards, sizes)
            file = "JOURNAL"
            growing.add(record)
    except SnapshotError as error:
        if upto is not None:
            raise
        problem, outcome = error, damage(error, file)
    prefix = growing.prefix(header)
    if problem is None:
        prefix, problem = _with_state(store, prefix)
        if problem is not None:
            outcome = damage(problem, "STATE")
        elif not prefix.next:
            outcome = RunOutcome.FRESH
        if sizes.get(INDEX_FILE) and upto is None:  # empty: see `publish` in `durable`
            outcome, problem = _finished(store, prefix)
    return replace(prefix, outcome=outcome, problem=problem)


def _finished(store: Store, prefix: Prefix) -> tuple[RunOutcome, SnapshotError | None]:
    """Return the state of a run that has an index: finished, if the journal agrees."""
    name = f"runs/{prefix.run}/{INDEX_FILE}"
    try:
        entries, table = read_index(store.read(name, _INDEX_LIMIT), store.shown(name))
    except FileNotFoundError:  # it is just being made anew
        return RunOutcome.PREFIX if prefix.next else RunOutcome.FRESH, None
    except SnapshotError as error:
        return damage(error, "INDEX"), error
    if len(entries) > len(prefix.entries):
        missing = store.shown(record_name(prefix.run, prefix.records))
        lost = LostFileError(missing, f"is missing: {store.shown(name)} has more batches")
        return RunOutcome.LOST_RECORD, lost
    if table != run_table(prefix) or not np.array_equal(entries, prefix.entries):
        wrong = SnapshotCorruptError(store.shown(name), "does not say what the journal says")
        return damage(wrong, "INDEX"), wrong
    return RunOutcome.FINISHED, None


def run_table(prefix: Prefix) -> bytes:
    """Return the description of a run, without its batches, for the metadata of its index."""
    return pack(
        {
            "shards": [replace(shard, batches=()) for shard in prefix.shards],
            "forms": texts_of(prefix.forms),
            "errors": [prefix.errors[n] for n in sorted(prefix.errors)],
        }
    )


def _with_state(store: Store, prefix: Prefix) -> tuple[Prefix, SnapshotError | None]:
    """Return the prefix with its upstream state; a problem with the state does not shorten the prefix."""
    if prefix.state_file is None:
        return prefix, None
    name = f"runs/{prefix.run}/{prefix.state_file.file}"
    try:
        data = prefix.state_file.check(store.read(name), store.shown(name))
        return replace(prefix, state=parse(data, store.shown(name))), None
    except FileNotFoundError:
        lost = LostFileError(
            store.shown(name), "is missing", remedy="elements before it are read as before"
        )
        return replace(prefix, state_file=None), lost
    except SnapshotError as error:
        return replace(prefix, state_file=None), error


def check_sizes(
    store: Store,
    run: str,
    shards: Sequence[ShardRecord],
    sizes: Mapping[str, int] | None = None,
    entries: np.ndarray | None = None,
) -> None:
    """Check that the shards of a run exist with their sizes.

    Parameters
    ----------
    store : Store
        The store of the folder ``<path>/<key>``.
    run : str
        The run's name.
    shards : sequence of ShardRecord
        The shards to check.
    sizes : mapping, optional
        The files of the run's folder with sizes; default: they are looked up.
    entries : numpy.ndarray of `tundish.snapshot.index.ENTRY`, optional
        The batches of the shards; default: those in the shards' records.

    Raises
    ------
    SnapshotCorruptError
        Names the file, and the first missing batch.
    """
    found = store.sizes(f"runs/{run}") if sizes is None else sizes
    for k, shard in enumerate(shards):
        name = f"runs/{run}/{shard.file}"
        if found.get(shard.file) == shard.bytes:
            continue
        size = store.size(name)  # it may have come since the folder was looked through
        if size == shard.bytes:
            continue
        path = store.shown(name)
        inside = entries_of([shard]) if entries is None else entries[entries["shard"] == k]
        gone = inside[inside["offset"] + inside["length"] > (size or 0)]
        first = int(gone["start"][0]) if len(gone) else None
        if size is None:
            raise LostFileError(path, "is missing", first)
        raise TornFileError(path, f"has {size:,} bytes, and {shard.bytes:,} were written", first)


class _Growing:
    """A prefix that is built record by record; a record that does not fit leaves it unchanged."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self.next = self.records = 0
        self.shards: list[ShardRecord] = []
        self.files: set[str] = set()
        self.forms: list[bytes] = []
        self.errors: dict[int, StoredError] = {}
        self.state: CheckedFile | None = None
        self.counts: Mapping[str, int] = {}
        self.holder: Mapping[str, JSON] | None = None

    def check(self, record: JournalRecord) -> None:
        """Raise if a record cannot follow the present ones."""
        wrong = self._contradiction(record)
        if wrong:
            raise SnapshotCorruptError(self.store.shown(record_name(self.run, record.n)), wrong)

    def add(self, record: JournalRecord) -> None:
        self.next, self.records = record.next, record.n + 1
        self.shards += record.shards
        self.files.update(shard.file for shard in record.shards)
        self.forms += record.forms
        self.errors.update((error.n, error) for error in record.errors)
        self.state, self.counts = record.state, record.counts
        self.holder = record.holder or self.holder

    def _contradiction(self, record: JournalRecord) -> str:
        """Describe why a record cannot follow the present ones; "" if it can."""
        first, forms = self.next, len(self.forms) + len(record.forms)
        files = [shard.file for shard in record.shards]
        if len(set(files)) < len(files) or self.files & set(files):
            return "names a shard that was named before"
        if any(shard.form >= forms for shard in record.shards):
            return f"names a form that is not among the {forms} of the run"
        for shard in record.shards:
            if any(batch.offset + batch.length > shard.bytes for batch in shard.batches):
                return f"has a batch that lies beyond the end of {shard.file}"
        numbers = [error.n for error in record.errors]
        rows = sum(shard.rows for shard in record.shards)
        if record.next < first or rows + len(numbers) != record.next - first:
            return (
                f"has {rows} rows and {len(numbers)} errors, and says that it holds the elements "
                f"from {first} to {record.next}"
            )
        spans = sorted(_spans(record.shards) + [(n, n + 1) for n in numbers])
        if spans and (spans[0][0] < first or max(stop for _, stop in spans) > record.next):
            return f"has elements that are not from {first} to {record.next}"
        if any(stop > start for (_, stop), (start, _) in pairwise(spans)):
            return "has an element twice"
        return ""

    def prefix(self, header: RunHeader) -> Prefix:
        return Prefix(
            self.run,
            header,
            self.next,
            self.records,
            tuple(self.shards),
            entries_of(self.shards),
            tuple(self.forms),
            self.errors,
            None,
            self.counts,
            self.holder or header.holder,
            RunOutcome.PREFIX,
            state_file=self.state,
        )


def _spans(shards: Sequence[ShardRecord]) -> list[tuple[int, int]]:
    """Return the range of elements of each batch; in user shards, whose rows are not consecutive, only the first element."""
    return [
        (
            batch.start,
            batch.start + (batch.rows if shard.user_shard is None else min(batch.rows, 1)),
        )
        for shard in shards
        for batch in shard.batches
    ]


def entries_of(shards: Sequence[ShardRecord]) -> np.ndarray:
    """Return the batches of shards, sorted by their first element."""
    rows = [
        (b.start, b.rows, k, b.offset, b.length, b.crc32)
        for k, shard in enumerate(shards)
        for b in shard.batches
    ]
    return np.sort(np.array(rows, ENTRY), order="start")


_HOW: dict[type[SnapshotError], str] = {
    LostFileError: "LOST",
    TornFileError: "TORN",
    EditedFileError: "EDITED",
}


def damage(error: SnapshotError, file: str) -> RunOutcome:
    """Return the state for damage of a file: ``"JOURNAL"``, ``"MANIFEST"``, ..."""
    if isinstance(error, SnapshotVersionError):
        return RunOutcome.NEWER_FORMAT
    how = _HOW.get(type(error), "WRONG")
    return (
        RunOutcome.LOST_RECORD
        if (how, file) == ("LOST", "JOURNAL")
        else RunOutcome[f"{how}_{file}"]
    )
