"""The common part of the operators that make padded, ragged and sparse batches, and batches by cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import room
from tundish.loader.protocols.collate import Key, fits, misfit, objects, unstackable
from tundish.loader.protocols.items import End, Failure, Ref
from tundish.loader.protocols.operator import Batching, Operator, Unary
from tundish.loader.protocols.raised import give_up
from tundish.loader.protocols.refs import numbered, some
from tundish.loader.protocols.rows import form_of, form_of_value
from tundish.loader.protocols.specs import static_spec
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.spec import (
    LEAF,
    ArraySpec,
    Tree,
    flatten,
    leaves_like,
    map_leaves,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value
    from tundish.loader.protocols.rows import Form


@dataclass(frozen=True, eq=False)
class Gathering(Unary):
    """The common part of operators that gather runs of elements in batches."""

    origin = "ordinal"
    flat = False
    positional = False
    dynamic = distributive = True
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, row) for row in some(numbered(ref)[1])]

    @property
    def rule(self) -> Rule:
        """The rule by which elements are batched."""
        raise NotImplementedError

    def evaluator(self, maker: Maker) -> Value:
        up, rule = maker.held(self.up), self.rule

        def value(item: Any, pass_: int) -> Any:
            rows = [up(x, pass_) for x in item[1]]
            if is_ref(item[1][0]):
                check_again(rule, rows)
            return rule.put(rows)

        return value


@dataclass(frozen=True, eq=False)
class SizedGathering(Batching, Gathering):
    """Batches of runs of `size` elements."""

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
        """The number of rows of every batch; None if the last one may have fewer."""
        return self.size if self.drop_remainder else None

    def machine(self, builder: Builder, pass_: int) -> Machine:
        up, label = builder.computed(self.up, pass_), builder.context.label(self)
        return GatheredBySize(self, up, self.rule, label)


class Rule(Protocol):
    """The rule by which elements are batched: which fit one batch, and how the batch is made.

    It is used twice: by the machine that gathers elements, in the consumer's process, which
    knows only their structures, dtypes and shapes; and by the evaluator that makes the batch, in a
    worker. The first use finds every misfit, so that the error comes at the misfit's place.
    """

    def alone(self, form: Form) -> None:
        """Raise `SpecError` if an element does not fit any batch."""
        ...

    def together(self, k: int, form: Form, first: Form) -> None:
        """Raise `SpecError` if element k does not fit the batch that `first` began."""
        ...

    def put(self, values: Sequence[Any]) -> Any:
        """Return the batch of elements; `together` has checked that they fit each other."""
        ...


class Gathered:
    """Computed items gathered in batches ``(n, (item, ...))``.

    Parameters
    ----------
    up : Machine
        The machine that gives computed items.
    rule : Rule
        The rule by which they are batched.
    label : str
        The node's name, for notes on errors.
    """

    def __init__(self, up: Machine, rule: Rule, label: str) -> None:
        self._up, self._rule, self._label = up, rule, label
        self._count = 0
        self._begin()

    def _begin(self) -> None:
        self._items: list[Any] = []
        self._first: Form | None = None

    def _add(self, item: Any) -> Failure | None:
        """Append an item; if it does not fit, begin a new batch and return the error that replaces the old one."""
        if type(item) is Failure:
            return self._fail(item.ref, item.error)
        try:
            self._check(item)
        except SpecError as error:
            error.add_note(f"tundish: in {self._label}, at element {item.ref}")
            return self._fail(item.ref, error)
        self._items.append(item)
        return None

    def _check(self, item: Any) -> None:
        """Raise `SpecError` if an item does not fit the gathered ones."""
        form = form_of(item)
        if self._first is None:
            self._rule.alone(form)
            self._first = form
        elif form != self._first:
            self._rule.together(len(self._items), form, self._first)

    def _fail(self, ref: Ref, error: BaseException) -> Failure:
        refs = [item.ref for item in self._items]
        give_up(error, refs)
        self._begin()
        return Failure((self._count, (*refs, ref)), error)

    def _give(self) -> Any:
        items, n = self._items, self._count
        self._begin()
        self._count += 1
        return (n, tuple(items))


class GatheredBySize(Gathered):
    """Batches of equal size."""

    def __init__(self, node: SizedGathering, up: Machine, rule: Rule, label: str) -> None:
        super().__init__(up, rule, label)
        self._size, self._drop = node.size, node.drop_remainder

    def next(self) -> Any:
        try:
            while len(self._items) < self._size:
                failed = self._add(self._up.next())
                if failed is not None:
                    return failed
        except End:
            if not self._items or self._drop:
                raise
        return self._give()

    def mark(self) -> Mark:
        return (self._count, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        load_part(self._up, state)


def is_ref(item: Any) -> bool:
    """Return True if a part is a ref from a restored buffer, and not a computed item."""
    return type(item) is int or type(item) is tuple


def check_again(rule: Rule, rows: list[Any]) -> None:
    """Check restored rows against the rule again, since a ref may name a batch that failed."""
    first = form_of_value(rows[0])
    rule.alone(first)
    for k, row in enumerate(rows[1:], 1):
        form = form_of_value(row)
        if form != first:
            rule.together(k, form, first)


def sizes_known(node: Operator, spec: Any) -> Any:
    """Return the spec of a node's elements, with sizes only if the plan gives them, not if they were observed."""
    if static_spec(node) is not None:
        return spec
    return map_leaves(
        lambda leaf: ArraySpec(leaf.shape and (None,) * len(leaf.shape), leaf.dtype), spec
    )


def alike(key: Key, first: Key) -> bool:
    """Return True if a leaf and that of the batch's first element may be padded to the same shape."""
    if isinstance(key, type) or isinstance(first, type):
        return fits(key, first)
    return bool(key[0] == first[0]) and len(key[1]) == len(first[1])


def compare(k: int, form: Form, first: Form, may: Callable[[Key, Key], bool]) -> None:
    """Raise `SpecError` if element k does not fit the batch's first one."""
    (tree, leaves), (first_tree, first_leaves) = form, first
    if tree == first_tree and all(map(may, leaves, first_leaves)):
        return
    problem = misfit(k, list(leaves), tree, list(first_leaves), first_tree, fits=may)
    if problem is not None:
        raise SpecError(problem)


def check_stackable(form: Form) -> None:
    """Raise `SpecError` if an element has a leaf that cannot be stacked."""
    problem = unstackable(form[1], form[0])
    if problem is not None:
        raise SpecError(problem)


def shape_of(key: Key) -> tuple[int, ...]:
    """Return the shape in a leaf's key."""
    return () if isinstance(key, type) else key[1]


def columns_of(values: Sequence[Any]) -> tuple[Tree, list[Sequence[Any]]]:
    """Return the elements' leaves as columns, in the order of the first element's leaves."""
    if isinstance(values[0], np.ndarray):
        return LEAF, [values]
    first, tree = flatten(values[0])
    rows = [first]
    for value in values[1:]:
        leaves, other = flatten(value)
        if other != tree:  # equal except for the order of a dict's keys
            leaves = leaves_like(value, tree)
        rows.append(leaves)
    return tree, [list(column) for column in zip(*rows, strict=True)]


def stack(rows: Sequence[Any]) -> np.ndarray:
    """Stack leaves of equal shape."""
    first = rows[0]
    if not isinstance(first, (np.ndarray, np.generic)):
        return objects(list(rows))
    array = room((len(rows), *first.shape), first.dtype)
    for k, row in enumerate(rows):
        array[k] = row
    return array
