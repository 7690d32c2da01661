"""ragged_batch, sparse_batch: batches of elements of different shapes without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import room
from tundish.loader.operators.gathering import (
    Rule,
    SizedGathering,
    alike,
    check_stackable,
    columns_of,
    compare,
    shape_of,
    sizes_known,
    stack,
)
from tundish.loader.operators.pads import Pad, check_fits
from tundish.loader.plan.checks import LARGEST, check_count, check_flag, check_items
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.specs import array_spec, arrays, over, stacked
from tundish.ragged import Ragged, Sparse
from tundish.spec import (
    LEAF,
    ArraySpec,
    flatten,
    map_leaves,
    paths,
    show_key,
    show_tree,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.collate import Key
    from tundish.loader.protocols.contracts import Spec
    from tundish.loader.protocols.rows import Form


@dataclass(frozen=True, eq=False)
class RaggedBatch(SizedGathering):
    """Batches of runs of elements, with rows of different lengths concatenated."""

    row_splits_dtype: Literal["int32", "int64"]

    op = "ragged_batch"

    def spec(self, below: Spec) -> Any:
        def one(spec: ArraySpec) -> Any:
            if spec.shape is None:
                return ArraySpec(None, spec.dtype)
            if not spec.shape or is_dense(spec):
                return stacked(spec, self.rows)
            splits = None if self.rows is None else self.rows + 1
            return Ragged(
                ArraySpec((None, *spec.shape[1:]), spec.dtype),  # type: ignore[arg-type]  # a nest of specs
                ArraySpec((splits,), self.row_splits_dtype),  # type: ignore[arg-type]
            )

        return over(below(self.up), lambda told: map_leaves(one, sizes_known(self.up, told)))

    @property
    def dense(self) -> frozenset[str]:
        """The paths of the leaves whose shape the plan knows; they are stacked."""
        below = array_spec(self.up)
        if below is None:
            return frozenset()
        specs, tree = flatten(below)
        return frozenset(
            path for path, spec in zip(paths(tree), specs, strict=True) if is_dense(spec)
        )

    @property
    def rule(self) -> Rule:
        return RaggedRule(self)


def is_dense(spec: ArraySpec) -> bool:
    """Return True if every element has the same shape, as far as the plan tells."""
    return spec.shape is not None and None not in spec.shape


class RaggedRule:
    """The rule of `ragged_batch`: equal dtypes, and equal shapes except for the first dimension."""

    def __init__(self, node: RaggedBatch) -> None:
        self._dense, self._dtype = node.dense, np.dtype(node.row_splits_dtype)

    def alone(self, form: Form) -> None:
        check_stackable(form)

    def together(self, k: int, form: Form, first: Form) -> None:
        compare(k, form, first, _but_for_length)

    def put(self, values: Sequence[Any]) -> Any:
        tree, columns = columns_of(values)
        return unflatten(
            tree,
            [
                stack(rows)
                if path in self._dense or not isinstance(rows[0], np.ndarray)
                else _ragged(rows, self._dtype)
                for path, rows in zip(paths(tree), columns, strict=True)
            ],
        )


def _but_for_length(key: Key, first: Key) -> bool:
    return alike(key, first) and shape_of(key)[1:] == shape_of(first)[1:]


def _ragged(rows: Sequence[np.ndarray], dtype: np.dtype) -> Ragged:
    splits = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=splits[1:])
    if splits[-1] > np.iinfo(dtype).max:
        raise SpecError(
            f"the rows of the batch have {splits[-1]} entries, more than {dtype} counts"
        )
    values = room((int(splits[-1]), *rows[0].shape[1:]), rows[0].dtype)
    return Ragged(np.concatenate(rows, out=values), splits.astype(dtype, copy=False))


@dataclass(frozen=True, eq=False)
class SparseBatch(SizedGathering):
    """Batches of runs of arrays, as entries with their indices."""

    row_shape: tuple[int | None, ...]

    op = "sparse_batch"

    def spec(self, below: Spec) -> Any:
        told = arrays(below(self.up))
        if not isinstance(told, ArraySpec):
            return None
        rank = len(self.row_shape) + 1
        specs = ((None, rank), np.int64), ((None,), told.dtype), ((rank,), np.int64)
        return Sparse(*[ArraySpec(*spec) for spec in specs])  # type: ignore[arg-type]  # specs

    @property
    def rule(self) -> Rule:
        return SparseRule(self)


class SparseRule:
    """The rule of `sparse_batch`: single arrays that fit a shape."""

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
        compare(k, form, first, alike)
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


class RaggedMethods(Fluent):
    """Methods of `Dataset` that batch elements of different shapes without padding."""

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = np.int64,
        name: str | None = None,
    ) -> Self:
        """Batch elements without padding; arrays become a `Ragged`.

        Parameters
        ----------
        batch_size : int
            The number of elements in a batch, at least 1.
        drop_remainder : bool
            True to drop a smaller last batch.
        row_splits_dtype : {int64, int32}
            The dtype of ``Ragged.row_splits``.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError, ValueError
            An argument is of another type, or out of its range.

        Notes
        -----
        Scalars, str, bytes and objects are stacked as by `batch`. So are, as in tf.data, arrays that the plan knows
        to have one shape: those of `from_tensor_slices`, of ``batch(drop_remainder=True)``, and of a `map` with
        an `output_signature`. All other arrays become a `Ragged`, even if the rows of a batch happen to be equally
        long.

        Only the first dimension is ragged. The other dimensions must be equal within a batch; use `padded_batch`
        where they are not (tf.data nests ragged tensors). An element that differs in these dimensions, in
        structure, dtype or rank, is a `SpecError` in place of the batch, and the next batch begins after it.

        Examples
        --------
        >>> import numpy as np, tundish as td
        >>> for batch in td.Dataset.range(3).map(np.arange).ragged_batch(2):
        ...     print(batch.to_list(), batch.row_splits)
        [[], [0]] [0 0 1]
        [[0, 1]] [0 2]
        """
        size = check_count("batch_size", batch_size, least=1)
        dtype = _splits_dtype(row_splits_dtype)
        return self._then(RaggedBatch, size, check_flag("drop_remainder", drop_remainder), dtype)

    def sparse_batch(self, batch_size: int, row_shape: Any, name: str | None = None) -> Self:
        """Batch arrays as one `Sparse`.

        Parameters
        ----------
        batch_size : int
            The number of arrays in a batch, at least 1.
        row_shape : int, or list or tuple of (int or None)
            The shape of a row; each array fills it from index 0 on. None or -1 as a size stands for
            the batch's maximum.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError, ValueError
            An argument is of another type, or out of its range.

        Notes
        -----
        All entries of an array are stored, zeros too, as in tf.data; only the rest of `row_shape` is
        not. An element that is not an array (a dict or a str, for example), that has another dtype than the first
        one of the batch, or that does not fit `row_shape` is a `SpecError` in place of
        the batch, and the next batch begins after it.

        Examples
        --------
        >>> import numpy as np, tundish as td
        >>> (batch,) = td.Dataset.range(1, 3).map(lambda n: np.full(n, n)).sparse_batch(2, [4])
        >>> batch.indices.tolist(), batch.values, batch.dense_shape
        ([[0, 0], [1, 0], [1, 1]], array([1, 2, 2]), array([2, 4]))
        """
        size = check_count("batch_size", batch_size, least=1)
        one = isinstance(row_shape, (int, np.integer))
        if row_shape is None:
            raise TypeError("row_shape must be a shape, not None; a size in it may be None")
        sizes = [row_shape] if one else check_items("row_shape", row_shape, "sizes")
        shape = tuple(map(_row_size, sizes))
        return self._then(SparseBatch, size, False, shape)


def _splits_dtype(given: Any) -> str:
    try:
        dtype = str(np.dtype(given))
    except (TypeError, ValueError):
        raise TypeError(f"row_splits_dtype must be int32 or int64, not {given!r}") from None
    if given is None or dtype not in ("int32", "int64"):
        raise ValueError(f"row_splits_dtype must be int32 or int64, not {given!r}")
    return dtype


def _row_size(given: Any) -> int | None:
    if given is None:
        return None
    size = check_count("a size of row_shape", given, least=-1, most=LARGEST)
    return None if size == -1 else size
