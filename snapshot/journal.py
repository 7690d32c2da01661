"""The journal of a run: its records, numbered 0, 1, 2, ... without gaps, are the only commit points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tundish.errors import SnapshotCorruptError
from tundish.snapshot.frame import LostFileError, TornFileError
from tundish.snapshot.records import JournalRecord

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store

_RECORD = re.compile(r"(\d{8,})\.json\Z")


def record_name(run: str, n: int) -> str:
    """Return the name of the n-th record of a run."""
    return f"runs/{run}/journal/{n:08d}.json"


def append_record(store: Store, run: str, record: JournalRecord) -> bool:
    """Append a record, which commits; return False if another process has written that number."""
    return store.create(record_name(run, record.n), record.to_bytes(), "journal")


def read_records(store: Store, run: str, upto: int | None = None) -> Iterator[JournalRecord]:
    """Yield the records in order, up to the end or to the first damaged one.

    Raises
    ------
    LostFileError, TornFileError, EditedFileError, SnapshotCorruptError, SnapshotVersionError
        Raised in place of the first damaged record. `LostFileError`: there are later ones, or `upto` is more.
    """
    numbers = record_numbers(store, run)
    last = max(numbers, default=-1)
    for n in range(last + 1 if upto is None else upto):
        path = store.shown(record_name(run, n))
        try:
            data = store.read(record_name(run, n))
        except FileNotFoundError:
            above = f"and number {last} is there" if last > n else f"and {upto} were asked for"
            raise LostFileError(path, f"is missing, {above}") from None
        if not data and n == last and upto is None:
            return  # a name that was taken, on a filesystem without links, by a writer that died
        if not data:
            raise TornFileError(path, "is empty")
        record = JournalRecord.from_bytes(data, path)
        if record.n != n:
            raise SnapshotCorruptError(path, f"holds record {record.n}: it was renamed or copied")
        yield record


def record_numbers(store: Store, run: str) -> set[int]:
    """Return the numbers of the existing records."""
    found = (_RECORD.match(name) for name in store.list(f"runs/{run}/journal"))
    return {int(match[1]) for match in found if match}
