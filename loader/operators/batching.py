"""batch, unbatch: operators that stack elements and split batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_flag, check_optional_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, check_workers
from tundish.loader.protocols.chunk import Chunk
from tundish.loader.protocols.collate import collate
from tundish.loader.protocols.columns import slices
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure, Made
from tundish.loader.protocols.operator import Batching, Unary
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import (
    BatchedRefs,
    Stretch,
    array_of,
    ints,
    joined,
    not_there,
    numbered,
    refs_of_rows,
    some,
    within_one,
)
from tundish.loader.protocols.specs import fixed_nbytes, over, stacked, static_spec
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.normalising import copy_element, normalise
from tundish.ragged import RaggedRows, ragged_apart
from tundish.spec import (
    ArraySpec,
    flatten,
    map_leaves,
    paths,
    spec_of,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Builder,
        Elements,
        Gather,
        Machine,
        Maker,
        Mark,
        Short,
        Spec,
        Value,
    )
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Positions, Refs

_TOGETHER_BYTES, _FEW = 1 << 19, 2
"""Batches of numbers in memory are made `_TOGETHER_BYTES` at a time, if that is at least `_FEW` batches."""


@dataclass(frozen=True, eq=False)
class Batch(Batching, Unary):
    """Batches of `size` consecutive elements, stacked."""

    size: int
    drop_remainder: bool

    origin = "ordinal"
    flat = False
    computing = joins = gathers = distributive = uncomputed = True

    def of_process(self, context: InputContext, short: Short) -> Batch:
        from tundish.loader.operators.sharing import BatchShare  # noqa: PLC0415 - few are shared

        share = BatchShare(self.up, context, self.size, short)
        return replace(self, up=share, size=share.count_of(self.size), drop_remainder=False)

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, row) for row in some(numbered(ref)[1])]

    def spec(self, below: Spec) -> Any:
        size = self.size if self.drop_remainder else None
        return over(below(self.up), lambda told: map_leaves(lambda leaf: stacked(leaf, size), told))

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        below, size = self.up.cardinality, self.size
        if isinstance(where, range) and where.step == 1:
            stop = where.stop * size
            rows: Positions = range(where.start * size, stop if below < 0 else min(stop, below))
        else:
            places = np.add.outer(array_of(where) * size, np.arange(size)).reshape(-1)
            if 0 <= below <= places.max(initial=-1):  # one batch is short: find each by itself
                return [self.refs_at(range(k, k + 1), pass_, context)[0] for k in ints(where)]
            rows = places
        batches = BatchedRefs(self.up.refs_at(rows, pass_, context), size, where)
        return batches if batches.at_once else list(batches)

    def nested(self, at: int) -> Any:
        return {"n": at, "up": self.up.expand(min(at * self.size, self.up.cardinality))}

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.batches(self, builder.computed(self.up, pass_))

    def evaluator(self, maker: Maker) -> Value:
        with maker.handing(None):  # each element is written into its row before the next is made
            up = maker.at_hand(maker.value(self.up), again=not self.positional)

        gather = maker.gather(self.up)

        def value(item: Any, pass_: int) -> Any:
            rows = item[1]
            if gather is not None and (refs := refs_of_rows(rows)) is not None:
                columns = gather(refs, pass_)
                if columns is not None:
                    return columns
            return collate((up(x, pass_) for x in rows), len(rows))

        return value

    def together(self, maker: Maker) -> tuple[Elements, int] | None:
        gather = maker.gather(self.up)
        if gather is None or not self.positional or self.up.stored is not None:
            return None
        row = fixed_nbytes(static_spec(self.up))
        most = 0 if row is None else _TOGETHER_BYTES // max(1, row * self.size)
        return (partial(_several, gather), most) if most >= _FEW else None

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
    def made_of(self) -> int:
        return self.size

    @property
    def rows_each(self) -> int | None:
        return self.size if self.drop_remainder else None

    @property
    def uniform(self) -> bool:
        count = self.up.cardinality
        whole = count == INFINITE_CARDINALITY or (count >= 0 and count % self.size == 0)
        return self.up.uniform and (self.drop_remainder or whole)


def _several(gather: Gather, refs: Any, pass_: int) -> list[Any]:
    """Return batches, each in its own arrays; the rows of consecutive batches are gathered in one call."""
    if not isinstance(refs, BatchedRefs) and (refs := _alike(refs)) is None:
        return []
    columns = gather(refs.rows, pass_)
    if columns is None:
        return []
    size, whole = refs.size, len(refs.rows) // refs.size
    leaves, tree = flatten(columns)
    separate = []
    for leaf in leaves:
        rows = leaf[: whole * size].reshape(whole, size, *leaf.shape[1:])
        batches = [batch.copy() for batch in rows]
        separate.append(batches if whole == len(refs) else [*batches, leaf[whole * size :].copy()])
    if tree is None:
        return separate[0]
    if tree[0] == "d" and not any(tree[2]):
        names = tree[1]
        return [dict(zip(names, batch)) for batch in zip(*separate)]  # noqa: B905 - it doubles the cost
    return [unflatten(tree, batch) for batch in zip(*separate, strict=True)]


def _alike(refs: Any) -> BatchedRefs | None:
    """Return the refs of the leading batches of equal size, of which the last may be shorter; None if there are none.

    Refs come as a list if they span the end of one pass over the input and the beginning of the next.
    """
    parts: list[Any] = []
    for _, rows in refs:
        part = refs_of_rows(rows)
        first = parts[0] if parts else part
        if part is None or type(part) is not type(first) or len(part) > len(first):
            break
        parts.append(part)
        if len(part) < len(first):
            break
    return BatchedRefs(joined(parts), len(parts[0]), range(len(parts))) if parts else None


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The rows of batches."""

    origin = "inside"
    flat = False
    computing = cuts = dynamic = one_by_one = distributive = True
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return within_one(ref)

    def spec(self, below: Spec) -> Any:
        told = below(self.up)
        if told is None or not all(isinstance(leaf, ArraySpec) for leaf in flatten(told)[0]):
            return None
        return map_leaves(row_spec, ragged_apart(told))

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Unbatched(builder.computed(self.up, pass_), builder.context.label(self))

    def evaluator(self, maker: Maker) -> Value:
        up, label, hand = maker.held(self.up), maker.context.label(self), maker.hand

        def value(item: Any, pass_: int) -> Any:
            try:
                rows, take = split(up(item[0], pass_))
                if not 0 <= item[1] < rows:
                    raise not_there(f"row {item[1]} of a batch of {rows}")
                return take(item[1]) if hand is None else copy_element(take(item[1]))
            except SpecError as error:
                raise_from(error, label)

        return value

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        rows = self.up.rows_each
        if below < 0 or not below:
            return below  # an infinite dataset stays infinite, as in tf.data
        return UNKNOWN_CARDINALITY if rows is None else below * rows


def row_spec(spec: Any) -> ArraySpec:
    """Return the spec of a batch's rows."""
    if isinstance(spec, RaggedRows):
        values: Any = spec.ragged.values
        return ArraySpec(values.shape and (None, *values.shape[1:]), values.dtype)
    return ArraySpec(spec.shape and spec.shape[1:], spec.dtype)


class Unbatched:
    """The rows of computed batches, as a stream."""

    def __init__(self, up: Machine, label: str) -> None:
        self._up, self._label = up, label
        self._row = self._rows = 0
        self._skip = 0
        self._failure: Failure | None = None  # the next item, if it is an error
        self._before: Mark = up.mark()
        self._reached = self._before

    def _open(self) -> None:
        """Go to the next row, or set `_failure` to the error that comes first."""
        while self._row >= self._rows and self._failure is None:
            item = self._up.next()
            # Take the mark right after an item: an input that raises NotReady may have moved on in part.
            self._before, self._reached = self._reached, self._up.mark()
            if type(item) is Failure:
                self._failure = self._failed(item.ref, item.error)
                return
            self._row = self._rows = 0
            self._value = item.value
            try:
                self._rows, self._take = split(self._value)
            except SpecError as error:
                error.add_note(f"tundish: in {self._label}, at element {item.ref}")
                self._failure = self._failed(item.ref, error)
                return
            self._ref = item.ref
            self._row, self._skip = self._skip, 0

    def _failed(self, ref: Ref, error: BaseException) -> Failure:
        return Failure((ref, -1), error)

    def next(self) -> Any:
        self._open()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            return failure
        k = self._row
        self._row += 1
        return Made((self._ref, k), self._take(k))

    def take(self, most: int) -> Chunk | None:
        """Take up to `most` rows of one batch, as slices of its columns."""
        self._open()
        first, stop = self._row, min(self._rows, self._row + most)
        columns = None if self._failure is not None else slices(self._value, first, stop)
        if columns is None:
            return None
        self._row = stop
        return Chunk(Stretch(self._ref, range(stop), first, stop), columns=columns, ours=False)

    def mark(self, left: int = 0) -> Mark:
        # Between two batches the state names the next one; within a batch, that batch and the row.
        if self._skip:
            return (self._skip, self._before)
        if self._row - left >= self._rows:
            return (0, self._reached)
        return (self._row - left, self._before)

    def dump(self, mark: Mark) -> Any:
        return {"row": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._skip = count(state, "row")
        load_part(self._up, state)
        self._before = self._reached = self._up.mark()


def split(value: Any, operator: str = "unbatch") -> tuple[int, Callable[[int], Any]]:
    """Return the number of rows of a batch, and a function that returns row k; errors name the operator.

    Raises
    ------
    SpecError
        A leaf is not an array, or the first dimensions of the leaves differ.
    """
    leaves, tree = flatten(ragged_apart(value))
    sizes = set()
    for leaf, path in zip(leaves, paths(tree), strict=True):
        if not isinstance(leaf, (np.ndarray, RaggedRows)) or leaf.ndim == 0:
            raise SpecError(
                f"{operator} needs arrays with a first dimension; {path or 'the element'} is {spec_of(leaf)}"
            )
        if isinstance(leaf, RaggedRows):
            leaf.check()
        sizes.add(len(leaf))
    if len(sizes) != 1:
        raise SpecError(f"{operator} needs leaves with equal first dimensions, not {sorted(sizes)}")
    if tree is None:
        array = leaves[0]
        return len(array), lambda k: normalise(array[k])
    return sizes.pop(), lambda k: unflatten(tree, [normalise(leaf[k]) for leaf in leaves])


class BatchingMethods(Fluent):
    """Methods of `Dataset` that stack elements and split batches."""

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
            The number of elements in a batch, at least 1.
        drop_remainder : bool
            Drop the last batch if it has fewer elements than `batch_size`.
        num_parallel_calls, deterministic, name : optional
            Accepted as in tf.data, and ignored: batches are made where their elements are made.

        Raises
        ------
        ValueError
            `batch_size` is less than 1.

        Notes
        -----
        Nothing is cast or broadcast. If the dtype or shape of an element differs from that of the
        batch's first element, a `SpecError` is raised in place of the batch. If an element failed
        before it reached `batch`, its error is raised in place of the batch. The elements gathered
        before the failed one are dropped (a note on the error lists them), and the next batch
        begins after it. str, bytes and objects become object arrays.

        The arrays of a batch made by workers are views of shared memory. They are yours until you
        drop them. Leaves of at most 64 KiB are private copies.

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
        """Split each element along its first dimension, and deliver the rows.

        Parameters
        ----------
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        All leaves of an element must have the same first dimension. If they differ, or if a leaf
        is a scalar, a `SpecError` is raised in place of the element; tf.data may raise an error
        when the pipeline is built. An element without rows delivers nothing.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(5).batch(2).unbatch()]
        [0, 1, 2, 3, 4]
        """
        return self._then(Unbatch)
