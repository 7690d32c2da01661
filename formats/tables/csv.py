"""CSV: lines of fields, the first of which may name the columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pv

from tundish.formats.tables.integers import may_have_wide, type_of_texts
from tundish.formats.tables.lines import starts_of
from tundish.formats.tables.overflow import widened
from tundish.formats.tables.splitting import Splitter, at_lines, at_newlines, at_rows
from tundish.formats.tables.text import Grammar, TextFormat

_DIRECT = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
)
"""The types that pyarrow parses from text; others are cast from str."""


_MISFIT = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (.*?): (.*)", re.DOTALL
)
_NEWLINE = "a quoted field contains a newline; newlines_in_values=True allows that"
_THREAD_BYTES = 1 << 20  # bytes that each of pyarrow's threads parses at once


@dataclass(frozen=True)
class CsvFormat(TextFormat):
    """Rows of CSV files.

    Parameters
    ----------
    header : bool
        True if the first line names the columns.
    column_names : tuple of str, optional
        The names of the file's columns, whatever the header says.
    field_delim : str
        The delimiter of fields.
    quote_char : str
        The quote around a field that contains a delimiter; "" for no quoting.
    na_values : tuple of str, optional
        Texts that mean null in columns other than str. None: pyarrow's list, including the empty text.
    newlines_in_values : bool
        True if a quoted field may contain newlines.
    """

    header: bool = True
    column_names: tuple[str, ...] | None = None
    field_delim: str = ","
    quote_char: str = '"'
    na_values: tuple[str, ...] | None = None
    newlines_in_values: bool = False
    use_threads: bool = False

    name = "CsvDataset"
    tuning = TextFormat.tuning | {"use_threads"}

    texts_are_null: ClassVar[bool] = False
    """True if `na_values` are nulls in columns of str too."""

    @property
    def splitter(self) -> Splitter:
        if not self.quote_char:
            return at_newlines
        splitting = at_rows if self.newlines_in_values else at_lines
        return splitting(self.field_delim, self.quote_char)

    def names_of(self, read: Callable[[bool], list[str]]) -> list[str]:
        """Return the names of a file's columns.

        Parameters
        ----------
        read : callable
            Reads the first line: called with whether its fields are only counted, and named f0, f1, ...
        """
        return list(self.column_names) if self.column_names is not None else read(not self.header)

    def grammar(self, first: bytes) -> Grammar:
        return _CsvGrammar(self, first)


class _CsvGrammar(Grammar):
    def __init__(self, form: CsvFormat, first: bytes) -> None:
        self._form = form
        self._quote = form.quote_char.encode()
        self.null = {}
        names = self._begin(first)
        types = {name: _text_type(kind) for name, kind in form.types.items() if name in names}
        asked = names if form.columns is None else [name for name in names if name in form.columns]
        self._columns = asked or names[:1]  # something has to be parsed, so that rows are counted
        unknown = [name for name in self._columns if name not in types]
        if unknown:
            types |= self._learnt(first[self.start :], names, unknown)
        self.known = pa.schema([(name, types.get(name, pa.string())) for name in names])
        self.schema = pa.schema([(name, types[name]) for name in self._columns])
        self._names, self._types = names, {name: types[name] for name in self._columns}
        self._last = self._sentinel()

    def _begin(self, first: bytes) -> list[str]:
        """Read the header."""
        form = self._form
        starts = starts_of(first, form.blanks, form.splitter)
        if form.header:  # there may be blanks before it, although a line of them is a row after it
            named = starts_of(first, b" \t", form.splitter)
            starts = starts[starts >= named[0]] if len(named) else named
        if not len(starts):
            self.start = len(first)
            return list(form.column_names or ())
        end = int(starts[1]) if len(starts) > 1 else len(first)
        line = first[int(starts[0]) : end] + b"\n"  # a file's only line may lack its newline
        if form.header:
            _check_returns(first[int(starts[0]) : end], "header")
        self.start = end if form.header else int(starts[0])

        def read(counted: bool) -> list[str]:
            options = pv.ReadOptions(use_threads=False, autogenerate_column_names=counted)
            return list(self._read(line, options).column_names)

        return form.names_of(read)

    def _learnt(self, rows: bytes, names: list[str], unknown: list[str]) -> dict[str, Any]:
        """Infer the types of columns from the first rows."""
        found = dict.fromkeys(unknown, pa.string())
        if not rows.strip():
            return found
        wanted, skip = {"include_columns": unknown}, None
        try:
            table = self._read(rows, self._options(rows, names), skip, wanted)
        except pa.ArrowInvalid:  # some lines are no rows; reading raises the error
            rows = rows.decode(errors="replace").encode()  # the handler is given text
            skip = {"invalid_row_handler": lambda _: "skip"}
            table = self._read(rows, self._options(rows, names), skip, wanted)
        found |= {field.name: _learnt_type(field.type) for field in table.schema}

        def column(name: str, kind: Any) -> Any:
            wanted = {"include_columns": [name], "column_types": {name: kind}}
            return self._read(rows, self._options(rows, names), skip, wanted)[name]

        for name in table.column_names:
            if any(map(may_have_wide, table[name].chunks)):
                found[name] = type_of_texts(name, column, self._form.na_values)
        null = [name for name in table.column_names if table[name].null_count]
        self.null = {name: found[name] for name in null if _needs_values(found[name])}
        return found

    def _options(self, data: bytes, names: list[str]) -> Any:
        threads = self._form.use_threads
        size = _THREAD_BYTES if threads else len(data) + 64
        return pv.ReadOptions(use_threads=threads, column_names=names, block_size=size)

    def _read(
        self,
        data: bytes,
        reading: Any,
        parsing: dict[str, Any] | None = None,
        converting: dict[str, Any] | None = None,
    ) -> Any:
        form = self._form
        options = dict(converting or {})
        if form.na_values is not None:
            options["null_values"] = list(form.na_values)
        options["strings_can_be_null"] = form.texts_are_null
        return pv.read_csv(
            pa.py_buffer(data),
            read_options=reading,
            parse_options=pv.ParseOptions(
                delimiter=form.field_delim,
                quote_char=form.quote_char or False,
                newlines_in_values=form.newlines_in_values,
                **(parsing or {}),
            ),
            convert_options=pv.ConvertOptions(**options),
        )

    def parse(self, data: bytes, one: bool, *, wide: bool = False) -> Any:
        quoted = bool(self._quote) and self._quote in data
        _check_returns(data, "line")
        apart = quoted and not self._form.newlines_in_values
        lines = len(starts_of(data)) if apart else 0
        if one and lines > 1:
            raise ValueError(_NEWLINE)
        if quoted:  # a quote that is not closed swallows the last line, which must not be a row's
            data = b"".join((data, b"" if data.endswith(b"\n") else b"\n", self._last))
        types = {k: widened(kind) for k, kind in self._types.items()} if wide else self._types
        options = {"include_columns": self._columns, "column_types": types}
        try:
            table = self._read(data, self._options(data, self._names), None, options)
        except pa.ArrowInvalid as problem:
            raise ValueError(self._told(str(problem))) from None
        rows = table.num_rows - quoted
        if one and rows == 0:
            raise ValueError(
                "a quoted field does not end on its line"
                + ("" if self._form.newlines_in_values else "; newlines_in_values=True allows that")
            )
        if rows < lines:
            raise ValueError(_NEWLINE)
        batches = table.combine_chunks().to_batches()
        return batches[0].slice(0, rows) if batches else pa.RecordBatch.from_pylist([], self.schema)

    def _told(self, problem: str) -> str:
        """Return pyarrow's message about a line, with the column's name."""
        found = _MISFIT.match(problem)
        if found is None:
            return problem.removeprefix("CSV parse error: ").removeprefix("Row #1: ")
        number, kind, text = found.groups()
        return (
            f"column {self._names[int(number)]!r} is {kind}, according to the schema or the file's first lines: "
            f"{text}; schema={{{self._names[int(number)]!r}: ...}} says another dtype"
        )

    def _sentinel(self) -> bytes:
        """Return a line that can be parsed whatever the columns are."""
        kinds = [self._types.get(name, pa.string()) for name in self._names]
        return self._form.field_delim.encode().join(map(_some, kinds)) + b"\n"


def _check_returns(data: bytes, what: str) -> None:
    """Check that there are carriage returns only at the ends of lines.

    Raises
    ------
    ValueError
        One stands elsewhere: pyarrow would begin another row after it.
    """
    if b"\r" in data and data.count(b"\r") - data.endswith(b"\r") != data.count(b"\r\n"):
        raise ValueError(
            rf"there is a carriage return within the {what}; lines must end with \n or \r\n"
        )


def _some(kind: Any) -> bytes:
    """Return text that is a valid value of a type."""
    types = pa.types
    if types.is_date(kind):
        return b"1970-01-01"
    if types.is_time(kind):
        return b"00:00:00"
    if types.is_timestamp(kind):
        return b"1970-01-01 00:00:00" + (b"Z" if kind.tz else b"")
    return (
        b"0"
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        else b"-"
    )


def _text_type(kind: Any) -> Any:
    """Return the type as which a column of another type is parsed."""
    return kind if any(ask(kind) for ask in _DIRECT) else pa.string()


def _needs_values(kind: Any) -> bool:
    """Return True for a type without a null value: no NaN, no NaT, no empty text."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _learnt_type(kind: Any) -> Any:
    """Return the inferred type, with text for bytes (invalid UTF-8 is its row's error) and for columns without values."""
    return pa.string() if pa.types.is_null(kind) or pa.types.is_binary(kind) else kind


_ARGUMENT = re.compile(r"(?:defaults|schema)=\{(?:(?:, )?'\d+': \.\.\.)+\}")
_COLUMN = re.compile(r"column(s?) (?=')")
_NUMBER = re.compile(r"(?<=fields )'(\d+)'|(?<=field )'(\d+)'|(?<=, )'(\d+)'(?= \()")


@dataclass(frozen=True)
class CsvTuplesFormat(CsvFormat):
    """Rows of CSV files as tuples; columns are named by their numbers.

    Parameters
    ----------
    width : int, optional
        The number of fields of a row. None: that of the first line.
    """

    width: int | None = None

    required = True
    texts_are_null = True

    def names_of(self, read: Callable[[bool], list[str]]) -> list[str]:
        return [str(k) for k in range(self.width or len(read(True)))]

    def shaped(self, columns: dict[str, Any]) -> Any:
        return tuple(columns.values())

    def told(self, problem: str) -> str:
        text = _COLUMN.sub(r"field\1 ", _ARGUMENT.sub("record_defaults", problem))
        return _NUMBER.sub(lambda found: found[0].strip("'"), text)
