"""Sources of tables in memory: Arrow tables, and pandas DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from tundish.errors import SpecError
from tundish.formats.tables.casting import check_schema
from tundish.formats.tables.form import check_columns, check_defaults
from tundish.formats.tables.memory import ArrowRows, RowsInMemory
from tundish.formats.tables.source import in_short
from tundish.loader.operators.sources import FromSource
from tundish.loader.plan.checks import check_flag
from tundish.loader.protocols.columns import nest_rows
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.refs import array_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.contracts import Gather, Maker


@dataclass(frozen=True, eq=False)
class FromArrow(FromSource):
    """The rows of a table in memory."""

    source: ArrowRows

    op = "from_arrow"

    def params(self) -> dict[str, Any]:
        columns = {field.name: str(field.type) for field in self.source.table.schema}
        return {"columns": columns, "count": self.count}

    def several(self) -> Callable[[list[int]], Sequence[Any]]:
        return self.source.__getitems__

    def gather(self, maker: Maker) -> Gather:
        source = self.source

        def gather(refs: Any, _: int) -> Any:
            columns = source.columns(array_of(refs))
            return None if columns is None else nest_rows(columns, range(len(refs)))

        return gather


class TableMethods(Fluent):
    """The class methods of `Dataset` that read tables in memory."""

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        columns: Sequence[str] | None = None,
        schema: Any = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make an element, a dict, of each row of an Arrow table.

        Parameters
        ----------
        table : pyarrow.Table, RecordBatch or RecordBatchReader
            The table, or any object that exports an Arrow stream (``__arrow_c_stream__``), such as a table of polars
            or DuckDB. A reader or a stream is read to its end now. A table is copied only if it has many small chunks.
        columns, schema, defaults : optional
            As for `ParquetDataset`.

        Returns
        -------
        Dataset
            The rows that `ParquetDataset` would read from a file with this table, with random access.

        Raises
        ------
        TypeError
            `table` is none of these.
        SpecError
            A column does not exist, or its type has no NumPy dtype.

        Notes
        -----
        tf.data has no such source. Types and nulls are as for `ParquetDataset`: a null becomes NaN in a column of
        floats and NaT in one of times. In other columns it is an error of its row (`RecordCorruptError`), unless
        `defaults` has a value for it.

        Workers share one copy of the table. The fingerprint of a snapshot contains the values, but not their division
        into chunks. A state contains the names and types of the columns and the number of rows.

        Examples
        --------
        >>> import pyarrow as pa, tundish as td
        >>> table = pa.table({"x": [1.5, None, 2.5], "word": ["a", "b", None]})
        >>> ds = td.Dataset.from_arrow(table, defaults={"word": "?"})
        >>> len(ds), ds[2]
        (3, {'x': np.float64(2.5), 'word': '?'})
        """
        return cls._of(_node(_table_of(table), columns, schema, defaults))

    @classmethod
    def from_pandas(
        cls,
        frame: Any,
        columns: Sequence[str] | None = None,
        schema: Any = None,
        defaults: Mapping[str, Any] | None = None,
        *,
        preserve_index: bool = False,
    ) -> Self:
        """Make an element, a dict, of each row of a pandas DataFrame.

        Parameters
        ----------
        frame : pandas.DataFrame
            The rows. Columns of numbers are not copied: do not change them while an iterator runs.
        columns, schema, defaults : optional
            As for `ParquetDataset`.
        preserve_index : bool
            True to make columns of the index, as pyarrow does. A level without a name becomes ``__index_level_0__``.

        Returns
        -------
        Dataset
            The rows that `ParquetDataset` would read from the file that ``frame.to_parquet`` writes, with random
            access.

        Raises
        ------
        TypeError
            `frame` is not a DataFrame.
        SpecError
            A column does not exist, has values of several types, or has a type without a NumPy dtype.

        Notes
        -----
        tf.data has no such source. ``None``, ``NaN``, ``NaT`` and ``pandas.NA`` are nulls. A null becomes NaN in a
        column of floats and NaT in one of times. In other columns it is an error of its row (`RecordCorruptError`),
        unless `defaults` has a value for it. A category becomes its value, and a time with a zone its instant in UTC.
        Names of columns become str.

        Workers do not need pandas.

        Examples
        --------
        >>> import tundish as td
        >>> import pandas as pd  # doctest: +SKIP
        >>> frame = pd.DataFrame({"x": [1, 2], "kind": pd.Categorical(["a", "b"])})  # doctest: +SKIP
        >>> list(td.Dataset.from_pandas(frame))  # doctest: +SKIP
        [{'x': np.int64(1), 'kind': 'a'}, {'x': np.int64(2), 'kind': 'b'}]
        """
        pandas: Any = sys.modules.get("pandas")  # it is there, if there is a frame
        if pandas is None or not isinstance(frame, pandas.DataFrame):
            raise TypeError(
                f"frame must be a pandas.DataFrame, not {_kind(frame)}; from_arrow takes Arrow's and polars' tables, "
                "from_tensor_slices a dict of arrays"
            )
        index = check_flag("preserve_index", preserve_index)
        try:
            table = pa.Table.from_pandas(frame, preserve_index=index)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
            text = "; ".join(map(str, problem.args)) or in_short(problem)
            raise SpecError(f"the frame cannot become a table: {text}") from problem
        return cls._of(_node(table, columns, schema, defaults))


def _node(table: Any, columns: Any, schema: Any, defaults: Any) -> FromArrow:
    form = RowsInMemory(
        columns=check_columns(columns),
        schema=check_schema(schema),
        defaults=check_defaults(defaults),
    )
    rows = ArrowRows(table, form)
    return FromArrow(rows, len(rows))


def _table_of(given: Any) -> Any:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    if hasattr(given, "__arrow_c_stream__") and not isinstance(given, pa.ChunkedArray):
        return pa.table(given)
    raise TypeError(
        f"table must be a pyarrow Table, RecordBatch or RecordBatchReader, or export an Arrow stream, not {_kind(given)}; "
        "from_pandas takes DataFrames, ArrowDataset and ParquetDataset files"
    )


def _kind(value: Any) -> str:
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
