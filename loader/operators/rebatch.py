"""rebatch: the rows of batches in batches of other sizes, assembled from slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import room
from tundish.loader.plan.checks import check_count, check_flag
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.collate import Key, misfit
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Made, Ref, ref_of
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.raised import add_note, raise_from
from tundish.loader.protocols.refs import not_there, sliced
from tundish.loader.protocols.rows import Form, Row, Rows, form_of, form_of_value
from tundish.loader.protocols.specs import over
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.ragged import Ragged, Sparse
from tundish.spec import (
    ArraySpec,
    Tree,
    flatten,
    leaves_like,
    map_leaves,
    paths,
    show_key,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value


@dataclass(frozen=True, eq=False)
class Rebatch(Unary):
    """The rows of batches in batches of other sizes, used in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool

    origin = "ordinal"
    flat = False
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    dynamic = distributive = True
    safe = False

    @property
    def drops_rest(self) -> bool:
        return self.drop_remainder

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return sliced(ref)

    def spec(self, below: Spec) -> Any:
        alike = self.drop_remainder and len(set(self.sizes)) == 1
        rows = self.sizes[0] if alike else None

        def one(spec: ArraySpec) -> ArraySpec:
            return ArraySpec(spec.shape and (rows, *spec.shape[1:]), spec.dtype)

        return over(below(self.up), lambda told: map_leaves(one, told))

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Rebatched(self, builder.computed(self.up, pass_), builder.context.label(self))

    def evaluator(self, maker: Maker) -> Value:
        up, label = maker.held(self.up), maker.context.label(self)

        def value(item: Any, pass_: int) -> Any:
            if type(item) is not tuple:
                return item.value  # a whole batch was passed on
            parts = [(up(batch, pass_), first, stop) for batch, first, stop in item[1]]
            try:
                return joined(parts)
            except SpecError as error:
                raise_from(error, label)

        return value


_SHOWN = 16

Slice = tuple[Any, int, int]
"""A batch, computed or a ref, its first row and the one after the last."""


class Rebatched:
    """Batches assembled from slices of computed batches: ``(n, (slice, ...))``.

    Parameters
    ----------
    node : Rebatch
        The operator, with the sizes.
    up : Machine
        The machine that gives computed batches.
    label : str
        The node's name, for notes on errors.
    """

    def __init__(self, node: Rebatch, up: Machine, label: str) -> None:
        self._up, self._sizes, self._drop = up, node.sizes, node.drop_remainder
        self._label = label
        self._count = 0
        self._begin()
        self._item: Any = None
        self._row = self._rows = self._skip = 0
        self._key: Form | None = None
        self._before: Mark = up.mark()
        self._reached = self._before

    def _begin(self) -> None:
        self._slices: list[Slice] = []
        self._have = 0

    def next(self) -> Any:
        size = self._sizes[self._count % len(self._sizes)]
        while self._have < size:
            if self._row >= self._rows:
                try:
                    failed = self._take()
                except End:
                    if not self._have or self._drop:
                        raise
                    break
                if failed is not None:
                    return failed
                continue
            first = self._row
            self._row = min(self._rows, first + size - self._have)
            self._slices.append((self._item, first, self._row))
            self._have += self._row - first
        n, slices = self._count, tuple(self._slices)
        self._count += 1
        self._begin()
        return whole(n, slices) if len(slices) == 1 else (n, slices)

    def _take(self) -> Failure | None:
        """Go to the next batch, or return an error in its place."""
        item = self._up.next()
        # Take the mark right after an item: an input that raises NotReady may have moved on in part.
        self._before, self._reached = self._reached, self._up.mark()
        self._row = self._rows = 0
        skip, self._skip = self._skip, 0
        if type(item) is Failure:
            return self._fail(item.ref, 0, item.error)
        rows = 0
        try:
            rows, key = rows_in(form_of(item))
            if rows and self._slices:
                check_fit(self._have, key, self._key)
        except SpecError as error:
            error.add_note(f"tundish: in {self._label}, at element {item.ref}")
            return self._fail(item.ref, rows, error)
        if rows:
            self._item, self._row, self._rows, self._key = item, skip, rows, key
        return None

    def _fail(self, ref: Ref, rows: int, error: BaseException) -> Failure:
        slices = [(ref_of(item), first, stop) for item, first, stop in self._slices]
        if slices:
            shown = ", ".join(f"{a}:{b} of {x}" for x, a, b in slices[:_SHOWN])
            more = ", ..." if len(slices) > _SHOWN else ""
            note = f"tundish: {self._have} row(s) before it were given up: {shown}{more}"
            add_note(error, note)
        self._begin()
        return Failure((self._count, (*slices, (ref, 0, rows))), error)

    def mark(self) -> Mark:
        # Between two batches the state names the next one; within one, that one and the row.
        if self._skip:
            return (self._count, self._skip, self._before)
        if self._row >= self._rows:
            return (self._count, 0, self._reached)
        return (self._count, self._row, self._before)

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "row": mark[1], "up": self._up.dump(mark[2])}

    def load(self, state: Any) -> None:
        self._count, self._skip = count(state, "n"), count(state, "row")
        load_part(self._up, state)
        self._before = self._reached = self._up.mark()


def whole(n: int, slices: tuple[Slice, ...]) -> Any:
    """Return a batch that is a single slice, without copying if it is a run of rows."""
    ((item, first, stop),) = slices
    ref = (n, ((ref_of(item), first, stop),))
    kind = type(item)
    if kind is Rows:
        block, begin, _, _ = item.runs[0]
        found = Rows(n, [(block, begin + first, begin + stop, None)])
        found.ref = ref
        return found
    if first or stop < _length(item):
        return (n, slices)
    return Made(ref, item.value) if kind is Made else Row(ref, item.block, item.row)


def _length(item: Any) -> int:
    return rows_in(form_of(item))[0]


def rows_in(form: Form) -> tuple[int, Form]:
    """Return the number of rows of a batch, and the form of one row.

    Raises
    ------
    SpecError
        A leaf is not an array, or first dimensions differ.
    """
    tree, keys = form
    if _unsliced(tree):
        raise SpecError("rebatch needs arrays, not ragged or sparse ones; unbatch them first")
    sizes, rows = set(), []
    for at, key in enumerate(keys):
        if isinstance(key, type) or not key[1]:
            where = paths(tree)[at] or "the element"
            raise SpecError(
                f"rebatch needs arrays with a first dimension; {where} is {show_key(key)}"
            )
        sizes.add(key[1][0])
        rows.append((key[0], key[1][1:]))
    if len(sizes) != 1:
        raise SpecError(f"rebatch needs leaves with equal first dimensions, not {sorted(sizes)}")
    return sizes.pop(), (tree, tuple(rows))


@lru_cache(maxsize=64)
def _unsliced(tree: Tree) -> bool:
    """Return True if a nest contains arrays that cannot be sliced by row."""
    if tree is None:
        return False
    return tree[1] in (Ragged, Sparse) or any(map(_unsliced, tree[2]))


def check_fit(have: int, form: Form, first: Form | None) -> None:
    """Raise if rows cannot be in a batch with its first rows."""
    assert first is not None
    if form == first:
        return
    (tree, keys), (first_tree, first_keys) = form, first
    problem = misfit(have, list(keys), tree, list(first_keys), first_tree)
    if problem is not None:
        raise SpecError(problem)


def joined(parts: list[Slice]) -> Any:
    """Concatenate slices of batches into one batch."""
    have = 0
    first: Form | None = None
    tree: Tree = None
    columns: list[list[Any]] = []
    for value, begin, stop in parts:
        rows, form = rows_in(form_of_value(value))
        if stop > rows:
            raise not_there(f"row {stop - 1} of a batch of {rows}")
        if begin == stop:
            continue
        leaves, here = flatten(value)
        if first is None:
            first, tree, columns = form, here, [[] for _ in leaves]
        check_fit(have, form, first)
        if here != tree:  # the same but for the order of keys
            leaves = leaves_like(value, tree)
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf[begin:stop])
        have += stop - begin
    if first is None:
        raise not_there("a batch of no rows")
    if len(columns[0]) == 1:
        return unflatten(tree, [column[0] for column in columns])
    keys: tuple[Key, ...] = first[1]
    return unflatten(tree, [_stacked(*pair, have) for pair in zip(keys, columns, strict=True)])


def _stacked(key: Any, column: list[Any], rows: int) -> np.ndarray:
    # Without `out`, numpy would change a byte order other than this machine's.
    return np.concatenate(column, out=room((rows, *key[1]), key[0]))


class RebatchMethods(Fluent):
    """The method of `Dataset` that changes batch sizes."""

    def rebatch(
        self,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Deliver the rows of batches in batches of another size.

        Parameters
        ----------
        batch_size : int or sequence of int
            The number of rows in a batch, at least 1. With several numbers, batches take these sizes in turn.
        drop_remainder : bool
            True to drop a smaller last batch.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `batch_size` is neither an int nor a sequence of ints.
        ValueError
            A size is less than 1, or the sequence is empty. (tf.data delivers empty batches without end for a
            size of 0, and crashes for -1.)

        Notes
        -----
        It gives what ``unbatch().batch(batch_size)`` gives, without taking rows apart: an output batch within one
        input batch is a view of it, and others are joined from slices. All leaves of an input batch must have
        the same first dimension; otherwise it is a `SpecError` where it would have been delivered.

        An input batch that failed, or whose rows differ from the first ones of an output batch in structure, dtypes
        or shapes, is an error in place of that output batch. The rows gathered
        before it are dropped (a note lists them), and the next batch, of the same size, begins
        after the bad one. Input batches without rows are ignored. A ragged or a sparse batch is a
        `SpecError`: choose the size where it is made.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(8).batch(4).rebatch([2, 1, 1])]
        [[0, 1], [2], [3], [4, 5], [6], [7]]
        """
        return self._then(
            Rebatch, check_sizes(batch_size), check_flag("drop_remainder", drop_remainder)
        )


def check_sizes(batch_size: Any) -> tuple[int, ...]:
    """Check `batch_size` of rebatch: an int, or a sequence of ints."""
    if isinstance(batch_size, np.ndarray):
        batch_size = batch_size.tolist()
    if isinstance(batch_size, (list, tuple)):
        if not batch_size:
            raise ValueError("batch_size must hold at least one size, and the list is empty")
        return tuple(
            check_count(f"batch_size[{k}]", size, least=1) for k, size in enumerate(batch_size)
        )
    return (check_count("batch_size", batch_size, least=1),)
