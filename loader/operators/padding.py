"""padded_batch: elements padded to one shape and stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

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
from tundish.loader.operators.pads import Pad, Padding, check_fits, check_padding
from tundish.loader.plan.checks import check_count, check_flag
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.specs import array_spec, over, static_spec
from tundish.spec import (
    ArraySpec,
    flatten,
    leaf_key,
    show_key,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Spec
    from tundish.loader.protocols.rows import Form


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
        return {"size": self.size, "drop_remainder": self.drop_remainder, **self.padding.params()}

    def spec(self, below: Spec) -> Any:
        return over(
            below(self.up),
            lambda told: self.padding.spec_over(sizes_known(self.up, told), self.rows),
        )

    @property
    def rule(self) -> Rule:
        return PaddingRule(self.padding)


def _open(shapes: Any) -> bool:
    """Return True if padded shapes leave a size to the elements."""
    if isinstance(shapes, dict):
        return any(map(_open, shapes.values()))
    return any(map(_open, shapes)) if isinstance(shapes, (list, tuple)) else shapes in (None, -1)


class PaddingRule:
    """The rule of `padded_batch`: equal dtypes and ranks, padded to one shape."""

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
        check_stackable(form)
        pads, leaves = self._over(form), form[1]
        if self._padding.shapes is not None:
            check_fits(
                form[0], pads, [shape_of(key) for key in leaves], list(map(show_key, leaves))
            )

    def together(self, k: int, form: Form, first: Form) -> None:
        compare(k, form, first, alike)
        if self._padding.shapes is not None:
            self.alone(form)

    def put(self, values: Sequence[Any]) -> Any:
        tree, columns = columns_of(values)
        pads = self._over((tree, tuple([leaf_key(column[0]) for column in columns])))
        side = self._padding.side
        return unflatten(
            tree, [_pad(rows, pad, side) for rows, pad in zip(columns, pads, strict=True)]
        )


def _pad(rows: Sequence[Any], pad: Pad, side: str) -> np.ndarray:
    """Write rows into an array of the padded shape, and fill the rest."""
    first = rows[0]
    if not isinstance(first, np.ndarray):
        return stack(rows)
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
    """Return the default padding of objects: "" for str, b"" for bytes, by the first one's type."""
    first = next((row.flat[0] for row in rows if row.size), "")
    return type(first)() if isinstance(first, (str, bytes)) else None


class PaddingMethods(Fluent):
    """The method of `Dataset` that pads elements to one shape."""

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
            The number of elements in a batch, at least 1.
        padded_shapes : nest of shapes, optional
            A shape for each leaf, in the structure of the element. A shape is a list or tuple of sizes, or an
            int for one dimension. None or -1 as a size stands for the batch's maximum, which is also
            the default for all sizes.
        padding_values : nest of scalars, optional
            A value for each leaf, or one for all. The default is zero of the leaf's dtype, ""
            or b"" for arrays of str or bytes, and None for other objects.
        drop_remainder : bool
            True to drop a smaller last batch.
        name : str, optional
            Accepted as in tf.data, and ignored.
        pad_to_multiple_of : nest of int, optional
            Round every maximum up to a multiple of this number, which is one for all leaves, or one for each.
            Sizes that `padded_shapes` gives stay unchanged.
        side : {"right", "left"}
            The side of the padding, in every dimension.

        Raises
        ------
        TypeError, ValueError
            An argument is invalid. If the plan knows the elements' structure, dtypes and
            shapes, an argument that does not fit them is a `SpecError`.

        Notes
        -----
        Scalars, str, bytes and objects are stacked as by `batch`. The elements of a batch must have
        the same structure, and their leaves the same dtype and rank; sizes may differ. An element that differs,
        or that is larger than the padded shape, is a `SpecError` in place of the batch. The elements gathered
        before it are dropped (a note lists them), and the next batch begins after it.

        A padding value must be exact in the leaf's dtype: 0 and -1 fit every signed int and
        float, 0.5 fits no int, and 300 does not fit uint8. A Python float is rounded to the precision of a float
        dtype. tf.data refuses a Python int for an int64 leaf, and has neither `pad_to_multiple_of` nor `side`.

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
