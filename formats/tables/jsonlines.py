"""JSON lines: an object on each line. Its keys are the columns, and a missing key is a null."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from tundish.formats.bytes.decompressing import looks_like
from tundish.formats.tables.lines import starts_of
from tundish.formats.tables.overflow import widened
from tundish.formats.tables.source import ARROW_ERRORS
from tundish.formats.tables.text import Grammar, TextFormat

DEEPEST = 100
"""So many objects and lists may stand in each other: pyarrow goes down by calling itself, without a limit."""

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
            learnt = {field.name: _no_times(field.type) for field in _learnt(first)}
        self.known = pa.schema(list((learnt | types).items()))
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
        return  # an object opens in each line, and so no line has room for so many
    openings = data.translate(None, _NO_OPENING).split(b"\n")
    if max(map(len, openings)) <= DEEPEST:
        return
    for line, opened in zip(data.split(b"\n"), openings, strict=True):
        if len(opened) > DEEPEST:
            brackets = np.frombuffer(_STRING.sub(b"", line).translate(None, _NO_BRACKET), np.uint8)
            opens = (brackets == ord("[")) | (brackets == ord("{"))
            if np.cumsum(np.where(opens, 1, -1)).max(initial=0) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} lists and objects are nested in each other")


def _learnt(first: bytes) -> Any:
    """Infer the columns from the first lines."""
    found, starts = pa.schema([]), starts_of(first, BLANKS)
    bounds = [*starts.tolist(), len(first)]
    spans = [(0, len(starts))]
    while spans:
        begin, stop = spans.pop()
        if begin == stop:
            continue
        try:
            piece = _read(first[bounds[begin] : bounds[stop]], pj.ParseOptions()).schema
            found = pa.unify_schemas([found, piece], promote_options="permissive")
        except ARROW_ERRORS:  # a line that is none, or of another type: reading tells
            if stop - begin > 1:
                middle = (begin + stop) // 2
                spans += [(middle, stop), (begin, middle)]
    return found


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


def _no_times(kind: Any) -> Any:
    """Replace inferred time types by text, since JSON has no times; only the schema asks for them."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_no_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _no_times(field.type)) for field in kind])
    return kind
