"""Parquet; a place is the number of a row. A row group is decoded once, in pieces of equal size.

If a piece cannot be decoded, its rows and those after it in its row group are separate errors; reading
continues with the next row group. So it does not matter where reading began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow.parquet as pq

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.file import open_file
from tundish.formats.tables.form import TableLayout
from tundish.formats.tables.int96 import int96_paths
from tundish.formats.tables.reader import (
    MOST_ROWS,
    PIECE_BYTES,
    BatchFormat,
    BatchReader,
    TableBatch,
)
from tundish.formats.tables.source import ARROW_ERRORS, Spliced, check_names, in_short


@dataclass(frozen=True)
class ParquetFormat(BatchFormat):
    """Rows of Parquet files.

    Parameters
    ----------
    use_threads : bool
        True if pyarrow may decode columns in threads of its own.
    """

    use_threads: bool = False

    name = "ParquetDataset"
    grouped = True
    tuning = BatchFormat.tuning | {"use_threads"}

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> _ParquetReader:
        return _ParquetReader(self, path, place, ahead)


class _ParquetReader(BatchReader):
    def __init__(self, form: ParquetFormat, path: str, place: int, ahead: bool) -> None:
        super().__init__(path, place, ahead)
        self._form = form
        self._bytefile = open_file(path, dict(form.storage_options or ()))
        self.identity = self._bytefile.identity
        self._source = Spliced(self._bytefile)
        self.rows, self._starts, self.groups = 0, [0], list[int]()
        self._group, self._next = -1, 0
        self._pieces: Iterator[Any] = iter(())
        self._file: Any = None
        self._wide_file: Any = None  # with times of 96 bits in microseconds
        try:
            if self._bytefile.size:
                self._begin()
            self.check(place)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Read the table of row groups."""
        try:
            self._file = self._opened()
            schema, meta = self._file.schema_arrow, self._file.metadata
            check_names(schema)
            wide = int96_paths(self._file.schema)
            groups = [meta.row_group(g) for g in range(meta.num_row_groups)]
            counts = [group.num_rows for group in groups]
            if min(counts, default=0) < 0 or sum(counts) != meta.num_rows:
                raise ValueError(f"row groups of {counts} rows, {meta.num_rows} in all")
        except ARROW_ERRORS as problem:
            self._checked()
            text = f"is not a Parquet file, or its footer is damaged: {in_short(problem)}"
            raise RecordCorruptError(self.path, max(0, self._bytefile.size - 8), text) from problem
        self.layout = TableLayout(self._form, schema, self.path, wide=wide)
        if self.layout.wide:
            self._wide_file = self._opened(metadata=meta, coerce_int96_timestamp_unit="us")
        self.groups, self._starts = counts, list(accumulate(counts, initial=0))
        self.rows = self._starts[-1]
        self._steps = [_rows_at_once(group, schema, self.layout.names) for group in groups]

    def _opened(self, **how: Any) -> Any:
        return pq.ParquetFile(
            self._source.arrow(),
            buffer_size=self._form.buffer_size or self._bytefile.block,
            pre_buffer=False,
            page_checksum_verification=True,
            **how,
        )

    def _checked(self) -> None:
        """Raise the error that reading the file has raised."""
        error, self._source.error = self._source.error, None
        if error is not None:
            raise error from None

    def key_of(self, place: int) -> tuple[int, int] | None:
        if place >= self.rows:
            return None
        group = bisect_right(self._starts, place) - 1
        return group, (place - self._starts[group]) // self._steps[group]

    def batch(self, key: tuple[int, int]) -> TableBatch:
        """Decode a piece of a row group, after the pieces before it."""
        group, piece = key
        if group != self._group or piece < self._next:
            self._group, self._next = group, 0
            self._pieces = self._batches(self._file, group, self.layout.names)
            if self.layout.wide:
                wide = self._batches(self._wide_file, group, list(self.layout.wide))
                self._pieces = map(self.layout.beside, self._pieces, wide)
        while self._next < piece:
            batch = self._decoded(group)
            if batch.rows is None:
                return batch
            self.keep((group, self._next - 1), batch)
        return self._decoded(group)

    def _batches(self, file: Any, group: int, names: list[str]) -> Iterator[Any]:
        """Return columns of a row group in pieces of equal size."""
        found: Iterator[Any] = file.iter_batches(
            self._steps[group],
            row_groups=[group],
            columns=names,
            use_threads=self._form.use_threads,
        )
        return found

    def _decoded(self, group: int) -> TableBatch:
        """Decode the next piece; if it is damaged, return the rest of the row group."""
        end = self._starts[group + 1]
        first = self._starts[group] + self._next * self._steps[group]
        stop = min(end, first + self._steps[group])
        try:
            rows = next(self._pieces, None)
            if rows is None or rows.num_rows != stop - first:
                found = 0 if rows is None else rows.num_rows
                raise ValueError(f"{found:,} rows were found, {stop - first:,} were expected")
            rows.validate(full=True)
        except ARROW_ERRORS as problem:
            self._group = -1
            self._checked()
            text = (
                f"row group {group} (rows {self._starts[group]:,} to {end - 1:,}) cannot be decoded "
                f"from row {first:,} on: {in_short(problem)}"
            )
            return TableBatch(first, end, None, self.layout, text)
        self._next += 1
        return TableBatch(first, stop, rows, self.layout)

    def close(self) -> None:
        super().close()
        self._pieces = iter(())
        self._bytefile.close()


def _rows_at_once(group: Any, schema: Any, names: list[str]) -> int:
    """Return the number of rows of a row group in one piece.

    pyarrow can also report the size of each column; but with a damaged footer it then crashes the process.
    """
    heads = {name.split(".")[0] for name in names} | {*names}
    if not group.num_rows or not heads:
        return MOST_ROWS
    share = max(16, group.total_byte_size // group.num_rows // len(schema))
    width = sum(_width(field.type, share) for field in schema if field.name in heads)
    return max(1, min(MOST_ROWS, PIECE_BYTES // width))


def _width(kind: Any, share: int) -> int:
    """Return the size of a value in bytes, if it is fixed; else `share`."""
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return share
