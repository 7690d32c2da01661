"""The operator that makes batches of elements that do not cost too much together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from tundish.loader.operators.padding import Gathering, sizes_known
from tundish.loader.operators.pads import Padding, check_padding
from tundish.loader.plan.checks import check_callable, check_count, check_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Spec, Unary
from tundish.loader.protocols.specs import array_spec, over, stacked
from tundish.spec import map_leaves


@dataclass(frozen=True, eq=False)
class Cost(Unary):
    """The elements, each with what ``cost(element)`` says of it."""

    cost: Callable[..., Any]

    computing = noting = passes = distributive = True
    positional = safe = False


@dataclass(frozen=True, eq=False)
class BatchByCost(Gathering):
    """Runs of elements that together cost at most so much; its input is a `Cost`."""

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


class CostingMethods:
    """The method of `Dataset` that makes batches by cost."""

    _node: Operator

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

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
        """Put as many elements together, in order, as do not cost too much.

        Parameters
        ----------
        max_cost : int or float
            What a batch may cost; more than 0.
        cost : callable
            ``cost(element)``: a number of at least 0, such as how many tokens it has. Called as
            `map` calls its function, in workers if the plan has them.
        pad : bool
            False: the elements have equal shapes and are stacked as by `batch`, and the batch
            costs what they cost together. True: they are padded as by `padded_batch`, and it
            costs their number times the largest cost: what the padded batch takes up.
        padded_shapes, padding_values, pad_to_multiple_of, side
            As for `padded_batch`, with ``pad=True``.
        max_elements : int, optional
            A batch has at most so many elements.
        drop_remainder : bool
            Leave out the last batch: what was gathered when the data ended.
        name : str, optional
            Ignored, as for other operators.

        Raises
        ------
        TypeError, ValueError
            An argument that is none of these, or one for padding with ``pad=False``.

        Notes
        -----
        Ours; tf.data has nothing like it (`bucket_by_sequence_length` comes nearest). The order
        stays: sort or bucket before it for less padding. An element that alone costs more than
        `max_cost` is a `SpecError` behind the batch before it. One that does not fit the others,
        or that failed, is an error at its batch's place; those gathered before it are given up (a
        note lists them). The next batch begins behind it. A cost that is no number, is negative
        or NaN is that element's error.

        Rounding up by `pad_to_multiple_of` is not part of the cost: let `cost` round.

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
        check_callable("cost", cost)
        if max_elements is not None:
            max_elements = check_count("max_elements", max_elements, least=1)
        padding = check_padding(padded_shapes, padding_values, pad_to_multiple_of, side)
        if check_flag("pad", pad):
            padding.check_over(array_spec(self._node))
        elif padding != Padding():
            given = ", ".join(padding.params())
            raise ValueError(f"batch_by_cost pads only with pad=True; given was {given}")
        most = int(max_cost) if max_cost == int(max_cost) else float(max_cost)
        used = padding if pad else None
        costed = Cost(self._node, cost)
        return self._of(
            BatchByCost(
                costed, most, used, max_elements, check_flag("drop_remainder", drop_remainder)
            )
        )
