"""Operators that put elements together and take them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.operators.choosing import Shard, Skip, Take
from tundish.loader.operators.repeat import Repeat
from tundish.loader.operators.sharing import BatchShare
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.operators.sources import Slices, Tensors
from tundish.loader.plan.checks import check_count, check_flag, check_optional_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, check_workers
from tundish.loader.protocols.operator import Batching, Operator, Passing, Short, Unary
from tundish.loader.protocols.refs import ints, numbered, some, within_one
from tundish.loader.protocols.specs import over, stacked
from tundish.ragged import RaggedRows, ragged_apart
from tundish.spec import ArraySpec, flatten, map_leaves

if TYPE_CHECKING:
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Spec
    from tundish.loader.protocols.refs import Positions, Refs

_SAME = (Passing, Repeat, Shard, Shuffle, Skip, Take)


@dataclass(frozen=True, eq=False)
class Batch(Batching, Unary):
    """Runs of `size` elements, stacked."""

    size: int
    drop_remainder: bool

    origin = "ordinal"
    flat = False
    computing = joins = distributive = True

    def of_process(self, context: InputContext, short: Short) -> Batch:
        share = BatchShare(self.up, context, self.size, short)
        return replace(self, up=share, size=share.count_of(self.size), drop_remainder=False)

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, row) for row in some(numbered(ref)[1])]

    def spec(self, below: Spec) -> Any:
        size = self.size if self.drop_remainder else None
        return over(below(self.up), lambda told: map_leaves(lambda leaf: stacked(leaf, size), told))

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        below, size = self.up.cardinality, self.size
        found = []
        for k in ints(where):
            stop = (k + 1) * size if below < 0 else min((k + 1) * size, below)
            rows = self.up.refs_at(range(k * size, stop), pass_, context)
            found.append((k, tuple(ints(rows))))
        return found

    def nested(self, at: int) -> Any:
        return {"n": at, "up": self.up.expand(min(at * self.size, self.up.cardinality))}

    @property
    def dynamic(self) -> bool:
        return not self.positional

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        return below // self.size if self.drop_remainder else -(-below // self.size)

    @property
    def positional(self) -> bool:
        return self.up.positional and self.safe

    @property
    def safe(self) -> bool:
        return self.up.safe and self.up.uniform

    @property
    def uniform(self) -> bool:
        count = self.up.cardinality
        whole = count == INFINITE_CARDINALITY or (count >= 0 and count % self.size == 0)
        return self.up.uniform and (self.drop_remainder or whole)


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The rows of batches."""

    origin = "inside"
    flat = False
    computing = dynamic = one_by_one = distributive = True
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return within_one(ref)

    def spec(self, below: Spec) -> Any:
        told = below(self.up)
        if told is None or not all(isinstance(leaf, ArraySpec) for leaf in flatten(told)[0]):
            return None
        return map_leaves(row_spec, ragged_apart(told))

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        rows = rows_of(self.up)
        if below < 0 or not below:
            return below  # an endless one stays so, as in tf.data
        return UNKNOWN_CARDINALITY if rows is None else below * rows


def rows_of(node: Operator) -> int | None:
    """How many rows each element has, where the plan tells."""
    while isinstance(node, _SAME):
        node = node.up
    if isinstance(node, Batch):
        return node.size if node.drop_remainder else None
    if isinstance(node, Tensors):
        element = node.value
    elif isinstance(node, Slices):
        element = map_leaves(lambda array: np.broadcast_to(0, array.shape[1:]), node.arrays)
    else:
        return None
    leaves = flatten(ragged_apart(element))[0]
    sizes = {len(leaf) if getattr(leaf, "ndim", 0) else None for leaf in leaves}
    return sizes.pop() if len(sizes) == 1 else None  # else each element is an error


def row_spec(spec: Any) -> ArraySpec:
    """Return the spec of a batch's rows."""
    if isinstance(spec, RaggedRows):
        values: Any = spec.ragged.values
        return ArraySpec(values.shape and (None, *values.shape[1:]), values.dtype)
    return ArraySpec(spec.shape and spec.shape[1:], spec.dtype)


class BatchingMethods:
    """Methods of `Dataset` that put elements together and take them apart."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Stack every `batch_size` elements into arrays with a new first dimension.

        Parameters
        ----------
        batch_size : int
            At least 1.
        drop_remainder : bool
            Leave out a last batch that is smaller.
        num_parallel_calls, deterministic, name : optional
            For tf.data's sake; batches are made where the elements are made.

        Raises
        ------
        ValueError
            `batch_size` is below 1.

        Notes
        -----
        Nothing is cast or broadcast: an element whose dtype or shape differs from the batch's
        first one is a `SpecError` at that place. An element whose function failed raises its
        error at the batch's place; the elements gathered before it are given up (a note lists
        them) and the next batch begins behind it. str, bytes and objects give object arrays.

        The arrays of a batch made by workers are views of shared memory, yours until you drop
        them. Leaves of at most 64 KiB are private copies.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]
        """
        size = check_count("batch_size", batch_size, least=1)
        if num_parallel_calls is not None:
            check_workers("num_parallel_calls", num_parallel_calls)
        check_optional_flag("deterministic", deterministic)
        return self._then(Batch, size, check_flag("drop_remainder", drop_remainder))

    def unbatch(self, name: str | None = None) -> Self:
        """Deliver the rows of each element, all of whose leaves share their first dimension.

        Parameters
        ----------
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        An element without rows gives none. A scalar, or leaves whose first dimensions differ, are
        a `SpecError` at that place; tf.data may know it when the pipeline is built.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(5).batch(2).unbatch()]
        [0, 1, 2, 3, 4]
        """
        return self._then(Unbatch)
