"""Operators that put elements of different shapes together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from tundish.loader.operators.pads import Padding, check_padding
from tundish.loader.plan.checks import LARGEST, check_count, check_flag, check_items
from tundish.loader.protocols.operator import Batching, Operator, Spec, Unary
from tundish.loader.protocols.refs import numbered, some
from tundish.loader.protocols.specs import array_spec, arrays, over, stacked, static_spec
from tundish.ragged import Ragged, Sparse
from tundish.spec import ArraySpec, flatten, map_leaves, paths


@dataclass(frozen=True, eq=False)
class Gathering(Unary):
    """Runs of elements put together: what these operators have in common."""

    origin = "ordinal"
    flat = False
    positional = False
    dynamic = distributive = True
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, row) for row in some(numbered(ref)[1])]


@dataclass(frozen=True, eq=False)
class SizedGathering(Batching, Gathering):
    """Runs of `size` elements."""

    size: int
    drop_remainder: bool

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        return below // self.size if self.drop_remainder else -(-below // self.size)

    @property
    def rows(self) -> int | None:
        """How many rows every batch has; None where the last one may have fewer."""
        return self.size if self.drop_remainder else None


@dataclass(frozen=True, eq=False)
class PaddedBatch(SizedGathering):
    """Runs of elements, padded to one shape and stacked."""

    padding: Padding

    op = "padded_batch"

    @property
    def widens(self) -> bool:
        told = static_spec(self)
        if told is None:
            return _open(self.padding.shapes)
        return any(
            not isinstance(leaf, ArraySpec) or leaf.shape is None or None in leaf.shape[1:]
            for leaf in flatten(told)[0]
        )

    def params(self) -> dict[str, Any]:
        return {**_sizes(self), **self.padding.params()}

    def spec(self, below: Spec) -> Any:
        return over(
            below(self.up),
            lambda told: self.padding.spec_over(sizes_known(self.up, told), self.rows),
        )


@dataclass(frozen=True, eq=False)
class RaggedBatch(SizedGathering):
    """Runs of elements, rows of different length one behind the other."""

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
        """The paths of the leaves whose shape the plan knows: they are stacked."""
        below = array_spec(self.up)
        if below is None:
            return frozenset()
        specs, tree = flatten(below)
        return frozenset(
            path for path, spec in zip(paths(tree), specs, strict=True) if is_dense(spec)
        )


@dataclass(frozen=True, eq=False)
class SparseBatch(SizedGathering):
    """Runs of arrays, their entries with where they stand."""

    row_shape: tuple[int | None, ...]

    op = "sparse_batch"

    def spec(self, below: Spec) -> Any:
        told = arrays(below(self.up))
        if not isinstance(told, ArraySpec):
            return None
        rank = len(self.row_shape) + 1
        specs = ((None, rank), np.int64), ((None,), told.dtype), ((rank,), np.int64)
        return Sparse(*[ArraySpec(*spec) for spec in specs])  # type: ignore[arg-type]  # specs


def _open(shapes: Any) -> bool:
    """Return True if padded shapes leave a size to the elements."""
    if isinstance(shapes, dict):
        return any(map(_open, shapes.values()))
    return any(map(_open, shapes)) if isinstance(shapes, (list, tuple)) else shapes in (None, -1)


def _sizes(node: SizedGathering) -> dict[str, Any]:
    return {"size": node.size, "drop_remainder": node.drop_remainder}


def sizes_known(node: Operator, spec: Any) -> Any:
    """The spec of a node's elements without sizes that were seen but that no plan tells."""
    if static_spec(node) is not None:
        return spec
    return map_leaves(
        lambda leaf: ArraySpec(leaf.shape and (None,) * len(leaf.shape), leaf.dtype), spec
    )


def is_dense(spec: ArraySpec) -> bool:
    """Whether every element has the same shape, as far as the plan tells."""
    return spec.shape is not None and None not in spec.shape


class PaddingMethods:
    """Methods of `Dataset` that put elements of different shapes together."""

    _node: Operator

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
        *,
        pad_to_multiple_of: Any = None,
        side: Literal["left", "right"] = "right",
    ) -> Self:
        """Pad every `batch_size` elements to one shape, and stack them.

        Parameters
        ----------
        batch_size : int
            At least 1.
        padded_shapes : nest of shapes, optional
            One for each leaf, in the structure of the element; for an element that is one array,
            one shape. A shape is a list (or tuple) of sizes, or an int for one dimension. None
            or -1 for a size is the batch's maximum, and so is every size without this argument.
        padding_values : nest of scalars, optional
            One for each leaf, or one for all; None is the default: zero of the leaf's dtype, ""
            or b"" for arrays of str or bytes, None for other objects.
        drop_remainder : bool
            Leave out a last batch that is smaller.
        name : str, optional
            For tf.data's sake; ignored.
        pad_to_multiple_of : nest of int, optional
            Round every maximum up to a multiple of this: one for all leaves, or one for each.
            Sizes that `padded_shapes` names stay as they are.
        side : {"right", "left"}
            Where the padding stands, in every dimension.

        Raises
        ------
        TypeError, ValueError
            An argument that is none; where the plan knows the elements' structure, dtypes and
            shapes, also one that does not fit these (`SpecError`).

        Notes
        -----
        Scalars, str, bytes and objects are stacked as `batch` does. The elements of a batch have
        one structure, and their leaves one dtype and rank. One that differs, or is larger than
        the padded shape, is a `SpecError` at the batch's place; those gathered before it are
        given up (a note lists them), and the next batch begins behind it. Two arrays of the same
        batch may differ in each size.

        A value has to be the same number in the leaf's dtype: 0 and -1 fit every signed int and
        float, 0.5 no int, 300 no uint8. A Python float is rounded to a float's precision. tf.data
        takes no Python int for an int64 leaf, and has neither `pad_to_multiple_of` nor `side`.

        Examples
        --------
        >>> import numpy as np, tundish as td
        >>> ds = td.Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> for batch in ds.padded_batch(2, padding_values=-1):
        ...     print(batch.tolist())
        [[1, -1], [2, 2]]
        [[3, 3, 3]]
        """
        size = check_count("batch_size", batch_size, least=1)
        padding = check_padding(padded_shapes, padding_values, pad_to_multiple_of, side)
        padding.check_over(array_spec(self._node))
        return self._then(PaddedBatch, size, check_flag("drop_remainder", drop_remainder), padding)

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: Any = np.int64,
        name: str | None = None,
    ) -> Self:
        """Put every `batch_size` elements together without padding: arrays as `Ragged`.

        Parameters
        ----------
        batch_size : int
            At least 1.
        drop_remainder : bool
            Leave out a last batch that is smaller.
        row_splits_dtype : {int64, int32}
            Of ``Ragged.row_splits``.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError, ValueError
            An argument that is none of these.

        Notes
        -----
        Scalars, str, bytes and objects are stacked as `batch` does, and so, as in tf.data, are
        arrays of which the plan knows that all have one shape: those of `from_tensor_slices`,
        of ``batch(drop_remainder=True)``, of a `map` with an `output_signature`. All other arrays
        become `Ragged`, whether or not the rows of a batch happen to be equally long.

        The first dimension is ragged. The further ones are equal within a batch, or it is a
        `SpecError` (tf.data nests; `padded_batch` is for these), as is another structure, dtype
        or rank. It stands at the batch's place, and the next batch begins behind the element.

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
        """Put every `batch_size` arrays together as one `Sparse`.

        Parameters
        ----------
        batch_size : int
            At least 1.
        row_shape : int, or list or tuple of (int or None)
            The shape in which each array stands, from its first corner. None or -1 for a size is
            the batch's maximum.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError, ValueError
            An argument that is none of these.

        Notes
        -----
        All entries of an array are kept, zeros too, as in tf.data: what is left out is the room
        up to `row_shape`. An element that is no array (but a dict, a str, ...), whose dtype
        differs from the batch's first one, or that does not fit `row_shape` is a `SpecError` at
        the batch's place; the next batch begins behind it.

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
