"""Elements of different shapes put together: padded, ragged, sparse, and batches by cost."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.operators.costing import BatchByCost, Cost
from tundish.loader.operators.padding import PaddedBatch, RaggedBatch, SparseBatch
from tundish.loader.protocols.blame import give_up
from tundish.loader.protocols.forms import form_of, form_of_value
from tundish.loader.protocols.items import End, Failure, Ref
from tundish.loader.protocols.stated import count, load_part
from tundish.loader.run.operators.rules import Padded, Raggedly, Rule, Sparsely, Stacking

if TYPE_CHECKING:
    from tundish.loader.operators.padding import Gathering, SizedGathering
    from tundish.loader.protocols.forms import Form
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, MakeNoted, Maker


class Gathered:
    """Computed items that may stand together, put together as ``(n, (item, ...))``.

    Parameters
    ----------
    up : Machine
        Of computed items.
    rule : Rule
        What may stand together.
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
        """Take an item in; or the error in the batch's place, and a new batch begins."""
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
        """Raise a `SpecError` where an item cannot stand with those gathered."""
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
    """So many items each."""

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


class GatheredByCost(Gathered):
    """As many items as together cost at most so much.

    That a batch is full shows when the next item comes. It is held, and the state says where the
    input stood before it.
    """

    def __init__(self, node: BatchByCost, up: Machine, rule: Rule, label: str) -> None:
        self._most, self._limit = node.max_cost, node.max_elements
        self._padded, self._drop = node.padding is not None, node.drop_remainder
        self._held: Any = None
        super().__init__(up, rule, label)
        self._before = self._reached = up.mark()

    def _begin(self) -> None:
        super()._begin()
        self._cost: float = 0

    def next(self) -> Any:
        try:
            while self._limit is None or len(self._items) < self._limit:
                item = self._take()
                if type(item) is not Failure and self._items and self._with(item) > self._most:
                    self._held = item
                    break
                failed = self._add(item)
                if failed is not None:
                    return failed
        except End:
            self._reached = self._up.mark()
            if not self._items or self._drop:
                raise
        return self._give()

    def _take(self) -> Any:
        item, self._held = self._held, None
        if item is None:
            item = self._up.next()
            # A mark is good just after an item: one that is not ready may have moved a part of it.
            self._before, self._reached = self._reached, self._up.mark()
        return item

    def _with(self, item: Any) -> float:
        """What the batch would cost with an item."""
        cost: float = item.note
        if self._padded:
            return (len(self._items) + 1) * max(self._cost, cost)
        return self._cost + cost

    def _add(self, item: Any) -> Failure | None:
        failed = super()._add(item)
        if failed is None:
            self._cost = max(self._cost, item.note) if self._padded else self._cost + item.note
        return failed

    def _check(self, item: Any) -> None:
        check_cost(item.note, self._most)
        super()._check(item)

    def mark(self) -> Mark:
        return (self._count, self._reached if self._held is None else self._before)

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        load_part(self._up, state)
        self._before = self._reached = self._up.mark()


def check_cost(cost: float, most: float) -> None:
    """Raise a `SpecError` where an element alone costs too much."""
    if cost > most:
        raise SpecError(
            f"the element alone costs {cost}, and max_cost is {most}; "
            "raise it, or leave such elements out by filter"
        )


def rule_of(node: Gathering) -> Rule:
    """What may stand together in a node's batches."""
    if isinstance(node, RaggedBatch):
        return Raggedly(node)
    if isinstance(node, SparseBatch):
        return Sparsely(node)
    if isinstance(node, PaddedBatch):
        return Padded(node.padding)
    assert isinstance(node, BatchByCost)
    return Stacking() if node.padding is None else Padded(node.padding)


def _by_size(builder: Builder, node: SizedGathering, pass_: int) -> Machine:
    up, label = builder.computed(node.up, pass_), builder.context.label(node)
    return GatheredBySize(node, up, rule_of(node), label)


def _by_cost(builder: Builder, node: BatchByCost, pass_: int) -> Machine:
    up, label = builder.build(node.up, pass_), builder.context.label(node)
    return GatheredByCost(node, up, rule_of(node), label)


def _costed(builder: Builder, node: Cost, pass_: int) -> Machine:
    return builder.noted(node, pass_)


def _put(maker: Maker, node: Gathering) -> Value:
    up, rule = maker.held(node.up), rule_of(node)

    def value(item: Any, pass_: int) -> Any:
        rows = [up(x, pass_) for x in item[1]]
        if is_ref(item[1][0]):
            check_again(rule, rows)
        return rule.put(rows)

    return value


def _put_by_cost(maker: Maker, node: BatchByCost) -> Value:
    assert isinstance(node.up, Cost)
    put, noted, notes = _put(maker, node), maker.noted(node.up), maker.context.notes

    def value(item: Any, pass_: int) -> Any:
        parts = item[1]
        if len(parts) == 1 and is_ref(parts[0]):
            noted(parts[0], pass_)
            check_cost(notes.pop(), node.max_cost)
        return put(item, pass_)

    return value


def is_ref(item: Any) -> bool:
    """Whether a part was not computed: a restored buffer names it."""
    return type(item) is int or type(item) is tuple


def check_again(rule: Rule, rows: list[Any]) -> None:
    """Raise what was raised when these were gathered: a ref may be that of an error."""
    first = form_of_value(rows[0])
    rule.alone(first)
    for k, row in enumerate(rows[1:], 1):
        form = form_of_value(row)
        if form != first:
            rule.together(k, form, first)


def _asked(maker: Maker, node: Cost, up: Value) -> Value:
    cost = node.cost

    def number(*element: Any) -> int | float:
        return as_cost(cost(*element))

    return maker.asking(node, number, up)


def as_cost(cost: Any) -> int | float:
    """A cost as a Python number: what is compared must be the same wherever it was computed."""
    try:
        number: int | float = operator.index(cost)
    except TypeError:
        try:
            number = float(cost)
        except (TypeError, ValueError):
            raise SpecError(f"cost must return a number, not {cost!r}") from None
    if number < 0 or math.isnan(number):
        raise SpecError(f"cost must return a number of at least 0, not {cost}")
    return number


_GATHERED: tuple[type[Operator], ...] = (PaddedBatch, RaggedBatch, SparseBatch)
MACHINES: dict[type[Operator], MakeMachine] = {
    **dict.fromkeys(_GATHERED, _by_size),
    BatchByCost: _by_cost,
    Cost: _costed,
}
VALUES: dict[type[Operator], Make] = {
    **dict.fromkeys(_GATHERED, _put),
    BatchByCost: _put_by_cost,
}
NOTES: dict[type[Operator], MakeNoted] = {Cost: _asked}
