"""batch_by_cost: batches of elements whose total cost is limited."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.gathering import (
    Gathered,
    Gathering,
    Rule,
    check_stackable,
    compare,
    is_ref,
    sizes_known,
)
from tundish.loader.operators.padding import PaddingRule
from tundish.loader.operators.pads import Padding, check_padding
from tundish.loader.plan.checks import check_count, check_flag, check_function
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.collate import collate, fits
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.specs import array_spec, over, stacked
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.spec import (
    map_leaves,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value
    from tundish.loader.protocols.rows import Form


@dataclass(frozen=True, eq=False)
class Cost(Unary):
    """Elements, each with its cost as a note."""

    cost: Callable[..., Any]

    computing = noting = passes = distributive = inner = True
    positional = safe = False

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.noted(self, pass_)

    def noter(self, maker: Maker, up: Value) -> Value:
        cost = self.cost

        def number(*element: Any) -> int | float:
            return as_cost(cost(*element))

        return maker.asking(self, number, up)


@dataclass(frozen=True, eq=False)
class BatchByCost(Gathering):
    """Runs of elements whose total cost is limited; its input is a `Cost`."""

    max_cost: int | float
    padding: Padding | None
    max_elements: int | None
    drop_remainder: bool

    op = "batch_by_cost"

    def params(self) -> dict[str, Any]:
        given = {"max_cost": self.max_cost, "drop_remainder": self.drop_remainder}
        if self.max_elements is not None:
            given["max_elements"] = self.max_elements
        return given if self.padding is None else {**given, "pad": True, **self.padding.params()}

    @property
    def cardinality(self) -> int:
        endless = self.up.cardinality == INFINITE_CARDINALITY
        return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY

    def spec(self, below: Spec) -> Any:
        padding = self.padding

        def batch(told: Any) -> Any:
            if padding is None:
                return map_leaves(lambda leaf: stacked(leaf, None), told)
            return padding.spec_over(sizes_known(self.up, told), None)

        return over(below(self.up), batch)

    @property
    def rule(self) -> Rule:
        return StackingRule() if self.padding is None else PaddingRule(self.padding)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        up, label = builder.build(self.up, pass_), builder.context.label(self)
        return GatheredByCost(self, up, self.rule, label)

    def evaluator(self, maker: Maker) -> Value:
        assert isinstance(self.up, Cost)
        put, noted, notes = super().evaluator(maker), maker.noted(self.up), maker.context.notes

        def value(item: Any, pass_: int) -> Any:
            parts = item[1]
            if len(parts) == 1 and is_ref(parts[0]):
                noted(parts[0], pass_)
                check_cost(notes.pop(), self.max_cost)
            return put(item, pass_)

        return value


class StackingRule:
    """The rule of `batch`: equal shapes, stacked."""

    def alone(self, form: Form) -> None:
        check_stackable(form)

    def together(self, k: int, form: Form, first: Form) -> None:
        compare(k, form, first, fits)

    def put(self, values: Sequence[Any]) -> Any:
        return collate(values, len(values))


class GatheredByCost(Gathered):
    """Batches of as many items as the largest cost allows.

    Only the next item shows that a batch is full. It is held for the next batch, and the state contains the input's
    mark before it.
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
            # Take the mark right after an item: an input that raises NotReady may have moved on in part.
            self._before, self._reached = self._reached, self._up.mark()
        return item

    def _with(self, item: Any) -> float:
        """Return the cost that the batch would have with an item added."""
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
    """Raise `SpecError` if an element alone exceeds the largest cost of a batch."""
    if cost > most:
        raise SpecError(
            f"the element alone costs {cost}, and max_cost is {most}; raise max_cost, or drop such elements with filter"
        )


def as_cost(cost: Any) -> int | float:
    """Return a cost as a Python number, so that comparisons do not depend on where it was computed."""
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


class CostingMethods(Fluent):
    """The method of `Dataset` that makes batches of limited cost."""

    def batch_by_cost(
        self,
        max_cost: float,
        cost: Callable[..., Any],
        pad: bool = False,
        *,
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_multiple_of: Any = None,
        side: Literal["left", "right"] = "right",
        max_elements: int | None = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Batch consecutive elements up to a maximum total cost.

        Parameters
        ----------
        max_cost : int or float
            The maximum cost of a batch, greater than 0.
        cost : callable
            ``cost(element)`` returns the cost of an element, a number of at least 0, such as its
            number of tokens. Called as `map` calls its function, in workers if the plan has them.
        pad : bool
            False: stack elements of equal shape, as `batch` does. A batch costs the sum of the
            costs of its elements. True: pad elements, as `padded_batch` does. A batch costs the
            number of its elements times the largest of their costs, which is the size of the
            padded batch.
        padded_shapes, padding_values, pad_to_multiple_of, side
            As for `padded_batch`; only with ``pad=True``.
        max_elements : int, optional
            The maximum number of elements in a batch.
        drop_remainder : bool
            Drop the last batch: the elements gathered when the data ends.
        name : str, optional
            Ignored, as in other operators.

        Raises
        ------
        TypeError, ValueError
            An argument has a wrong type or value, or an argument for padding is given with
            ``pad=False``.

        Notes
        -----
        tf.data has no such operator; `bucket_by_sequence_length` is the closest. The order of
        elements does not change. To reduce padding, sort or bucket the elements first.

        If a single element costs more than `max_cost`, the elements before it are delivered as a
        batch, and then a `SpecError` is raised. If an element failed or does not fit the others,
        its error is raised in place of the batch. The elements gathered before that element are
        dropped (a note on the error lists them), and the next batch begins after it. A cost that
        is negative, NaN or not a number makes its element fail.

        The cost does not include the rounding up by `pad_to_multiple_of`: round up in `cost`.

        Examples
        --------
        >>> import numpy as np, tundish as td
        >>> ds = td.Dataset.range(1, 6).map(lambda n: np.full(n, n))
        >>> for batch in ds.batch_by_cost(8, len, pad=True):
        ...     print(batch.tolist())
        [[1, 0], [2, 2]]
        [[3, 3, 3, 0], [4, 4, 4, 4]]
        [[5, 5, 5, 5, 5]]
        """
        if isinstance(max_cost, (bool, np.bool_)) or not isinstance(
            max_cost, (int, float, np.integer, np.floating)
        ):
            raise TypeError(f"max_cost must be a number, not {type(max_cost).__name__}")
        if not 0 < max_cost < math.inf:
            raise ValueError(f"max_cost must be more than 0 and finite, not {max_cost}")
        check_function("cost", cost)
        if max_elements is not None:
            max_elements = check_count("max_elements", max_elements, least=1)
        padding = check_padding(padded_shapes, padding_values, pad_to_multiple_of, side)
        if check_flag("pad", pad):
            padding.check_over(array_spec(self._node))
        elif padding != Padding():
            given = ", ".join(padding.params())
            raise ValueError(f"batch_by_cost pads only with pad=True; got {given}")
        most = int(max_cost) if max_cost == int(max_cost) else float(max_cost)
        used = padding if pad else None
        costed = Cost(self._node, cost)
        return self._of(
            BatchByCost(
                costed, most, used, max_elements, check_flag("drop_remainder", drop_remainder)
            )
        )
