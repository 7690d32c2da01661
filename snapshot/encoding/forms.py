"""Elements as Arrow record batches, bit for bit.

`Columns` are consecutive elements, leaf by leaf. A `Form` describes how elements of one structure are stored
and is in every file: the structure in the schema's metadata, the kind of each leaf in its field's, both
as JSON. `encode` makes a record batch, `decode` returns the elements, as read-only views of its buffers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.errors import SnapshotError, SpecError
from tundish.formats.bytes.regular import parse_json
from tundish.snapshot.encoding.arrow import Piece, stack
from tundish.snapshot.encoding.columns import BufferMemory, Column
from tundish.snapshot.encoding.kinds import ALIKE, Kind, kind_from_json, kind_of
from tundish.snapshot.encoding.structure import (
    EMPTY,
    INDEX,
    column_names,
    tree_from_json,
    tree_to_json,
)
from tundish.spec import (
    Tree,
    flatten,
    is_nest,
    leaf_key,
    leaves_like,
    paths,
    reordered,
    same_structure,
    show_tree,
    unflatten,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["INDEX", "Columns", "Decoded", "Form", "columns_of", "decode", "encode"]

_FORM, _LEAF = b"tundish.form", b"tundish.leaf"


@dataclass(frozen=True)
class Columns:
    """Consecutive elements of one structure.

    Attributes
    ----------
    tree : Tree
        The elements' structure.
    leaves : tuple of (numpy.ndarray or list)
        For each leaf an array of the rows if they have one dtype and shape, else a list of values.
    rows : int
        The number of elements.
    """

    tree: Tree
    leaves: tuple[Piece, ...]
    rows: int

    def reordered(self, tree: Tree) -> tuple[Piece, ...]:
        """Return the leaves in the order of another structure, which may differ in the order of keys."""
        return tuple(reordered(self.leaves, self.tree, tree))


def columns_of(elements: Sequence[Any]) -> Columns:
    """Convert elements to columns; the order of a dict's keys is that of the first element.

    Parameters
    ----------
    elements : sequence
        Elements as `tundish.normalising.normalise` returns them; at least one.

    Raises
    ------
    SpecError
        They have different structures.
    """
    first, tree = flatten(elements[0])
    if tree is None and not any(map(is_nest, elements)):
        return Columns(None, (_stacked(list(elements)),), len(elements))
    rows = [first]
    for k, element in enumerate(elements[1:], 1):
        leaves, other = flatten(element)
        if other != tree:
            if not same_structure(other, tree):
                raise SpecError(
                    f"element {k} has the structure {show_tree(other)}, the first one {show_tree(tree)}; {ALIKE}"
                )
            leaves = leaves_like(element, tree)
        rows.append(leaves)
    return Columns(tree, tuple(_stacked(list(x)) for x in zip(*rows, strict=True)), len(rows))


def _stacked(values: list[Any]) -> Piece:
    """Return values as one array if they have one dtype and shape, and are not objects."""
    key = leaf_key(values[0])
    if isinstance(key, type) or key[0].hasobject or _is_odd(values[0]):
        return values
    dtype, shape = key
    if dtype.kind in "biufc" and dtype.isnative and set(map(type, values)) == {dtype.type}:
        return np.array(values, dtype)
    for value in values:
        # Of a missing dtype numpy takes None to be equal to float64.
        if getattr(value, "dtype", object) != dtype or value.shape != shape or _is_odd(value):
            return values
    return stack(values, dtype, shape)


def _is_odd(value: Any) -> bool:
    """Return True if a value is an array with more than its items, such as a masked one."""
    return type(value) is not np.ndarray and not isinstance(value, np.generic)


@dataclass(frozen=True)
class Form:
    """The stored form of elements of one structure.

    Attributes
    ----------
    tree : Tree
        The structure.
    kinds : tuple of Kind
        The kind of each leaf.
    """

    tree: Tree
    kinds: tuple[Kind, ...]

    @cached_property
    def schema(self) -> Any:
        """The schema of its record batches, which contains its description."""
        names = column_names(self.tree)
        fields = [
            pa.field(
                name,
                kind.arrow,
                nullable=pa.types.is_null(kind.arrow),
                metadata={_LEAF: json.dumps(kind.to_json())},
            )
            for name, kind in zip(names, self.kinds, strict=True)
        ]
        if not fields:  # the rows are counted by a column of nulls
            fields = [pa.field(EMPTY, pa.null())]
        return pa.schema(fields, metadata={_FORM: json.dumps({"tree": tree_to_json(self.tree)})})

    @staticmethod
    def of(pieces: Sequence[Columns]) -> Form:
        """Return the narrowest form that fits some elements.

        Raises
        ------
        SpecError
            A leaf cannot be stored, or elements differ in more than shapes; the message names the leaf.
        """
        first, *rest = pieces
        kinds = [
            _named(lambda p=piece: kind_of(p), path)  # type: ignore[misc]  # a default binds it now
            for piece, path in zip(first.leaves, paths(first.tree), strict=True)
        ]
        if None in kinds:
            raise SpecError("a form is made of at least one element")
        form = Form(first.tree, tuple(kinds))
        return form.widened(rest) if rest else form

    def widened(self, pieces: Sequence[Columns]) -> Form:
        """Return the narrowest form that fits this form's elements and others.

        Raises
        ------
        SpecError
            The others have another structure, dtype or rank; the message names the leaf.
        """
        kinds = list(self.kinds)
        where = paths(self.tree)
        for piece in pieces:
            if not same_structure(piece.tree, self.tree):
                raise SpecError(
                    f"an element has the structure {show_tree(piece.tree)}, those before it "
                    f"{show_tree(self.tree)}; {ALIKE}"
                )
            for k, leaf in enumerate(piece.reordered(self.tree)):
                kinds[k] = _named(lambda k=k, leaf=leaf: _widened(kinds[k], leaf), where[k])  # type: ignore[misc]  # defaults bind them now
        return self if tuple(kinds) == self.kinds else Form(self.tree, tuple(kinds))

    @staticmethod
    def from_schema(schema: Any) -> Form:
        """Return the form that a file's schema describes, without the column `INDEX`.

        Raises
        ------
        SnapshotError
            The schema is not that of a snapshot, or requires a missing package.
        """
        told = (schema.metadata or {}).get(_FORM)
        if told is None:
            raise SnapshotError(
                "the schema is not that of a snapshot: it does not describe elements"
            )
        fields = [field for field in schema if field.name not in (INDEX, EMPTY)]
        try:
            tree = tree_from_json(parse_json(told)["tree"])
            kinds = tuple(kind_from_json(parse_json(field.metadata[_LEAF])) for field in fields)
            form = Form(tree, kinds)
            same = len(paths(tree)) == len(kinds) and all(
                field.type == kind.arrow for field, kind in zip(fields, kinds, strict=True)
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:
            raise SnapshotError(f"the schema does not describe elements: {problem!r}") from problem
        if not same:
            raise SnapshotError("the schema's columns are not those that it describes")
        return form


def _named(work: Callable[[], Any], path: str) -> Any:
    try:
        return work()
    except SpecError as error:
        raise SpecError(f"the leaf {path or 'of an element'}: {error.message}") from None


def _widened(kind: Kind, leaf: Piece) -> Kind:
    other = kind_of(leaf)
    joined = kind if other is None else kind.joined(other)
    if joined is None:
        raise SpecError(f"one row is {other}, rows before it are {kind}; {ALIKE}")
    return joined


def encode(form: Form, pieces: Sequence[Columns]) -> Any:
    """Return the record batch of elements that fit a form; a single contiguous piece is not copied."""
    leaves = [piece.reordered(form.tree) for piece in pieces]
    arrays = [
        kind.encode([own[k] for own in leaves if len(own[k])]) for k, kind in enumerate(form.kinds)
    ]
    if not arrays:
        arrays = [pa.nulls(sum(piece.rows for piece in pieces))]
    return pa.RecordBatch.from_arrays(arrays, schema=form.schema)


class Decoded:
    """The elements of a record batch, as read-only views of its buffers.

    Parameters
    ----------
    tree : Tree
        The elements' structure.
    columns : sequence of Column
        The leaves.
    rows : int
        The number of elements.

    Attributes
    ----------
    element : callable
        ``element(k)`` returns the element of row k.
    width : int
        The number of leaves of an element.
    cost : int
        The bytes of memory that it takes in addition to the buffers.
    """

    __slots__ = ("_columns", "cost", "element", "rows", "tree", "width")

    def __init__(self, tree: Tree, columns: Sequence[Column], rows: int) -> None:
        self.rows = rows
        self.tree, self._columns, self.width = tree, columns, len(columns)
        self.element: Callable[[int], Any] = _getter(tree, iter(columns))
        self.cost = sum(column.cost for column in columns)

    def elements(self, first: int, stop: int) -> list[Any]:
        """Return the elements of a range of rows."""
        return _elements(self.tree, iter(self._columns), first, stop)

    def views(self, first: int, stop: int) -> bool:
        """Return True if `elements` returns views of the buffers."""
        return any(column.views(first, stop) for column in self._columns)

    def stacked(self, first: int, stop: int) -> Any | None:
        """Return a range of rows as a batch, of views if leaves are arrays; None if shapes differ."""
        arrays = [column.stacked(first, stop) for column in self._columns]
        if any(array is None for array in arrays):
            return None
        return unflatten(self.tree, arrays)

    def leaf(self, leaf: int) -> Column:
        """Return one leaf of all rows."""
        return self._columns[leaf]

    @property
    def addresses(self) -> list[int]:
        """Return the addresses in this process's memory of leaves with one dtype and shape."""
        arrays = [column.array for column in self._columns if column.array is not None]
        return [array.__array_interface__["data"][0] for array in arrays]

    def column(self, leaf: int) -> np.ndarray | None:
        """Return all rows of a leaf with one dtype and shape; None for any other leaf."""
        return self._columns[leaf].array


def decode(batch: Any, form: Form, mapping: Any = None) -> Decoded:
    """Decode a record batch.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        A batch, or slice of one, with the form's schema.
    form : Form
        The form of its elements.
    mapping : object, optional
        The mapped file that contains its buffers; the ``base`` of all views of it.

    Raises
    ------
    ValueError
        The batch is inconsistent: its file was damaged.
    """
    memory = BufferMemory(mapping)
    columns = [kind.column(batch.column(k), memory) for k, kind in enumerate(form.kinds)]
    return Decoded(form.tree, columns, batch.num_rows)


def _getter(tree: Tree, columns: Iterator[Column]) -> Callable[[int], Any]:
    """Make a function from k to the element of row k."""
    if tree is None:
        one: Callable[[int], Any] = next(columns).one
        return one
    kind, keys, subtrees = tree
    parts = [_getter(sub, columns) for sub in subtrees]
    if kind == "d":
        pairs = list(zip(keys, parts, strict=True))
        return lambda k: {key: part(k) for key, part in pairs}
    if kind == "t":
        return lambda k: tuple([part(k) for part in parts])
    return lambda k: keys(*[part(k) for part in parts])


def _elements(tree: Tree, columns: Iterator[Column], first: int, stop: int) -> list[Any]:
    """Return the elements of a range of rows, computed leaf by leaf."""
    if tree is None:
        return next(columns).many(first, stop)
    kind, keys, subtrees = tree
    parts = [_elements(sub, columns, first, stop) for sub in subtrees]
    rows: Any = zip(*parts, strict=True) if parts else [()] * (stop - first)
    if kind == "d":
        return [dict(zip(keys, row, strict=True)) for row in rows]
    return list(rows) if kind == "t" else [keys(*row) for row in rows]
