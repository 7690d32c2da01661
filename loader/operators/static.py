"""What a plan says of its elements without running anything."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.batching import Batch, Unbatch
from tundish.loader.operators.counting import Counter, FromList, Random
from tundish.loader.operators.elementwise import Enumerate, Filter, Map
from tundish.loader.operators.files import (
    Filenames,
    FileRecords,
    Indexed,
    ReadFiles,
    ReadFilesInTurn,
)
from tundish.loader.operators.mixing import Choose, Sample
from tundish.loader.operators.order import (
    Concatenate,
    Repeat,
    Shard,
    ShardByProcess,
    Shuffle,
    Skip,
    Take,
)
from tundish.loader.operators.sources import Files, Generator, Range, Slices, Tensors, Zip
from tundish.loader.operators.storing import Cache, Snapshot, SortedSnapshot, Stored
from tundish.loader.operators.taking import TakeWhile
from tundish.loader.operators.windows import Window
from tundish.loader.protocols.operator import Passing
from tundish.ragged import RaggedRows, ragged_apart
from tundish.spec import (
    ArraySpec,
    DatasetSpec,
    flatten,
    map_leaves,
    paths,
    same_structure,
    show_tree,
    spec_of,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

SAME = (
    Cache,
    Filter,
    Passing,
    Repeat,
    Shard,
    ShardByProcess,
    Shuffle,
    Skip,
    Snapshot,
    SortedSnapshot,
    Stored,
    Take,
    TakeWhile,
)
"""Operators whose elements are those of their input."""


@runtime_checkable
class SaysItself(Protocol):
    """A node that knows what it makes of its input's elements."""

    @property
    def up(self) -> Operator:
        """Its input."""
        ...

    def spec_over(self, below: Any) -> Any:
        """The spec of its elements, given that of its input's."""
        ...


Learn = Callable[["Operator"], Any]


def static_spec(node: Operator, learn: Learn | None = None) -> Any:
    """The nest of `ArraySpec` of a node's elements, as far as the plan alone tells.

    Parameters
    ----------
    node : Operator
        Of which plan.
    learn : callable, optional
        Gives the spec of a node of which the plan tells nothing; what is above it is told from
        there, so that a size that may differ is None though one element was looked at.

    Returns
    -------
    nest of ArraySpec or None
        A size that may differ between elements is None, and so is a shape of which nothing is
        known. None for the whole where not even the structure is known: behind a user's function
        without a signature, and of a source that has not been read.

    Examples
    --------
    >>> static_spec(Batch(Range(0, 9, 1), 2, False))
    ArraySpec(shape=(None,), dtype=int64)
    """

    def below(up: Operator) -> Any:
        return static_spec(up, learn)

    if isinstance(node, SaysItself):
        told = below(node.up)
        found = None if told is None else node.spec_over(_arrays(told))
    elif isinstance(node, SAME):
        found = below(node.up)
    else:
        make = _MADE.get(type(node))
        found = None if make is None else make(node, below)
    return learn(node) if found is None and learn is not None else found


def array_spec(node: Operator) -> Any:
    """As `static_spec`; a leaf that is a dataset is told as an object."""
    return _arrays(static_spec(node))


def check_alike(what: str, nodes: Sequence[Operator]) -> None:
    """Refuse datasets whose elements cannot stand in one; what no plan tells passes.

    Parameters
    ----------
    what : str
        The operator's name, for the message.
    nodes : sequence of Operator
        The plans of the datasets.

    Raises
    ------
    SpecError
        Two of them differ in their structure or in a dtype; shapes may differ.
    """
    told = [(at, spec) for at, spec in enumerate(map(static_spec, nodes)) if spec is not None]
    for at, spec in told[1:]:
        begun, first = told[0]
        (leaves, tree), (others, other) = flatten(first), flatten(spec)
        where = f"datasets {begun} and {at} of {what}"
        if not same_structure(tree, other):
            raise SpecError(
                f"{where} must have elements of one structure, not {show_tree(tree)} and "
                f"{show_tree(other)}"
            )
        if tree != other:  # a dict's keys in another order
            by_path = dict(zip(paths(other), others, strict=True))
            others = [by_path[path] for path in paths(tree)]
        for a, b, path in zip(leaves, others, paths(tree), strict=True):
            if not may_be_one(a, b):
                at_path = f" at {path}" if path else ""
                raise SpecError(
                    f"{where} must have elements of one dtype{at_path}, not {name_of(a)} and "
                    f"{name_of(b)}; a `map` can cast"
                )


def may_be_one(one: Any, other: Any) -> bool:
    """Whether leaves of two specs may be of one dtype: equal ones, or Python values of any kind."""
    if not (isinstance(one, ArraySpec) and isinstance(other, ArraySpec)):
        return type(one) is type(other)
    if object in (one.dtype, other.dtype):
        return True
    return bool(one.dtype == other.dtype)


def name_of(spec: Any) -> str:
    """A leaf's dtype, for a message."""
    if not isinstance(spec, ArraySpec):
        return type(spec).__name__
    return spec.dtype.__name__ if isinstance(spec.dtype, type) else str(spec.dtype)


def _slices(node: Slices, _: Learn) -> Any:
    def row(array: np.ndarray) -> ArraySpec:
        if not array.dtype.hasobject:
            return ArraySpec(array.shape[1:], array.dtype)
        if array.ndim > 1:
            return ArraySpec(array.shape[1:], object)
        kinds = set(map(type, array))
        # Whatever else stands there, an array too.
        return ArraySpec((), kinds.pop()) if kinds in ({str}, {bytes}) else ArraySpec(None, object)

    return map_leaves(row, node.arrays)


def _arrays(spec: Any) -> Any:
    """A spec whose leaves are all `ArraySpec`: a dataset in an element is an object here."""
    if spec is None:
        return None
    return map_leaves(lambda leaf: leaf if isinstance(leaf, ArraySpec) else ArraySpec((), object), spec)  # fmt: skip


def _window(node: Window, below: Learn) -> Any:
    told = below(node.up)
    return None if told is None else map_leaves(DatasetSpec, told)


def _zip(node: Zip, below: Learn) -> Any:
    parts = [below(up) for up in node.ups]
    return None if None in parts else unflatten(node.tree, parts)


def _enumerate(node: Enumerate, below: Learn) -> Any:
    told = below(node.up)
    return None if told is None else (ArraySpec((), np.int64), told)


def _batch(node: Batch, below: Learn) -> Any:
    told = below(node.up)
    size = node.size if node.drop_remainder else None
    return None if told is None else map_leaves(lambda spec: stacked(spec, size), _arrays(told))


def stacked(spec: ArraySpec, size: int | None) -> ArraySpec:
    """The spec of a batch of leaves."""
    return ArraySpec(None if spec.shape is None else (size, *spec.shape), spec.dtype)


def _unbatch(node: Unbatch, below: Learn) -> Any:
    told = below(node.up)
    if told is None or not all(isinstance(leaf, ArraySpec) for leaf in flatten(told)[0]):
        return None
    return map_leaves(_row, ragged_apart(told))


def _row(spec: Any) -> Any:
    if isinstance(spec, RaggedRows):
        values: Any = spec.ragged.values
        return ArraySpec(values.shape and (None, *values.shape[1:]), values.dtype)
    return ArraySpec(spec.shape and spec.shape[1:], spec.dtype)


def _from_list(node: FromList, _: Learn) -> Any:
    specs = [spec_of(unflatten(tree, leaves)) for leaves, tree in node.elements]
    return functools.reduce(common, specs)


def _joined(parts: Sequence[Operator]) -> Any:
    return functools.reduce(common, map(static_spec, parts))


def common(one: Any, other: Any) -> Any:
    """The spec that fits the elements of two; None where there is none."""
    if one is None or other is None:
        return None
    (first, tree), (second, other_tree) = flatten(one), flatten(other)
    if tree != other_tree:
        return None
    pairs = zip(first, second, strict=True)
    leaves = [a if a == b else _common(*map(_arrays, (a, b))) for a, b in pairs]
    return unflatten(tree, leaves)


def _common(one: ArraySpec, other: ArraySpec) -> ArraySpec:
    dtype = one.dtype if one.dtype == other.dtype else object
    a, b = one.shape, other.shape
    if a is None or b is None or len(a) != len(b):
        return ArraySpec(None, dtype)
    return ArraySpec(tuple([x if x == y else None for x, y in zip(a, b, strict=True)]), dtype)


def _record(node: ReadFiles | ReadFilesInTurn | FileRecords | Indexed, _: Learn) -> Any:
    return node.format.spec


_MADE: dict[type[Operator], Callable[[Any, Learn], Any]] = {
    Range: lambda node, _: ArraySpec((), node.dtype or np.int64),
    Counter: lambda node, _: ArraySpec((), node.dtype or np.int64),
    Random: lambda _node, _: ArraySpec((), np.int64),
    Tensors: lambda node, _: spec_of(node.value),
    Files: lambda _node, _: ArraySpec((), str),
    Filenames: lambda _node, _: ArraySpec((), str),
    ReadFiles: _record,
    ReadFilesInTurn: _record,
    FileRecords: _record,
    Indexed: _record,
    FromList: _from_list,
    Slices: _slices,
    Generator: lambda node, _: node.signature,
    Map: lambda node, _: node.signature,
    Zip: _zip,
    Window: _window,
    Enumerate: _enumerate,
    Batch: _batch,
    Unbatch: _unbatch,
    Concatenate: lambda node, _: _joined(node.inputs),
    Sample: lambda node, _: _joined(node.ups),
    Choose: lambda node, _: _joined(node.ups),
}
