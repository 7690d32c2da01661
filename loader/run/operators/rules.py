"""What may stand together in one batch, and what the batch is made of it.

A *rule* is asked twice: by the machine that gathers elements, in the consumer's process, which
knows only their structures, dtypes and shapes; and by the evaluator that puts them together, in a
worker. Whatever is wrong is found by the first, so that the error stands at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import room
from tundish.loader.operators.pads import Pad, Padding, check_fits
from tundish.loader.protocols.collate import Key, collate, fits, misfit, objects, unstackable
from tundish.ragged import Ragged, Sparse
from tundish.spec import LEAF, Tree, flatten, leaf_key, paths, show_key, show_tree, unflatten

if TYPE_CHECKING:
    from tundish.loader.operators.padding import RaggedBatch, SparseBatch
    from tundish.loader.protocols.forms import Form


class Rule(Protocol):
    """What may stand together in one batch."""

    def alone(self, form: Form) -> None:
        """Raise a `SpecError` where an element cannot stand in any batch."""
        ...

    def together(self, k: int, form: Form, first: Form) -> None:
        """Raise a `SpecError` where element k cannot stand in the batch that another one began."""
        ...

    def put(self, values: Sequence[Any]) -> Any:
        """The batch of elements that can."""
        ...


class Stacking:
    """Equal shapes, stacked: the rule of `batch`."""

    def alone(self, form: Form) -> None:
        _stackable(form)

    def together(self, k: int, form: Form, first: Form) -> None:
        _compare(k, form, first, fits)

    def put(self, values: Sequence[Any]) -> Any:
        return collate(values, len(values))


class Padded:
    """Equal dtypes and ranks, padded to one shape: the rule of `padded_batch`."""

    def __init__(self, padding: Padding) -> None:
        self._padding = padding
        self._pads: dict[Any, list[Pad]] = {}

    def _over(self, form: Form) -> list[Pad]:
        tree, leaves = form
        kinds = tuple([k if isinstance(k, type) else (k[0], len(k[1])) for k in leaves])
        found = self._pads.get((tree, kinds))
        if found is None:
            found = self._pads[tree, kinds] = self._padding.over(tree, leaves)
        return found

    def alone(self, form: Form) -> None:
        _stackable(form)
        pads, leaves = self._over(form), form[1]
        if self._padding.shapes is not None:
            check_fits(form[0], pads, [_shape(key) for key in leaves], list(map(show_key, leaves)))

    def together(self, k: int, form: Form, first: Form) -> None:
        _compare(k, form, first, alike)
        if self._padding.shapes is not None:
            self.alone(form)

    def put(self, values: Sequence[Any]) -> Any:
        tree, columns = _columns(values)
        pads = self._over((tree, tuple([leaf_key(column[0]) for column in columns])))
        side = self._padding.side
        return unflatten(
            tree, [_pad(rows, pad, side) for rows, pad in zip(columns, pads, strict=True)]
        )


class Raggedly:
    """Equal dtypes, and shapes but for the first dimension: the rule of `ragged_batch`."""

    def __init__(self, node: RaggedBatch) -> None:
        self._dense, self._dtype = node.dense, np.dtype(node.row_splits_dtype)

    def alone(self, form: Form) -> None:
        _stackable(form)

    def together(self, k: int, form: Form, first: Form) -> None:
        _compare(k, form, first, _but_for_length)

    def put(self, values: Sequence[Any]) -> Any:
        tree, columns = _columns(values)
        return unflatten(
            tree,
            [
                _stack(rows)
                if path in self._dense or not isinstance(rows[0], np.ndarray)
                else _ragged(rows, self._dtype)
                for path, rows in zip(paths(tree), columns, strict=True)
            ],
        )


class Sparsely:
    """One array each, not larger than a shape: the rule of `sparse_batch`."""

    def __init__(self, node: SparseBatch) -> None:
        self._shape = node.row_shape
        self._pads = [Pad(node.row_shape, 1, None)]

    def alone(self, form: Form) -> None:
        tree, leaves = form
        if tree is not LEAF or isinstance(leaves[0], type):
            shown = show_key(leaves[0]) if tree is LEAF else show_tree(tree)
            raise SpecError(f"sparse_batch takes one array for each element, not {shown}")
        shape = leaves[0][1]
        if len(shape) != len(self._shape):
            raise SpecError(
                f"the element is {show_key(leaves[0])}, of another rank than the row_shape "
                f"{list(self._shape)}"
            )
        check_fits(tree, self._pads, [shape], [show_key(leaves[0])], "row_shape")

    def together(self, k: int, form: Form, first: Form) -> None:
        _compare(k, form, first, alike)
        self.alone(form)

    def put(self, values: Sequence[Any]) -> Any:
        shapes = np.array([row.shape for row in values], np.int64)
        known = self._shape
        dense = [int(s) if want is None else want for s, want in zip(shapes.max(0), known, strict=True)]  # fmt: skip
        sizes = shapes.prod(1, dtype=np.int64)
        indices = np.empty((int(sizes.sum()), len(known) + 1), np.int64)
        entries = room((len(indices),), values[0].dtype)
        indices[:, 0] = np.repeat(np.arange(len(values)), sizes)
        stop = 0
        for row in values:
            start, stop = stop, stop + row.size
            entries[start:stop] = row.reshape(-1)
            if row.ndim == 1:
                indices[start:stop, 1] = np.arange(row.size)
            elif row.ndim:
                indices[start:stop, 1:] = np.indices(row.shape).reshape(row.ndim, -1).T
        return Sparse(indices, entries, np.array([len(values), *dense], np.int64))


def alike(key: Key, first: Key) -> bool:
    """Whether a leaf may be padded to one shape with the batch's first one."""
    if isinstance(key, type) or isinstance(first, type):
        return fits(key, first)
    return bool(key[0] == first[0]) and len(key[1]) == len(first[1])


def _but_for_length(key: Key, first: Key) -> bool:
    return alike(key, first) and _shape(key)[1:] == _shape(first)[1:]


def _compare(k: int, form: Form, first: Form, may: Callable[[Key, Key], bool]) -> None:
    (tree, leaves), (first_tree, first_leaves) = form, first
    if tree == first_tree and all(map(may, leaves, first_leaves)):
        return
    problem = misfit(k, list(leaves), tree, list(first_leaves), first_tree, fits=may)
    if problem is not None:
        raise SpecError(problem)


def _stackable(form: Form) -> None:
    problem = unstackable(form[1], form[0])
    if problem is not None:
        raise SpecError(problem)


def _shape(key: Key) -> tuple[int, ...]:
    return () if isinstance(key, type) else key[1]


def _columns(values: Sequence[Any]) -> tuple[Tree, list[Sequence[Any]]]:
    """The leaves of elements by leaf, in the order of the first element's."""
    if isinstance(values[0], np.ndarray):
        return LEAF, [values]
    first, tree = flatten(values[0])
    rows = [first]
    for value in values[1:]:
        leaves, other = flatten(value)
        if other != tree:  # the same but for the order of a dict's keys
            by_path = dict(zip(paths(other), leaves, strict=True))
            leaves = [by_path[path] for path in paths(tree)]
        rows.append(leaves)
    return tree, [list(column) for column in zip(*rows, strict=True)]


def _stack(rows: Sequence[Any]) -> np.ndarray:
    first = rows[0]
    if not isinstance(first, (np.ndarray, np.generic)):
        return objects(list(rows))
    array = room((len(rows), *first.shape), first.dtype)
    for k, row in enumerate(rows):
        array[k] = row
    return array


def _ragged(rows: Sequence[np.ndarray], dtype: np.dtype) -> Ragged:
    splits = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=splits[1:])
    if splits[-1] > np.iinfo(dtype).max:
        raise SpecError(
            f"the rows of the batch have {splits[-1]} entries, more than {dtype} counts"
        )
    values = room((int(splits[-1]), *rows[0].shape[1:]), rows[0].dtype)
    return Ragged(np.concatenate(rows, out=values), splits.astype(dtype, copy=False))


def _pad(rows: Sequence[Any], pad: Pad, side: str) -> np.ndarray:
    """Rows written into one array of the padded shape, everything else filled."""
    first = rows[0]
    if not isinstance(first, np.ndarray):
        return _stack(rows)
    if first.ndim == 1:
        largest = [max(map(len, rows))]
    else:
        largest = [max(sizes) for sizes in zip(*[row.shape for row in rows], strict=True)]
    shape = tuple(
        [
            -(-most // pad.multiple) * pad.multiple if want is None else want
            for want, most in zip(pad.shape, largest, strict=True)
        ]
    )
    array = _filled((len(rows), *shape), rows, pad.value)
    if first.ndim == 1 and side == "right":
        for k, row in enumerate(rows):
            array[k, : len(row)] = row
        return array
    for k, row in enumerate(rows):
        where: list[slice]
        if side == "right":
            where = [slice(size) for size in row.shape]
        else:
            where = [slice(most - size, None) for most, size in zip(shape, row.shape, strict=True)]
        array[k][tuple(where)] = row
    return array


def _filled(shape: tuple[int, ...], rows: Sequence[np.ndarray], value: Any) -> np.ndarray:
    dtype = rows[0].dtype
    if dtype.hasobject and dtype.names is None:
        array = np.empty(shape, dtype)
        array.fill(_empty(rows) if value is None else value)
        return array
    array = np.zeros(shape, dtype)
    if value is not None:
        array[...] = value
    return array


def _empty(rows: Sequence[np.ndarray]) -> Any:
    """The default among objects: "" among str, b"" among bytes, as the first one says."""
    first = next((row.flat[0] for row in rows if row.size), "")
    return type(first)() if isinstance(first, (str, bytes)) else None
