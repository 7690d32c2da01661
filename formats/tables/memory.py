"""The rows of an Arrow table in memory, converted where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.errors import RecordCorruptError
from tundish.formats.tables import views
from tundish.formats.tables.digest import digest_of_table
from tundish.formats.tables.form import TableFormat, TableLayout
from tundish.formats.tables.source import check_kind
from tundish.formats.tables.taking import takeable
from tundish.spec import flatten, map_leaves, unflatten

if TYPE_CHECKING:
    from tundish.formats.format import RecordReader

_PLACE = "the table"
"""The name of a table in errors, where a file has its path."""
_BLOCK = 512
"""The number of rows that are converted together where rows are read one after another."""
_FEW_ROWS, _MANY_CHUNKS = 4096, 64
"""Chunks with fewer rows on average, and more in number, are joined."""
_SLACK = 1 << 20
"""The number of bytes of other rows that may travel with a part of a table."""


@dataclass(frozen=True)
class RowsInMemory(TableFormat):
    """The columns of a table in memory, their types, and the values in place of nulls."""

    name = "from_arrow"

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        """Raise: there is no file."""
        raise FileNotFoundError(f"{path}: {_PLACE} is in memory, and in no file")


class ArrowRows:
    """The rows of a table in memory, converted like the rows of files.

    Parameters
    ----------
    table : pyarrow.Table
        A valid table. Its memory is used without a copy, unless the table consists of many small chunks.
    form : TableFormat
        The requested columns, their types, and the values in place of nulls.

    Raises
    ------
    SpecError
        A column does not exist, cannot be converted, or has a default that does not fit.
    """

    def __init__(self, table: Any, form: TableFormat) -> None:
        for field in table.schema:
            check_kind(field)
        self.form = form
        names = TableLayout(form, table.schema, _PLACE).names
        self.table = _plain(_selected(table, names))
        self.layout = TableLayout(form, self.table.schema, _PLACE)
        self._count = len(table)
        batches = [batch for batch in self.table.to_batches() if len(batch)]
        if len(batches) > _MANY_CHUNKS and self._count < _FEW_ROWS * len(batches):
            self.table = self.table.combine_chunks()
            batches = self.table.to_batches()
        self._batches = [takeable(batch) for batch in batches]
        self._starts = np.cumsum([0, *map(len, batches)])
        self._views: dict[int, Any] = {}
        self._block: tuple[int, int, Any, dict[int, str]] = (0, 0, None, {})

    def __reduce__(self) -> tuple[Any, ...]:
        table = self.table
        if table.get_total_buffer_size() > 2 * table.nbytes + _SLACK:  # a part of a larger table
            table = pa.ipc.open_stream(_stream(table)).read_all()
        return ArrowRows, (table, self.form)

    def __tundish_fingerprint__(self) -> dict[str, Any]:
        return {"table": digest_of_table(self.table), "form": self.form}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> Any:
        first, stop, nest, bad = self._block
        if not first <= row < stop:
            # Sequential rows are converted in blocks, and other rows one by one.
            count = _BLOCK if row == stop else 1
            batch, first = self._around(row)
            start, bad = row - first, {}
            rows = batch.slice(start, count)
            nest = self.layout.nest(rows, bad)
            first, stop = row, row + len(rows)
            self._block = first, stop, nest, bad
        row -= first
        if row in bad:
            raise RecordCorruptError(_PLACE, first + row, bad[row], "row")
        return map_leaves(lambda column: column[row], nest)

    def __getitems__(self, rows: list[int]) -> list[Any]:
        columns = self.columns(np.array(rows, np.int64))
        if columns is None:
            return [self[row] for row in rows]
        leaves, tree = flatten(columns)
        return [unflatten(tree, [leaf[k] for leaf in leaves]) for k in range(len(rows))]

    def columns(self, rows: np.ndarray) -> Any:
        """Return rows, by number, as views or copies; None if one of them has no value.

        Parameters
        ----------
        rows : (k,) int64 ndarray
            At least one.
        """
        which = np.searchsorted(self._starts, rows, "right") - 1
        if (which == which[0]).all():
            found = self._taken(int(which[0]), rows)
            return None if found is None else unflatten(found[1], found[0])
        order = np.argsort(which, kind="stable")
        parts, tree = [], None
        for number in dict.fromkeys(which[order].tolist()):
            found = self._taken(number, rows[which == number])
            if found is None:
                return None
            parts.append(found[0])
            tree = found[1]
        back = np.argsort(order, kind="stable")
        leaves = [np.concatenate(each)[back] for each in zip(*parts, strict=True)]
        return unflatten(tree, leaves)

    def _around(self, row: int) -> tuple[Any, int]:
        """Return the batch of a row, and the number of its first row."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._batches[number], int(self._starts[number])

    def _taken(self, number: int, rows: np.ndarray) -> tuple[list[np.ndarray], Any] | None:
        """Return rows of one batch as leaves and their structure; None if one of them has no value."""
        batch, at = self._batches[number], rows - self._starts[number]
        if number not in self._views:
            plain = all(pa.types.is_primitive(c.type) and not c.null_count for c in batch.columns)
            # Columns of numbers are views; booleans are bits, and their columns are copies.
            plain = plain and not any(pa.types.is_boolean(c.type) for c in batch.columns)
            bad: dict[int, str] = {}
            whole = self.layout.nest(batch, bad) if plain else None
            self._views[number] = None if whole is None or bad else whole
        views = self._views[number]
        if views is not None:
            leaves, tree = flatten(views)
            return [leaf.take(at, axis=0) for leaf in leaves], tree
        bad = {}
        if len(at) == at[-1] - at[0] + 1 and (np.diff(at) == 1).all():
            nest = self.layout.nest(batch.slice(int(at[0]), len(at)), bad)
        else:
            try:
                taken = batch.take(pa.array(at))
            except pa.ArrowNotImplementedError:  # lists of views of texts, and the like
                return None
            nest = self.layout.nest(taken, bad)
        if bad:
            return None
        return flatten(nest)


def _selected(table: Any, names: list[str]) -> Any:
    """Return a table without the columns that nobody asked for, and without metadata."""
    there = {*table.schema.names}
    heads = dict.fromkeys(name if name in there else name.partition(".")[0] for name in names)
    # With no column at all a table has no rows.
    return (table.select(list(heads)) if heads else table).replace_schema_metadata(None)


def _plain(table: Any) -> Any:
    """Return a table without types that workers may not know, or of which rows cannot be taken.

    Extension types become their storage, views of texts become texts.
    """
    for k, field in enumerate(table.schema):
        kind = field.type
        if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType):
            chunks = [chunk.storage for chunk in table.column(k).chunks]
            table = table.set_column(k, field.name, pa.chunked_array(chunks, kind.storage_type))
        elif views.is_string_view(kind):
            table = table.set_column(k, field.name, table.column(k).cast(pa.large_string()))
        elif views.is_binary_view(kind):
            table = table.set_column(k, field.name, table.column(k).cast(pa.large_binary()))
    return table


def _stream(table: Any) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
