"""Arrow IPC files and streams, and Feather; a place is the number of a row.

A record batch is read as a whole; if it cannot be decoded, each of its rows is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.file import open_file
from tundish.formats.tables.form import TableLayout
from tundish.formats.tables.messages import Messages, messages_of
from tundish.formats.tables.reader import BatchFormat, BatchReader, TableBatch
from tundish.formats.tables.source import ARROW_ERRORS, Spliced, check_kind, check_names


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
        self._next = -1  # the batch that the stream stands at
        self._shift = 0  # what its offsets there are more than those of the file
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
        for field in fields:
            try:
                check_kind(field)
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
