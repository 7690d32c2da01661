"""Tables that are stored as lines: the common part of CSV and JSON lines.

A line that is not blank is a row, and its place is the offset of its first byte; a format's splitter may keep
lines together. A block of lines is parsed at once; if that fails, so are its halves, and so on, until the
invalid lines are found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.decompressing import looks_like
from tundish.formats.tables.casting import shown
from tundish.formats.tables.form import TableFormat, TableLayout
from tundish.formats.tables.lines import Lines, starts_of
from tundish.formats.tables.overflow import check_kept, has_infinite
from tundish.formats.tables.reader import TableReader, TableRows
from tundish.formats.tables.source import ARROW_ERRORS, in_short
from tundish.formats.tables.splitting import Splitter, at_newlines

if TYPE_CHECKING:
    from tundish.formats.format import Places, RecordReader
    from tundish.formats.tables.columns import Bad

FIRST_BYTES = 1 << 20
"""The number of bytes at the beginning of a file from which types are inferred."""

BLOCK_BYTES = 1 << 20
"""The number of bytes that are parsed at once when records are read in sequence."""

_BOM = b"\xef\xbb\xbf"


class Grammar(ABC):
    """The form in which the rows of one file are stored in its lines.

    Attributes
    ----------
    start : int
        The offset of the first row.
    known : pyarrow.Schema
        All columns of the file.
    schema : pyarrow.Schema
        The columns that `parse` returns.
    null : dict of str to pyarrow.DataType
        Columns with an inferred type that are null in some of the first rows although they must not be.
    """

    start: int = 0
    known: Any
    schema: Any
    null: dict[str, Any]

    @abstractmethod
    def parse(self, data: bytes, one: bool, *, wide: bool = False) -> Any:
        """Parse whole lines.

        Parameters
        ----------
        data : bytes
            The lines.
        one : bool
            True if it is a single line, which must be a single row.
        wide : bool
            True to make float64 of columns of float32, which are infinite where a number is too large for them.

        Returns
        -------
        pyarrow.RecordBatch
            Rows of `schema`; their number may differ from the number of lines that are not blank, which are then parsed
            one by one.

        Raises
        ------
        pyarrow.ArrowException, ValueError
            One of the lines is invalid.
        """


@dataclass(frozen=True)
class TextFormat(TableFormat):
    """A format of text files with a row on each line."""

    compression: str = ""

    blanks: ClassVar[bytes] = b""
    """The characters that a line may have and still be no row, besides its end."""

    @property
    def splitter(self) -> Splitter:
        """The function that says where rows end."""
        return at_newlines

    @abstractmethod
    def grammar(self, first: bytes) -> Grammar:
        """Infer from a file's first lines how its rows are stored.

        Parameters
        ----------
        first : bytes
            Whole lines, about `FIRST_BYTES`.

        Raises
        ------
        ValueError, pyarrow.ArrowException
            They cannot be the first lines of such a file.
        """

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        return _TextReader(self, path, place)

    def places(self, path: str) -> Places:
        if not self.seekable:
            return super().places(path)
        with _TextReader(self, path, 0) as reader:
            return reader.places()


class _TextReader(TableReader):
    def __init__(self, form: TextFormat, path: str, place: int) -> None:
        super().__init__(path, place)
        self._form = form
        self._size = form.buffer_size or BLOCK_BYTES
        self._lines = Lines(path, form.compression, form.storage_options, form.splitter)
        self.identity = self._lines.identity
        self._grammar: Grammar | None = None
        self._first = b""
        try:
            self._learn()
            self._begin(place)
        except BaseException:
            self.close()
            raise

    def _learn(self) -> None:
        """Read the first lines, from which the types of columns are inferred."""
        try:
            first = self._lines.read(FIRST_BYTES)
        except RecordCorruptError:
            if self._form.seekable:
                raise
            return  # the first record is damaged: reading it raises the error
        if not first:
            return
        bom = len(_BOM) if first.startswith(_BOM) else 0
        try:
            self._grammar = self._form.grammar(first[bom:])
        except ARROW_ERRORS as problem:
            if isinstance(problem, RecordCorruptError):
                raise
            hint = looks_like(first)
            raise RecordCorruptError(self.path, bom, in_short(problem) + hint) from problem
        starts = self._starts(first[bom + self._grammar.start :])
        self._grammar.start += bom + (int(starts[0]) if len(starts) else 0)
        self._layout = TableLayout(self._form, self._grammar.known, self.path, self._grammar.null)
        self._first = first
        self.place = max(self.place, self._grammar.start)

    def _begin(self, place: int) -> None:
        """Go to the offset where reading begins, without reading the first lines again."""
        start = self.place
        first, self._first = self._first, b""
        if start < len(first):
            if start and first[start - 1 : start] not in (b"\n", _BOM[-1:]):
                raise RecordCorruptError(self.path, start, "no line begins here")
            self._waiting, self._waiting_at = first[start:], start
            return
        self._waiting, self._waiting_at = b"", 0
        self._lines.seek(start)

    def _starts(self, data: bytes) -> np.ndarray:
        """Return the offsets of the rows in whole lines."""
        return starts_of(data, self._form.blanks, self._form.splitter)

    def _block(self, place: int) -> bytes:
        """Return whole lines from an offset on."""
        data, at = self._waiting, self._waiting_at
        self._waiting = b""
        if data and at == place:
            return data
        self._lines.seek(place)
        return self._lines.read(self._size)

    def _find(self, place: int) -> tuple[TableRows, int] | None:
        while True:
            data = self._block(place)
            if not data:
                return None
            after = place + len(data)
            starts = self._starts(data)
            if len(starts):
                return self._chunk_of(data, starts, place, after), 0
            place = self.place = after  # all lines were blank

    def picked(self, places: np.ndarray, stops: np.ndarray) -> list[TableRows]:
        lines = [
            self._lines.cut(*span) for span in zip(places.tolist(), stops.tolist(), strict=True)
        ]
        starts = np.cumsum([0, *map(len, lines[:-1])])
        chunk = self._chunk_of(b"".join(lines), starts, 0, int(stops[-1]))
        chunk.places = places
        return [chunk]

    def _chunk_of(self, data: bytes, starts: np.ndarray, place: int, after: int) -> TableRows:
        assert self._grammar is not None
        bad: Bad = {}
        batches = self._parsed(data, starts, 0, len(starts), bad)
        nest = self._layout.nest(_joined(batches), bad)
        return TableRows(starts + place, after, nest, bad)

    def _parsed(
        self, data: bytes, starts: np.ndarray, first: int, stop: int, bad: Bad
    ) -> list[Any]:
        """Parse lines to rows, with nulls for invalid lines."""
        assert self._grammar is not None
        problem = ""
        part = data
        if first or stop < len(starts):
            end = int(starts[stop]) if stop < len(starts) else len(data)
            part = data[int(starts[first]) : end]
        try:
            batch = self._grammar.parse(part, stop - first == 1)
            if len(batch) == stop - first:
                batch.validate(full=True)
                if any(map(has_infinite, batch.columns)):
                    _check_widened(self._grammar.parse(part, stop - first == 1, wide=True), batch)
                return [batch]
            problem = f"{len(batch)} rows are on one line"
        except ARROW_ERRORS as error:
            problem = in_short(error)
        if stop - first == 1:
            bad[first] = problem
            nulls = [pa.nulls(1, field.type) for field in self._grammar.schema]
            return [pa.RecordBatch.from_arrays(nulls, schema=self._grammar.schema)]
        half = (first + stop) // 2
        left = self._parsed(data, starts, first, half, bad)
        return left + self._parsed(data, starts, half, stop, bad)

    def places(self) -> Places:
        """Return the places of all rows."""
        found = []
        while data := self._block(self.place):
            found.append(self._starts(data) + self.place)
            self.place += len(data)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def seek(self, place: int) -> None:
        super().seek(max(place, self._grammar.start if self._grammar else 0))

    def close(self) -> None:
        super().close()
        self._lines.close()


def _joined(batches: list[Any]) -> Any:
    """Concatenate batches, whose schemas agree except in batches without columns."""
    if len(batches) == 1 or not batches[0].schema.names:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _check_widened(wide: Any, batch: Any) -> None:
    """Check that the infinite floats of parsed rows are infinite in their text, too.

    Parameters
    ----------
    wide, batch : pyarrow.RecordBatch
        The same rows, parsed to `widened` types and to those that were asked for.

    Raises
    ------
    ValueError
        One is a number that is too large.
    """
    for name, array, made in zip(batch.schema.names, wide.columns, batch.columns, strict=True):
        try:
            check_kept(array, made)
        except ValueError as problem:
            text = f"column {name!r}: {shown(array)} is no {made.type}: {problem}"
            raise ValueError(text) from None
