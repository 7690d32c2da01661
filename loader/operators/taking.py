"""The operator that ends a dataset at an element's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Unary


@dataclass(frozen=True, eq=False)
class TakeWhile(Unary):
    """The elements before the first one for which ``predicate(element)`` is false."""

    predicate: Callable[..., Any]

    op = "take_while"
    computing = dynamic = noting = passes = sequential = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False


class TakingMethods:
    """Methods of `Dataset` that end it at an element's word."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Self:
        """Keep the elements before the first one for which a function is false.

        Parameters
        ----------
        predicate : callable
            Called as `map` calls its function, in workers if the plan has them; its result is
            taken as a bool.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `predicate` is not callable.

        Notes
        -----
        An element whose function failed, or for which `predicate` fails, is an error at its place
        and does not end the dataset, as in tf.data.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(9).take_while(lambda x: x < 3)]
        [0, 1, 2]
        """
        return self._then(TakeWhile, check_callable("predicate", predicate))
