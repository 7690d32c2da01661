"""take_while: the elements before the first one for which a predicate is false."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.plan.checks import check_function
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.results import truth
from tundish.loader.protocols.state_parsing import flag, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value


@dataclass(frozen=True, eq=False)
class TakeWhile(Unary):
    """The elements before the first one for which ``predicate(element)`` is false."""

    predicate: Callable[..., Any]

    op = "take_while"
    computing = dynamic = noting = passes = sequential = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return TakenWhile(builder.noted(self, pass_))

    def noter(self, maker: Maker, up: Value) -> Value:
        predicate = self.predicate

        def verdict(*element: Any) -> bool:
            return truth(predicate(*element))

        return maker.asking(self, verdict, up)


class TakenWhile:
    """Computed items before the first one whose note is false; later ones are not requested."""

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        item = self._up.next()
        if type(item) is not Failure and not item.note:
            self._ended = True
            raise End
        return item

    def mark(self) -> Mark:
        return (self._ended, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"ended": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._ended = flag(state, "ended")
        load_part(self._up, state)


class TakingMethods(Fluent):
    """The method of `Dataset` that ends it by a predicate."""

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Self:
        """Keep the elements before the first one for which a function is false.

        Parameters
        ----------
        predicate : callable
            Called as `map` calls its function, in workers if the plan has them. Its result is
            converted to a bool.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `predicate` is not callable.

        Notes
        -----
        An element that failed, or for which `predicate` fails, is delivered as an error
        and does not end the dataset, as in tf.data.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(9).take_while(lambda x: x < 3)]
        [0, 1, 2]
        """
        return self._then(TakeWhile, check_function("predicate", predicate))
