"""filter: the elements for which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.operators.map import caller, check_policy
from tundish.loader.plan.checks import check_count, check_function
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import DROPPED
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import SCALARS, owned
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.results import truth

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Hand, Maker, Step, Steps, Value


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """The elements for which ``predicate(element)`` is true."""

    predicate: Callable[..., Any]
    on_error: str | None = None
    retries: int = 2

    passes = True
    cardinality = UNKNOWN_CARDINALITY
    positional = safe = False
    elementwise = calls = drops = one_by_one = distributive = True

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if self.on_error != "retry":
            del given["retries"]
        return given

    @property
    def counts(self) -> bool:
        return self.on_error == "skip"

    @property
    def lenient(self) -> bool:
        return self.on_error in ("skip", "retry")

    def evaluator(self, maker: Maker) -> Value:
        up = maker.below(self, self.up)
        label = maker.context.label(self)
        tally = maker.context.watch.tally(label)
        kept: list[Any] = []

        def remember(item: Any, pass_: int) -> Any:
            kept.append(up(item, pass_))
            return kept[-1]

        call = caller(
            maker,
            self,
            self.predicate,
            remember,
            truth,
            policy=self.on_error,
            retries=self.retries,
        )

        def value(item: Any, pass_: int) -> Any:
            kept.clear()
            try:
                keep = call(item, pass_)
                if keep is DROPPED:
                    return DROPPED
                if keep:
                    return kept.pop()
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            finally:
                kept.clear()
            tally[0] += 1
            return DROPPED

        return value

    def chained(self, context: Context, *, last: bool) -> Steps | None:
        label = context.label(self)
        tally = context.watch.tally(label)

        def make(predicate: Callable[..., Any], owning: bool) -> Step:
            return _filtered(predicate, label, tally, owned if last and owning else None)

        return label, self.predicate, make


def _filtered(predicate: Callable[..., Any], label: str, tally: list[int], hand: Hand) -> Step:
    bool_, int64 = np.bool_, np.int64

    def filtered(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                keep = predicate(*x) if type(x) is tuple else predicate(x)
                if type(keep) is not bool_:
                    keep = truth(keep)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            if not keep:
                tally[0] += 1
            elif type(x) is int64 or type(x) in SCALARS:
                yield x
            elif hand is None:  # as in `_mapped`
                yield (x, x := None)[0]
            else:
                yield hand(x, x := None)

    return filtered


class FilterMethods(Fluent):
    """The method of `Dataset` that filters elements."""

    def filter(
        self,
        predicate: Callable[..., Any],
        name: str | None = None,
        *,
        on_error: str | None = None,
        retries: int = 2,
    ) -> Self:
        """Keep the elements for which `predicate` returns a true value.

        Parameters
        ----------
        predicate : callable
            Called as `map` calls its function. Its result is converted to a bool.
        name : str, optional
            Accepted as in tf.data, and ignored.
        on_error, retries
            As for `map`.

        Raises
        ------
        TypeError
            `predicate` is not callable, or needs an `rng`, which only `map` passes.

        Notes
        -----
        After `filter`, the number of elements is unknown and there is no random access. tf.data
        requires a bool tensor; here the function may return anything with a truth value.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(6).filter(lambda x: x % 2)]
        [1, 3, 5]
        """
        check_function("predicate", predicate)
        check_drawing(predicate, None, self._arguments, "predicate", seeded=False)
        retries = check_count("retries", retries, least=0)
        return self._then(Filter, predicate, check_policy(on_error), retries)
