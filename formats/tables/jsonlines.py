"""JSON lines: an object on each line. Its keys are the columns, and a missing key is a null."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from tundish.formats.bytes.decompressing import looks_like
from tundish.formats.tables.integers import is_wide, may_have_wide, unfit
from tundish.formats.tables.lines import starts_of
from tundish.formats.tables.overflow import widened
from tundish.formats.tables.source import ARROW_ERRORS
from tundish.formats.tables.text import Grammar, TextFormat

DEEPEST = 100
"""The deepest nesting of objects and lists: pyarrow recurses into them without a limit."""

BLANKS = b" \t\r"

_OBJECT = re.compile(rb"[ \t\r\n]*{")
_NO_OPENING = bytes(set(range(256)) - set(b"[{\n"))
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BETWEEN = re.compile(rb"}[ \t\r]*\n[ \t\r\n]*{")


@dataclass(frozen=True)
class JsonLinesFormat(TextFormat):
    """Rows of files of JSON lines."""

    name = "JsonLinesDataset"
    blanks = BLANKS

    def grammar(self, first: bytes) -> Grammar:
        return _JsonGrammar(self, first)


class _JsonGrammar(Grammar):
    def __init__(self, form: JsonLinesFormat, first: bytes) -> None:
        types = {name: kind for name, kind in form.types.items() if _direct(kind)}
        wanted = (
            None
            if form.columns is None
            else {x.split(".")[0] for x in form.columns} | {*form.columns}
        )
        learnt: dict[str, Any] = {}
        self.null = {}
        if wanted is None or not wanted <= set(types):
            learnt = {field.name: _no_times(field.type) for field in _learnt(first, form)}
        objects = {name for name, kind in learnt.items() if pa.types.is_struct(kind)}
        others = {x: kind for x, kind in types.items() if x.split(".")[0] not in objects}
        learnt = {name: _typed(kind, name, types) for name, kind in learnt.items()}
        self.known = pa.schema(list((learnt | others).items()))
        asked = [name for name in self.known.names if wanted is None or name in wanted]
        self.schema = pa.schema([self.known.field(name) for name in asked])
        self._others = "error" if form.columns is None and form.schema is None else "ignore"

    def _options(self, schema: Any) -> Any:
        return pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=self._others)

    def parse(self, data: bytes, one: bool, *, wide: bool = False) -> Any:
        schema = (
            pa.schema([(x.name, widened(x.type)) for x in self.schema]) if wide else self.schema
        )
        try:
            table = _read(data, self._options(schema))
        except pa.ArrowInvalid as problem:
            raise ValueError(_told(str(problem))) from None
        rows = table.num_rows
        if one and rows > 1:
            raise ValueError(f"{rows} objects are on one line")
        if rows > 1 and rows not in (1 + data.count(b"}\n{"), 1 + len(_BETWEEN.findall(data))):
            raise ValueError("an object does not begin and end where a line does")
        if not len(self.schema):  # objects without keys: something has to say how many
            return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
        columns = [table.column(name).combine_chunks() for name in self.schema.names]
        columns = [x.chunk(0) if isinstance(x, pa.ChunkedArray) else x for x in columns]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read(data: bytes, parsing: Any) -> Any:
    if not _OBJECT.match(data):  # pyarrow 26 ends the process where the first value is null
        begin = data.strip()[:20]
        raise ValueError(f"the line is not an object: it begins with {begin!r}{looks_like(begin)}")
    check_depth(data)
    reading = pj.ReadOptions(use_threads=False, block_size=len(data) + 64)
    return pj.read_json(pa.py_buffer(data), read_options=reading, parse_options=parsing)


def check_depth(data: bytes) -> None:
    """Check that nothing is nested too deeply for pyarrow.

    Raises
    ------
    ValueError
        Something is.
    """
    if data.count(b"[") + data.count(b"{") < DEEPEST + data.count(b"\n"):
        return  # each line opens an object, so no line can nest that deep
    openings = data.translate(None, _NO_OPENING).split(b"\n")
    if max(map(len, openings)) <= DEEPEST:
        return
    for line, opened in zip(data.split(b"\n"), openings, strict=True):
        if len(opened) > DEEPEST:
            brackets = np.frombuffer(_STRING.sub(b"", line).translate(None, _NO_BRACKET), np.uint8)
            opens = (brackets == ord("[")) | (brackets == ord("{"))
            if np.cumsum(np.where(opens, 1, -1)).max(initial=0) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} lists and objects are nested in each other")


def _learnt(first: bytes, form: JsonLinesFormat) -> Any:
    """Infer the columns from the first lines."""
    found, starts = pa.schema([]), starts_of(first, BLANKS)
    bounds = [*starts.tolist(), len(first)]
    spans, large = [(0, len(starts))], False
    while spans:
        begin, stop = spans.pop()
        if begin == stop:
            continue
        try:
            piece = _read(first[bounds[begin] : bounds[stop]], pj.ParseOptions())
            found = pa.unify_schemas([found, piece.schema], promote_options="permissive")
        except ARROW_ERRORS:  # an invalid line, or one of another type: reading raises the error
            if stop - begin > 1:
                middle = (begin + stop) // 2
                spans += [(middle, stop), (begin, middle)]
        else:
            large = large or any(may_have_wide(x) for c in piece.columns for x in c.chunks)
    if not large:
        return found
    objects = _objects([first[begin:stop] for begin, stop in pairwise(bounds)])
    whole = _with_integers(pa.struct(list(found)), objects, "", form)
    return pa.schema(list(whole))


def _objects(lines: list[bytes]) -> list[Any]:
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue  # reading raises the error
    return found


def _with_integers(kind: Any, values: list[Any], name: str, form: JsonLinesFormat) -> Any:
    """Return an inferred type with uint64 in place of float64 where integers beyond int64 were taken for floats.

    Parameters
    ----------
    kind : pyarrow.DataType
        The inferred type.
    values : list
        The values of the first lines, as Python objects.
    name : str
        The column's name; "" for the whole lines.
    form : JsonLinesFormat
        The requested columns and types, which are left alone.

    Raises
    ------
    ValueError
        A column has such integers together with values that uint64 cannot hold.
    """
    if pa.types.is_struct(kind):
        objects = [value for value in values if isinstance(value, dict)]
        fields = []
        for field in kind:
            inner = [each.get(field.name) for each in objects]
            path = f"{name}.{field.name}" if name else field.name
            fields.append(pa.field(field.name, _with_integers(field.type, inner, path, form)))
        return pa.struct(fields)
    if pa.types.is_list(kind):
        items = [item for value in values if isinstance(value, list) for item in value]
        return pa.list_(_with_integers(kind.value_type, items, name, form))
    numbers = [value for value in values if type(value) in (int, float)]
    wide = next((value for value in numbers if type(value) is int and is_wide(value)), None)
    floats = any(type(value) is float for value in numbers)
    if wide is None or floats or not pa.types.is_float64(kind) or not _is_inferred(name, form):
        return kind
    if all(0 <= value < 2**64 for value in numbers):
        return pa.uint64()
    remedy = f"schema={{{name!r}: 'float64'}} rounds them; text in the file keeps them"
    raise ValueError(unfit(name, str(wide), remedy))


def _is_inferred(name: str, form: JsonLinesFormat) -> bool:
    """Return True for a column, or a field of one, that is asked for without a type."""

    def within(names: Iterable[str]) -> bool:
        return any(f"{name}.".startswith(f"{each}.") for each in names)

    return not within(form.types) and (form.columns is None or within(form.columns))


def _told(problem: str) -> str:
    """Return pyarrow's message about a line."""
    text = problem.removeprefix("JSON parse error: ").removesuffix(" in row 0")
    if "changed from" in text or "Failed to convert" in text:
        text += "; the file's first lines, or schema=, set the types of columns"
    if text == "unexpected field":
        text = "a key that the file's first lines lack; columns= or schema= names the keys to read"
    return text


def _direct(kind: Any) -> bool:
    """Return True if pyarrow parses JSON to this type directly; others are cast from what it parses."""
    types = pa.types
    if types.is_list(kind):
        return _direct(kind.value_type)
    if types.is_struct(kind):
        return all(_direct(field.type) for field in kind)
    return bool(
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
    )


def _typed(kind: Any, name: str, types: dict[str, Any]) -> Any:
    """Return the inferred type of a column, with the requested ones of the column or of its fields."""
    if name in types:
        return types[name]
    if pa.types.is_struct(kind):
        return pa.struct([(x.name, _typed(x.type, f"{name}.{x.name}", types)) for x in kind])
    return kind


def _no_times(kind: Any) -> Any:
    """Replace inferred time types by text: JSON has no times, and only the schema can request them."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_no_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _no_times(field.type)) for field in kind])
    return kind
