"""The datasets of the rows of tables: Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.formats.tables.arrow import ArrowFormat
from tundish.formats.tables.casting import check_schema
from tundish.formats.tables.csv import CsvFormat
from tundish.formats.tables.form import check_columns, check_defaults
from tundish.formats.tables.jsonlines import JsonLinesFormat
from tundish.formats.tables.parquet import ParquetFormat
from tundish.loader.files.dataset import (
    FileDataset,
    Paths,
    check_buffer,
    check_storage,
    compression_of,
)
from tundish.loader.plan.checks import check_flag, check_text

if TYPE_CHECKING:
    from tundish.loader.operators.files import Index

Schema = Any
"""A `pyarrow.Schema`, or a dict of names and dtypes."""


class ParquetDataset(FileDataset):
    """The rows of Parquet files, as dicts.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    columns : list of str, optional
        The columns to read, in this order; the others are not read. ``"a.b"`` is the field b of the
        struct a. None: all, in the order of the file.
    schema : pyarrow.Schema or dict of str to dtype, optional
        The types of columns: a numpy dtype, ``str``, ``bytes``, or an Arrow type. Other columns
        have the file's types. A value that does not fit makes its row fail; it is never truncated or wrapped
        around. A column that a file lacks consists of nulls.
    defaults : dict of str to value, optional
        The values in place of nulls, by the column's name.
    num_parallel_reads : int, optional
        The number of files to read in turn, one row from each, in the same number of workers. The order is that
        of ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        Accepted as in tf.data, and ignored.
    on_error : {"raise", "skip"}, optional
        The treatment of a row that cannot be converted, or a file that cannot be read. "raise" raises an error at
        its position. "skip" skips it and counts it (``iterator.stats.skipped``). In both cases reading continues
        with the next row, or the next file. Default: ``Options.on_error``, else "raise".
    use_threads : bool
        True if pyarrow may decode columns in its own threads. Has an effect only if this process reads the files.
    buffer_size : int, optional
        The number of bytes to read at once. None: chosen by the library.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or is out of range.

    Notes
    -----
    Not in tf.data.

    Arrow's types are converted as follows: ints, floats and bool to numpy's; text to str, binary to bytes; dates, times
    and timestamps to datetime64 or timedelta64 (with a time zone: the UTC instant); lists to arrays, structs to dicts,
    dictionaries to their values. A decimal needs a float in `schema`; a map, union, or list of structs is a
    `SpecError` that says so, and can be left out by `columns`.

    A null becomes NaN in a column of floats, and NaT in a column of times. In any other column it makes its row
    fail (`RecordCorruptError`, with the row's number in the file), unless `defaults` has a value for the column.
    A requested column that is not in a file consists of nulls if `schema` or `defaults` has it. Otherwise a
    `SpecError` names the file's columns.

    Rows are numbered without reading them, so `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are
    arithmetic. A row group is decoded from its start, so random order is faster with small row groups. Pages
    that were written with checksums are checked. In other pages, a changed byte may change a value unnoticed.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.parquet")
    ...     pq.write_table(pa.table({"x": [1.5, None], "word": ["a", None], "id": [7, 8]}), path)
    ...     list(td.ParquetDataset(path, columns=["word", "x"], defaults={"word": ""}))
    [{'word': 'a', 'x': np.float64(1.5)}, {'word': '', 'x': np.float64(nan)}]
    """

    def __init__(
        self,
        filenames: Paths,
        columns: Sequence[str] | None = None,
        schema: Schema = None,
        defaults: Mapping[str, Any] | None = None,
        *,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        on_error: str | None = None,
        use_threads: bool = False,
        buffer_size: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = ParquetFormat(
            columns=check_columns(columns),
            schema=check_schema(schema),
            defaults=check_defaults(defaults),
            use_threads=check_flag("use_threads", use_threads),
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error)


class ArrowDataset(FileDataset):
    """The rows of Arrow IPC files and streams, and of Feather files, as dicts.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order; each may be a file or a stream. A path may
        be a URL that fsspec knows.
    columns, schema, defaults, num_parallel_reads, name, on_error, storage_options : optional
        As for `ParquetDataset`.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or is out of range.

    Notes
    -----
    Not in tf.data. Types and nulls are as for `ParquetDataset`.

    A record batch is read as a whole. Rows are located without reading them, so `shuffle(None)`, `shard`,
    `skip`, ``len`` and ``ds[i]`` are arithmetic; random order is faster with small batches. Arrow has no
    checksums, so a changed byte may change a value unnoticed. Files are never memory-mapped, so a file that
    another process truncates causes an error and not a signal.

    Examples
    --------
    >>> import pyarrow as pa, tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.arrow")
    ...     table = pa.table({"x": [[1, 2], [3]], "y": [{"z": 0.5}, {"z": 1.5}]})
    ...     with pa.ipc.new_file(str(path), table.schema) as writer:
    ...         writer.write_table(table)
    ...     list(td.ArrowDataset(path))
    [{'x': array([1, 2]), 'y': {'z': np.float64(0.5)}}, {'x': array([3]), 'y': {'z': np.float64(1.5)}}]
    """

    def __init__(
        self,
        filenames: Paths,
        columns: Sequence[str] | None = None,
        schema: Schema = None,
        defaults: Mapping[str, Any] | None = None,
        *,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        on_error: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = ArrowFormat(
            columns=check_columns(columns),
            schema=check_schema(schema),
            defaults=check_defaults(defaults),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error)


class CsvDataset(FileDataset):
    r"""The rows of CSV files, as dicts.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    columns, schema, defaults : optional
        As for `ParquetDataset`. The dtype of a column that `schema` does not name is inferred from the first MiB
        of each file.
    header : bool
        True if the first line names the columns. Otherwise they are f0, f1, ... or `column_names`.
    column_names : list of str, optional
        The names of the columns. They override the header's names.
    field_delim : str
        The character between fields.
    quote_char : str
        The character that encloses a field with delimiters in it. Inside such a field, write it twice for one
        literal character. "" disables quoting.
    na_values : list of str, optional
        The fields that mean null in columns that are not str. None: the empty field, ``NA``, ``NaN``, ``null``
        and the others in pyarrow's list.
    newlines_in_values : bool
        True if a quoted field may contain newlines. Otherwise each line is a row, and a row that extends over
        several lines is an error.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files. None infers it from their names (``.gz``, ``.zst``), which must agree. If a
        dataset yields the names only when it runs, None means "".
    num_parallel_reads, name, on_error : optional
        As for `ParquetDataset`.
    index : bool or "beside", optional
        As for `TextLineDataset`.
    use_threads : bool
        True if pyarrow may parse in its own threads. Has an effect only if this process reads the files.
    buffer_size : int, optional
        The number of bytes to parse at once. None: chosen by the library.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or is out of range.

    Notes
    -----
    Inferred dtypes are int64, uint64, float64, bool, datetime64, timedelta64 or str. A column with integers beyond
    int64 and values that uint64 cannot hold is an error, unless `schema` says float64 or str. A row fails if a later
    value does not fit the inferred dtype of its column; `schema` can set another dtype. A row also fails if it has
    too few or too many fields, is not UTF-8, or has a quote that is not closed. Reading continues with the next
    line. Empty lines are skipped. Nulls are treated as in `ParquetDataset`; a column of str has none.

    The position of a row is the offset of its first byte. In an uncompressed file, reading can begin at any row. In
    a compressed file, everything before the row is decompressed first.

    tf.data's class of this name is `tundish.experimental.CsvDataset`.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.csv")
    ...     size = path.write_text("id,x,word\n1,0.5,one\n2,,two\n")
    ...     list(td.CsvDataset(path, schema={"id": "int32"}))
    [{'id': np.int32(1), 'x': np.float64(0.5), 'word': 'one'}, {'id': np.int32(2), 'x': np.float64(nan), 'word': 'two'}]
    """

    def __init__(
        self,
        filenames: Paths,
        columns: Sequence[str] | None = None,
        schema: Schema = None,
        defaults: Mapping[str, Any] | None = None,
        *,
        header: bool = True,
        column_names: Sequence[str] | None = None,
        field_delim: str = ",",
        quote_char: str = '"',
        na_values: Sequence[str] | None = None,
        newlines_in_values: bool = False,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        on_error: str | None = None,
        index: Index = None,
        use_threads: bool = False,
        buffer_size: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = CsvFormat(
            columns=check_columns(columns),
            schema=check_schema(schema),
            defaults=check_defaults(defaults),
            header=check_flag("header", header),
            column_names=check_names("column_names", column_names),
            field_delim=check_character("field_delim", field_delim),
            quote_char=quote_char and check_character("quote_char", quote_char),
            na_values=check_texts("na_values", na_values),
            newlines_in_values=check_flag("newlines_in_values", newlines_in_values),
            use_threads=check_flag("use_threads", use_threads),
            compression=compression_of(compression_type, filenames),
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)


class JsonLinesDataset(FileDataset):
    r"""The objects of files of JSON lines, as dicts.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    columns, schema, defaults : optional
        As for `ParquetDataset`. Columns that are not named, and dtypes that `schema` does not
        set, are inferred from the first MiB of each file.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        As for `CsvDataset`.
    num_parallel_reads, name, on_error : optional
        As for `ParquetDataset`.
    index : bool or "beside", optional
        As for `TextLineDataset`.
    buffer_size, storage_options : optional
        As for `CsvDataset`.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or is out of range.

    Notes
    -----
    Not in tf.data.

    Each line that is not blank is an object. A missing key is a null, handled as for `ParquetDataset`. A key
    that is not among the columns is ignored if `columns` or `schema` is given; otherwise it is an
    error of its line, so that no data is lost silently. A line that is not an object, or not UTF-8, and a
    value that does not fit its column are errors, too; reading continues with the next line.

    Numbers are int64, or uint64 if one of them needs it, or float64 if one has a fraction or an exponent. A
    column with integers beyond int64 and values that uint64 cannot hold is an error, unless `schema` says
    float64. Text that looks like a time is text, unless `schema` says otherwise. Objects within objects are dicts, lists are arrays.

    Places and compressed files are as for `CsvDataset`.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.jsonl")
    ...     size = path.write_text('{"text": "one", "n": [1, 2]}\n{"text": "two"}\n')
    ...     list(td.JsonLinesDataset(path, defaults={"n": []}))
    [{'text': 'one', 'n': array([1, 2])}, {'text': 'two', 'n': array([], dtype=int64)}]
    """

    def __init__(
        self,
        filenames: Paths,
        columns: Sequence[str] | None = None,
        schema: Schema = None,
        defaults: Mapping[str, Any] | None = None,
        *,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        on_error: str | None = None,
        index: Index = None,
        buffer_size: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = JsonLinesFormat(
            columns=check_columns(columns),
            schema=check_schema(schema),
            defaults=check_defaults(defaults),
            compression=compression_of(compression_type, filenames),
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)


def check_character(name: str, value: Any) -> str:
    """Check a single ASCII character."""
    character = check_text(name, value)
    if len(character) != 1 or not character.isascii() or character in "\r\n":
        raise ValueError(
            f"{name} must be one ASCII character, and no end of a line, not {character!r}"
        )
    return character


def check_texts(name: str, values: Any) -> tuple[str, ...] | None:
    """Check a list of str, or None."""
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of str, not {type(values).__name__} ({values!r})")
    for value in values:
        check_is(value, str, f"{name} must hold str")
    return tuple(values)


def check_names(name: str, values: Any) -> tuple[str, ...] | None:
    """Check a list of distinct str, or None."""
    names = check_texts(name, values)
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"{name} has a name twice: {', '.join(names)}")
    return names
