"""Selection of a table's columns and their types: the arguments that all formats of tables share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tundish.calls import check_is
from tundish.errors import SpecError
from tundish.formats.format import Format
from tundish.formats.tables.casting import Kind, cast
from tundish.formats.tables.columns import Bad, Null, check_type, default_of, note_nulls, to_numpy
from tundish.formats.tables.int96 import cast_row_by_row, rows_where, wrapped

_WIDE = "\0wide"
"""The end of the name of a column in its wider type."""


@dataclass(frozen=True)
class TableFormat(Format):
    """A format whose records are the rows of a table.

    Parameters
    ----------
    columns : tuple of str, optional
        The columns to read, in this order; ``"a.b"`` is the field b of the struct a. None: all columns of the
        file and the schema.
    schema : tuple of (str, Kind), optional
        The types of columns; others have the file's types.
    defaults : tuple of (str, value)
        The values in place of nulls.
    """

    columns: tuple[str, ...] | None = None
    schema: tuple[tuple[str, Kind], ...] | None = None
    defaults: tuple[tuple[str, Any], ...] = ()
    buffer_size: int | None = None
    storage_options: tuple[tuple[str, Any], ...] | None = None

    tabular: ClassVar[bool] = True
    tuning: ClassVar[frozenset[str]] = frozenset({"buffer_size", "storage_options"})

    required: ClassVar[bool] = False
    """True if a null of floats or times is an error, like other nulls."""

    def shaped(self, columns: dict[str, Any]) -> Any:
        """Return the nest of a row from its columns."""
        return columns

    def told(self, problem: str) -> str:
        """Rephrase a problem of a row in terms of the arguments."""
        return problem

    @property
    def types(self) -> dict[str, Any]:
        """The requested types, by name."""
        return {name: kind.arrow for name, kind in self.schema or ()}


def check_columns(columns: Any) -> tuple[str, ...] | None:
    """Check the argument `columns`."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise TypeError(
            f"columns must be a list of names, not {type(columns).__name__} ({columns!r})"
        )
    for name in columns:
        check_is(name, str, "columns must hold names")
    if not columns:
        raise ValueError("columns is empty: name at least one, or leave it out to read all")
    for k, name in enumerate(columns):
        if name in columns[:k]:
            raise ValueError(f"columns names {name!r} twice")
        for other in columns:
            if name.startswith(f"{other}."):
                raise ValueError(f"columns names {name!r}, which is a part of {other!r}")
    return tuple(columns)


def check_defaults(defaults: Any) -> tuple[tuple[str, Any], ...]:
    """Check the argument `defaults`."""
    if defaults is None:
        return ()
    check_is(defaults, Mapping, "defaults must be a dict of columns' names and values")
    for name, value in defaults.items():
        check_is(name, str, "defaults must have names as keys")
        if value is None:
            raise ValueError(
                f"defaults[{name!r}] is None, but it must be the value that replaces None"
            )
    return tuple(defaults.items())


class TableLayout:
    """The conversion of one file's columns to a nest.

    Parameters
    ----------
    form : TableFormat
        The requested columns and types.
    schema : pyarrow.Schema
        The file's schema.
    path : str
        The file's path.
    null : mapping of str to pyarrow.DataType
        Columns that are null in some row although they must not be, as far as the file's first rows show: the
        error of one row names them all.
    wide : collection of str
        The paths of columns and fields that the file has in a wider type than its schema says.

    Attributes
    ----------
    names : list of str
        The columns to read, in the order of the file, fields of structs as ``"a.b"``.
    wide : dict of str to tuple of str
        Those of them that have a wider type, or a field of one, with their path of names.

    Raises
    ------
    SpecError
        A column does not exist, cannot be converted, or its default does not fit.
    """

    def __init__(
        self,
        form: TableFormat,
        schema: Any,
        path: str,
        null: Mapping[str, Any] | None = None,
        wide: Collection[str] = (),
    ) -> None:
        self._form, self._schema, self._path = form, schema, path
        self._defaults = dict(form.defaults)
        self._null = {k: kind for k, kind in (null or {}).items() if k not in self._defaults}
        types = form.types
        wanted = form.columns
        if wanted is None:
            wanted = tuple(schema.names) + tuple([x for x in types if x not in schema.names])
        self._fields = [(name, self._route(name), types.get(name)) for name in wanted]
        for name, route, kind in self._fields:
            self._check(name, route, kind)
        routes = {".".join(route): route for _, route, _ in self._fields if route}
        self.names = list(routes)
        self.wide = {
            name: route
            for name, route in routes.items()
            if any(f"{path}.".startswith(f"{name}.") for path in wide)
        }

    def _route(self, name: str) -> tuple[str, ...]:
        """Return the path of names to a column; empty if it does not exist."""
        if name in self._schema.names:
            return (name,)
        head, *rest = name.split(".")
        if rest and head in self._schema.names and self._type((head, *rest)) is not None:
            return (head, *rest)
        return ()

    def _type(self, route: tuple[str, ...]) -> Any:
        """Return a column's type; None if there is no such field."""
        kind = self._schema.field(self._only(route[0])).type
        for field in route[1:]:
            if not pa.types.is_struct(kind) or kind.get_field_index(field) < 0:
                return None
            kind = kind.field(field).type
        return kind

    def _only(self, name: str) -> int:
        """Return the index of a column."""
        found: list[int] = self._schema.get_all_field_indices(name)
        if len(found) > 1:
            raise SpecError(f"{self._path} has {len(found)} columns of the name {name!r}")
        return found[0]

    def _check(self, name: str, route: tuple[str, ...], kind: Any) -> None:
        if not route and kind is None and name not in self._defaults:
            there = ", ".join(repr(each) for each in self._schema.names) or "none"
            raise SpecError(
                f"{self._path} has no column {name!r}; its columns are {there}. If it may be missing, "
                f"defaults={{{name!r}: ...}} sets a value for it, or schema= its dtype"
            )
        found = kind or (self._type(route) if route else pa.null())
        try:
            check_type(found, name)
            if name in self._defaults:
                default_of(found, name, self._defaults[name])
        except SpecError as problem:
            raise SpecError(f"{self._path}: {problem}") from None

    def beside(self, batch: Any, wide: Any) -> Any:
        """Return a batch with the columns in their wider type beside those whose values do not fit the schema's.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Rows of this file.
        wide : pyarrow.RecordBatch
            The columns `wide` of the same rows, in their wider type.
        """
        for name, route in self.wide.items():
            column = _column(wide, route)
            if rows_where(wrapped, _column(batch, route), column).any():
                batch = batch.append_column(name + _WIDE, column)
        return batch

    def nest(self, batch: Any, bad: Bad) -> Any:
        """Convert a batch of rows to a nest.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            A valid batch of this file, after `beside` if it has wider types.
        bad : dict of int to str
            Receives the rows without a value, with the problem.
        """
        made: dict[str, Any] = {}
        for name, route, kind in self._fields:
            array = _column(batch, route) if route else pa.nulls(len(batch), kind or pa.null())
            if name in self.wide and name + _WIDE in batch.schema.names:
                wide = batch.column(name + _WIDE)
                array = cast_row_by_row(array, wide, kind or array.type, name, bad)
            elif kind is not None:
                array = cast(array, kind, name, bad)
            into = made
            for part in route[:-1]:
                into = into.setdefault(part, {})
            if self._form.required and name not in self._defaults:
                note_nulls(array, name, bad)
            into[route[-1] if route else name] = to_numpy(array, name, self._defaults, bad)
        for row, problem in bad.items():
            whole = Null(problem.kinds, self._null) if isinstance(problem, Null) else problem
            bad[row] = self._form.told(str(whole))
        return self._form.shaped(made)


def _column(batch: Any, route: tuple[str, ...]) -> Any:
    array = batch.column(route[0])
    for field in route[1:]:
        number = array.type.get_field_index(field)
        array = array.flatten()[number]
    return array
