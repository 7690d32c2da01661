"""Arrow IPC files and streams, and Feather; a place is the number of a row.

A record batch is read as a whole; if it cannot be decoded, each of its rows is an error.

An Arrow file is a stream of messages between a magic word and a table of them. The messages are walked from the
start, which reads only their headers: so files and streams are read alike, and a truncated one up
to the cut. A header is a flatbuffer, of which three numbers are needed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.file import open_file
from tundish.formats.tables.form import TableLayout
from tundish.formats.tables.reader import BatchFormat, BatchReader, TableBatch
from tundish.formats.tables.source import ARROW_ERRORS, Spliced, check_kind, check_names

if TYPE_CHECKING:
    from tundish.formats.bytes.file import ByteFile


_MAGIC = b"ARROW1"
_CONTINUED = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_DENSE = 256  # the largest ratio by which bytes may be compressed
_HEAD = 4096  # most heads are smaller

Span = tuple[int, int]


@dataclass
class Messages:
    """The offsets of the messages of a file.

    Attributes
    ----------
    schema : (int, int)
        The range of the schema.
    dictionaries : list of (int, int, int)
        The ranges of dictionaries, each with the number of batches before it.
    batches : list of (int, int)
        The ranges of batches.
    rows : list of int
        The number of rows of each batch.
    doubtful : list of int
        Batches whose claimed number of rows is unlikely for their size.
    end : int
        The offset after the last message.
    problem : str
        The reason why nothing can be read there although the file continues; "" if it ends as it should.
    """

    schema: Span = (0, 0)
    dictionaries: list[tuple[int, int, int]] = field(default_factory=list)
    batches: list[Span] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)
    end: int = 0
    problem: str = ""


def messages_of(file: ByteFile) -> Messages:
    """Walk through the messages of a file.

    Raises
    ------
    OSError
        It cannot be read.
    RecordCorruptError
        It is not an Arrow file.
    """
    found = Messages()
    start = file.pread(0, 8)
    is_file = start.startswith(_MAGIC)
    if start.startswith(b"FEA1"):
        raise RecordCorruptError(
            file.path, 0, "is a Feather file of version 1; write it again, as version 2"
        )
    place = 8 if is_file else 0
    ended = False
    while place < file.size and not ended:
        try:
            ended, place = _next(file, place, found)
        except (ValueError, struct.error) as problem:
            if found.schema == (0, 0):
                text = f"is not an Arrow IPC file or stream, or it is damaged: {problem}"
                raise RecordCorruptError(file.path, place, text) from None
            found.problem = str(problem)
            break
    found.end = place
    if ended and not is_file and any(file.pread(place, 8)):
        found.problem = f"the stream ends here, at {place:,}, but data follow: are there several streams in one file?"
    if found.schema == (0, 0) and file.size:
        raise RecordCorruptError(
            file.path, place, "is an Arrow IPC file without a schema: it was cut off"
        )
    if is_file and not found.problem and file.pread(file.size - 6, 6) != _MAGIC:
        found.problem = (
            f"was cut off: at its end, at {file.size:,}, the word {_MAGIC.decode()} is missing"
        )
    return found


def _next(file: ByteFile, place: int, found: Messages) -> tuple[bool, int]:
    """Return True if the messages end here, and the offset of the next one."""
    data = file.pread(place, _HEAD)
    first = _number(data, "<I", 0)
    skipped = 4
    if first == _CONTINUED:
        first, skipped = _number(data, "<I", 4), 8
    if first == 0:
        return True, place + skipped
    left = file.size - place - skipped
    if first > left:
        raise ValueError(f"a message's head has {first:,} bytes, the file {max(0, left):,} more")
    if len(data) < skipped + first:
        data = file.pread(place, skipped + first)
    kind, body, rows, dense = _head(data[skipped : skipped + first])
    if not 0 <= body <= left - first:
        raise ValueError(f"a message has {body:,} bytes, the file {left - first:,} more")
    span = (place, place + skipped + first + body)
    if kind == _SCHEMA and found.schema == (0, 0):
        found.schema = span
    elif kind == _DICTIONARY:
        found.dictionaries.append((*span, len(found.batches)))
    elif kind == _BATCH and found.schema != (0, 0):
        found.batches.append(span)
        found.rows.append(rows)
        if rows > dense * 8 * body:
            found.doubtful.append(len(found.rows) - 1)
    else:
        raise ValueError(f"a message of kind {kind} was not expected")
    return False, span[1]


def _head(data: bytes) -> tuple[int, int, int, int]:
    """Parse a header: the kind of message, the length of its body, a batch's rows, and how dense it may be."""
    table = _number(data, "<I", 0)
    kind = _entry(data, table, 1, "<B")
    body = _entry(data, table, 3, "<q")
    if kind != _BATCH:
        return kind, body, 0, 1
    at = _at(data, table, 2)
    batch = at + _number(data, "<I", at)
    rows = _entry(data, batch, 0, "<q")
    nodes = _at(data, batch, 1)
    if nodes:  # the number of rows is repeated for each column
        nodes += _number(data, "<I", nodes)
        if _number(data, "<I", nodes) and _number(data, "<q", nodes + 4) != rows:
            raise ValueError(
                f"a batch has {rows:,} rows, its first column {_number(data, '<q', nodes + 4):,}"
            )
    if rows < 0:
        raise ValueError(f"a batch has {rows:,} rows")
    return kind, body, rows, _DENSE if _at(data, batch, 3) else 1


def _at(data: bytes, table: int, number: int) -> int:
    """Return the offset of a table's entry; 0 if there is none."""
    entries = table - _number(data, "<i", table)
    if 4 + 2 * number >= _number(data, "<H", entries):
        return 0
    offset = _number(data, "<H", entries + 4 + 2 * number)
    return table + offset if offset else 0


def _entry(data: bytes, table: int, number: int, form: str) -> int:
    at = _at(data, table, number)
    return _number(data, form, at) if at else 0


def _number(data: bytes, form: str, at: int) -> int:
    if at < 0 or at + struct.calcsize(form) > len(data):
        raise ValueError("a message's head is damaged, or cut off")
    return int(struct.unpack_from(form, data, at)[0])


@dataclass(frozen=True)
class ArrowFormat(BatchFormat):
    """Rows of Arrow IPC files and streams."""

    name = "ArrowDataset"

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> _ArrowReader:
        return _ArrowReader(self, path, place, ahead)


class _ArrowReader(BatchReader):
    def __init__(self, form: ArrowFormat, path: str, place: int, ahead: bool) -> None:
        super().__init__(path, place, ahead)
        self._file = open_file(path, dict(form.storage_options or ()))
        self.identity = self._file.identity
        self._source: Spliced | None = None
        self._stream: Any = None
        self._next = -1  # the batch that the stream gives next
        self._shift = 0  # the stream's offsets minus those of the file
        try:
            self._messages = messages_of(self._file)
            self._count()
            if self._file.size:
                schema = self._schema()
                self.layout = TableLayout(form, schema, path)
                heads = {name.split(".")[0] for name in self.layout.names} | {*self.layout.names}
                wanted = [k for k, name in enumerate(schema.names) if name in heads]
                self._wanted = wanted if 0 < len(wanted) < len(schema) else None
                self._check_kinds([schema.field(k) for k in wanted])
                self._doubt()
            self.check(place)
        except BaseException:
            self.close()
            raise

    def _count(self) -> None:
        self.broken = bool(self._messages.problem)
        self._starts = list(accumulate(self._messages.rows, initial=0))
        self.rows = self._starts[-1]
        self.groups = [*self._messages.rows, *[1] * self.broken]

    def _doubt(self) -> None:
        """Check that batches have as many rows as they say, if that is unlikely; otherwise the file ends there."""
        messages = self._messages
        for number in messages.doubtful:
            if self.batch(number).rows is None:
                messages.problem = f"a batch says that it has {messages.rows[number]:,} rows"
                messages.end = messages.batches[number][0]
                del messages.batches[number:], messages.rows[number:]
                self._count()
                return

    def _schema(self) -> Any:
        try:
            with self._opened(len(self._messages.batches), None) as stream:
                check_names(stream.schema)
                return stream.schema
        except ARROW_ERRORS as problem:
            self._checked()
            text = f"is an Arrow IPC file whose schema is damaged: {problem}"
            raise RecordCorruptError(self.path, self._messages.schema[0], text) from problem

    def _check_kinds(self, fields: list[Any]) -> None:
        for each in fields:
            try:
                check_kind(each)
            except TypeError as problem:
                text = f"is an Arrow IPC file in which {problem}"
                raise RecordCorruptError(self.path, self._messages.schema[0], text) from None

    def _opened(self, number: int, wanted: list[int] | None) -> Any:
        """Return the stream from a batch on, with its schema and the dictionaries up to there."""
        spans = _before(self._messages, number)
        if number < len(self._messages.batches):
            first = self._messages.batches[number][0]
            self._shift = sum(end - begin for begin, end in spans) - first
            spans.append((first, self._messages.end))
        self._source = Spliced(self._file, spans)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=wanted)
        return pa.ipc.open_stream(self._source.arrow(), options=options)

    def _checked(self) -> None:
        """Raise the error that reading the file has raised."""
        if self._source is not None and self._source.error is not None:
            raise self._source.error from None

    def key_of(self, place: int) -> int | None:
        if place < self.rows:
            return bisect_right(self._starts, place) - 1
        if self._messages.problem:
            raise RecordCorruptError(self.path, self._messages.end, self._messages.problem)
        return None

    def batch(self, number: int) -> TableBatch:
        first, stop = self._starts[number], self._starts[number + 1]
        try:
            if self._stream is None or self._next != number:
                self._stream = self._opened(number, self._wanted)
            batch = self._stream.read_next_batch()
            if batch.num_rows != stop - first:
                raise ValueError(
                    f"{batch.num_rows:,} rows were found, {stop - first:,} were expected"
                )
            end = self._source.tell() - self._shift if self._source is not None else 0
            if end != self._messages.batches[number][1]:
                raise ValueError(
                    f"it ends at {end:,}, {self._messages.batches[number][1]:,} was expected"
                )
            batch.validate(full=True)
        except ARROW_ERRORS as problem:
            self._stream = None
            self._checked()
            text = f"batch {number} (rows {first:,} to {stop - 1:,}) cannot be decoded: {problem}"
            return TableBatch(first, stop, None, self.layout, text.splitlines()[0])
        self._next = number + 1
        return TableBatch(first, stop, batch, self.layout)

    def close(self) -> None:
        super().close()
        self._stream = None
        self._file.close()


def _before(messages: Messages, number: int) -> list[tuple[int, int]]:
    """Return the messages that have to be read before a batch."""
    known = [(begin, end) for begin, end, batches in messages.dictionaries if batches <= number]
    return [messages.schema, *known]
