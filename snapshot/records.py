"""Records of a snapshot's JSON files, as frozen values; design page 006 has every field.

The journal's records, numbered 0, 1, 2, ... without gaps, are the only commit points of a run.
"""

from __future__ import annotations

import base64
import binascii
import builtins
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from tundish.errors import SnapshotCorruptError, TransformError
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.frame import (
    JSON,
    EditedFileError,
    Fields,
    LostFileError,
    TornFileError,
    by_name,
    pack,
    show,
    unpack,
)

if TYPE_CHECKING:
    from tundish.snapshot.files.store import Store


_SHARD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\.arrow\Z")
_FILE = re.compile(r"(state/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\Z")
RUN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

Bytes = bytes  # another name, for classes with a field `bytes`


class BatchRecord(NamedTuple):
    """The location of a record batch: elements `start` .. `start + rows` at a byte range of its shard."""

    start: int
    rows: int
    offset: int
    length: int
    crc32: int


@dataclass(frozen=True)
class ShardRecord:
    """One Arrow file of a run.

    `user_shard` is the number from ``shard_func``, None without one; `form` is the number of its schema
    among the run's. `frame` is the crc32 of the bytes outside of all batches, from the front, which
    other tools read and this library does not; None if it is not known.
    """

    file: str
    bytes: int
    rows: int
    user_shard: int | None = None
    form: int = 0
    frame: int | None = None
    batches: tuple[BatchRecord, ...] = ()

    @classmethod
    def from_json(cls, fields: Fields, *, indexed: bool = False) -> Self:
        """Parse it; `indexed` means that its batches are stored elsewhere."""
        shard = cls(
            fields.text("file", _SHARD),
            fields.integer("bytes"),
            fields.integer("rows"),
            fields.optional_integer("user_shard"),
            fields.integer("form"),
            fields.optional_integer("frame"),
            tuple(_batch(entry, fields) for entry in fields.items("batches")),
        )
        if not indexed and shard.rows != sum(batch.rows for batch in shard.batches):
            raise SnapshotCorruptError(
                fields.path,
                f"{shard.file} has {shard.rows} rows, but its batches have another total",
            )
        return shard


def _batch(entry: JSON, fields: Fields) -> BatchRecord:
    if not (
        isinstance(entry, list)
        and len(entry) >= 5
        and all(type(number) is int and 0 <= number < 2**63 for number in entry[:5])
        and entry[1] < 2**31
        and entry[4] < 2**32
    ):
        raise SnapshotCorruptError(
            fields.path, f"{show(entry)} is not [start, rows, offset, length, crc32]"
        )
    return BatchRecord(*entry[:5])


class StoredError(NamedTuple):
    """The error of element `n`, which failed when it was computed; reading the element raises it."""

    n: int
    type: str
    args: tuple[JSON, ...] | None
    text: str

    @classmethod
    def of(cls, n: int, error: BaseException) -> Self:
        """Describe an exception; its arguments are kept if JSON can represent them."""
        kind = type(error)
        name = (
            kind.__name__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        args = error.__reduce__()[1]  # for an OSError with the file, which `args` leaves out
        try:
            same = json.loads(json.dumps(args, allow_nan=False)) == list(args)
        except (TypeError, ValueError, RecursionError):
            same = False
        return cls(n, name, tuple(args) if same else None, repr(error))

    def exception(self) -> BaseException:
        """Make the exception: of the same type if that is a builtin, else a `TransformError`."""
        kind = getattr(builtins, self.type, None)
        if self.args is not None and isinstance(kind, type) and issubclass(kind, BaseException):
            try:
                return kind(*self.args)
            except (TypeError, ValueError):  # of one that asks for more than JSON keeps
                pass
        return TransformError(self.type, self.text)


def _error(entry: JSON, path: str) -> StoredError:
    if not (
        isinstance(entry, list)
        and len(entry) >= 4
        and type(entry[0]) is int
        and entry[0] >= 0
        and isinstance(entry[1], str)
        and (entry[2] is None or isinstance(entry[2], list))
        and isinstance(entry[3], str)
    ):
        raise SnapshotCorruptError(path, f"{show(entry)} is not [n, type, args, text]")
    return StoredError(entry[0], entry[1], None if entry[2] is None else tuple(entry[2]), entry[3])


@dataclass(frozen=True)
class CheckedFile:
    """A file that belongs to a record: its name in the run, its size and its crc32."""

    file: str
    bytes: int
    crc32: int

    @classmethod
    def of(cls, file: str, data: Bytes) -> Self:
        return cls(file, len(data), crc32(data))

    def check(self, data: Bytes, path: str) -> Bytes:
        """Return the bytes, if they are those that were written; else raise."""
        if len(data) != self.bytes:
            raise TornFileError(path, f"has {len(data):,} bytes, and {self.bytes:,} were written")
        found = crc32(data)
        if found != self.crc32:
            raise EditedFileError(
                path, f"its bytes have crc32 {found}, and {self.crc32} was written"
            )
        return data

    @classmethod
    def from_json(cls, fields: Fields) -> Self:
        return cls(fields.text("file", _FILE), fields.integer("bytes"), fields.integer("crc32"))


@dataclass(frozen=True)
class RunHeader:
    """``run.json``, the first file of a run.

    Parameters
    ----------
    key : str
        The fingerprint's key.
    created : str
        The time, as ISO 8601 in UTC; for display, never compared.
    holder : mapping
        The process that began it: `tundish.snapshot.lease.Holder` as JSON.
    library : str
        The version of this library.
    compression : str, optional
        None, "lz4" or "zstd".
    seeds : mapping
        "seed" and "graph_seed", which the random operators before the snapshot used.
    part : (int, int), optional
        (i, n): the i-th of n contiguous ranges of the source; None: all of it.
    options : mapping
        Other options of the writer, for display.
    inputs : tuple
        The times at which the input files were written (`tundish.snapshot.fingerprint.differences.written`); a run is
        continued over the same files only.
    """

    key: str
    created: str
    library: str
    holder: Mapping[str, JSON] = field(default_factory=dict)
    compression: str | None = None
    seeds: Mapping[str, JSON] = field(default_factory=dict)
    part: tuple[int, int] | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    inputs: tuple[JSON, ...] = ()

    def to_bytes(self) -> bytes:
        return pack(by_name(self))

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        fields = unpack(data, path)
        return cls(
            fields.text("key"),
            fields.text("created"),
            fields.text("library"),
            fields.mapping("holder"),
            fields.optional_text("compression"),
            fields.mapping("seeds"),
            _part(fields),
            fields.mapping("options"),
            tuple(fields.items("inputs")) if "inputs" in fields.value else (),
        )


def _part(fields: Fields) -> tuple[int, int] | None:
    if fields.value.get("part") is None:
        return None
    part = fields.items("part")
    if len(part) != 2 or not all(type(x) is int for x in part) or not 0 <= part[0] < part[1]:
        raise fields.wrong("part", "[i, n] with 0 <= i < n")
    return part[0], part[1]


@dataclass(frozen=True)
class JournalRecord:
    """``journal/<n>.json``: a commit, which makes the shards that it names durable.

    Parameters
    ----------
    n : int
        Its number: 0, 1, 2, ... without a gap.
    shards : tuple of ShardRecord
        The shards since the previous record.
    forms : tuple of bytes
        The serialised schemas since the previous record; a shard's `form` is an index into all of the run.
    errors : tuple of StoredError
        The elements that failed since the previous record.
    next : int
        The number of the run's elements: the index of the first that is not in it.
    state : CheckedFile, optional
        The file with the upstream's state after the last element; None if the upstream has none.
    counts : mapping
        Sums over the run so far, by name: skipped elements, ...
    holder : mapping, optional
        The process that took the run over with this record; None in a writer's commit.
    """

    n: int
    shards: tuple[ShardRecord, ...]
    forms: tuple[bytes, ...]
    errors: tuple[StoredError, ...]
    next: int
    state: CheckedFile | None
    counts: Mapping[str, int] = field(default_factory=dict)
    holder: Mapping[str, JSON] | None = None

    def to_bytes(self) -> bytes:
        return pack({**by_name(self), "forms": texts_of(self.forms)})

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        fields = unpack(data, path)
        state = fields.optional_object("state")
        return cls(
            fields.integer("n"),
            tuple(ShardRecord.from_json(shard) for shard in fields.objects("shards")),
            forms_of(fields),
            errors_of(fields),
            fields.integer("next"),
            None if state is None else CheckedFile.from_json(state),
            fields.mapping("counts"),
            None if fields.value.get("holder") is None else fields.mapping("holder"),
        )


def errors_of(fields: Fields) -> tuple[StoredError, ...]:
    """Parse the entry "errors"."""
    return tuple(_error(entry, fields.path) for entry in fields.items("errors"))


def texts_of(forms: Iterable[bytes]) -> list[str]:
    """Convert schemas to base64, for the entry "forms"."""
    return [base64.b64encode(form).decode() for form in forms]


def forms_of(fields: Fields) -> tuple[bytes, ...]:
    """Parse the entry "forms": schemas as bytes."""
    try:
        return tuple(base64.b64decode(form, validate=True) for form in fields.items("forms"))
    except (TypeError, ValueError, binascii.Error):
        raise fields.wrong("forms", "a list of base64 texts") from None


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
