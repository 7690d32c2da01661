"""tf.data's dataset of the rows of CSV files: `experimental.CsvDataset`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tundish.formats.bytes.stream import check_compression
from tundish.formats.tables.casting import Kind, arrow_type
from tundish.formats.tables.csv import CsvTuplesFormat
from tundish.loader.files.dataset import FileDataset, Paths, check_buffer
from tundish.loader.files.tables import check_character
from tundish.loader.plan.checks import check_count, check_flag, check_items, check_text
from tundish.normalising import normalise


class CsvDataset(FileDataset):
    r"""The rows of CSV files, as tuples: tf.data's class.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    record_defaults : list
        One item for each column that is read. A dtype: the field must not be empty. A value: it replaces
        an empty field and sets the dtype. An empty array acts as its dtype.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files; it is not inferred from their names.
    buffer_size : int, optional
        The number of bytes to parse at once. None: chosen automatically.
    header : bool
        True to skip the first line of each file.
    field_delim : str
        The character between fields.
    use_quote_delim : bool
        True if fields may be in double quotes, and then contain delimiters and newlines.
    na_value : str
        Another text that means an empty field.
    select_cols : list of int, optional
        The numbers of the columns to read, ascending. None: all.
    exclude_cols : list of int, optional
        The numbers of the columns to exclude, ascending, instead of `select_cols`.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, or their lengths do not match.

    Notes
    -----
    As in tf.data, text is bytes. A Python int in `record_defaults` is int64 and a float float64, as elsewhere
    in this library (tf.data: int32 and float32). An invalid row is an error in its place, and reading
    continues after it; tf.data does not continue. Blank lines are skipped; in tf.data one is a row of one empty field.
    A quote inside a field that does not begin with a quote makes all lines up to the next quote errors.

    The class that names columns, and learns their dtypes, is `tundish.CsvDataset`.

    Examples
    --------
    >>> from tundish.experimental import CsvDataset
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.csv")
    ...     size = path.write_text('id,x,word\n1,0.5,one\n2,,"two"\n')
    ...     list(CsvDataset(path, [np.float32(-1), str], header=True, select_cols=[1, 2]))
    [(np.float32(0.5), b'one'), (np.float32(-1.0), b'two')]
    """

    def __init__(  # noqa: PLR0917 - tf.data's order
        self,
        filenames: Paths,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        form = csv_form(
            record_defaults,
            select_cols,
            exclude_cols,
            compression=check_compression(compression_type),
            buffer_size=check_buffer(buffer_size) or None,
            header=check_flag("header", header),
            field_delim=check_character("field_delim", field_delim),
            quote_char='"' if check_flag("use_quote_delim", use_quote_delim) else "",
            newlines_in_values=use_quote_delim,
            na_values=("", check_text("na_value", na_value)),
        )
        self._read(filenames, form)


def csv_form(
    record_defaults: Any, select_cols: Any, exclude_cols: Any, **given: Any
) -> CsvTuplesFormat:
    """Return the format for these arguments."""
    known = check_items("record_defaults", record_defaults, "dtypes and values")
    fields = [field_of(k, each) for k, each in enumerate(known)]
    if select_cols is not None and exclude_cols is not None:
        raise ValueError("give select_cols or exclude_cols, not both")
    width: int | None = len(fields)
    numbers = list(range(len(fields)))
    if select_cols is not None:
        numbers, width = check_numbers("select_cols", select_cols), None
    elif exclude_cols is not None:
        left_out = check_numbers("exclude_cols", exclude_cols)
        width = len(fields) + len(left_out)
        numbers = [k for k in range(width) if k not in left_out]
    if len(numbers) != len(fields):
        raise ValueError(
            f"record_defaults must have one item for each of the columns that are read, {numbers}, not {len(fields)}"
        )
    names = [str(number) for number in numbers]
    return CsvTuplesFormat(
        columns=tuple(names),
        schema=tuple([(name, kind) for name, (kind, _) in zip(names, fields, strict=True)]),
        defaults=tuple(
            [(name, d) for name, (_, d) in zip(names, fields, strict=True) if d is not None]
        ),
        width=width,
        **given,
    )


def field_of(number: int, given: Any) -> tuple[Kind, Any]:
    """Check an item of `record_defaults`; return the type of a column, and its default or None."""
    name = f"record_defaults[{number}]"
    given = getattr(given, "as_numpy_dtype", given)  # tensorflow's dtypes
    if isinstance(given, type) and given in (str, bytes, object):
        return Kind(arrow_type(name, bytes)), None
    value = None if isinstance(given, (type, np.dtype)) else normalise(given)
    if isinstance(value, np.ndarray):
        if value.size:
            raise ValueError(f"{name} must be one value, a dtype, or an empty array, not {given!r}")
        given, value = value.dtype, None
    if value is None:
        dtype = np.dtype(given)
    elif isinstance(value, (str, bytes)):
        return Kind(arrow_type(name, bytes)), value.encode() if isinstance(value, str) else value
    else:
        dtype = np.asarray(value).dtype
    if dtype.kind in "OSU":
        return Kind(arrow_type(name, bytes)), value
    if dtype.kind not in "if" or dtype.itemsize < 4:
        raise TypeError(f"{name} must be of float32, float64, int32, int64 or str, not {dtype}")
    return Kind(arrow_type(name, dtype)), value


def check_numbers(name: str, values: Any) -> list[int]:
    """Check numbers of columns, which must ascend."""
    found = [check_count(f"{name}[{k}]", v, least=0) for k, v in enumerate(values)]
    if found != sorted(set(found)):
        raise ValueError(f"{name} must be in ascending order, not {found}")
    return found
