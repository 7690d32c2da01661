"""enumerate: pairs of a number and an element."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import LARGEST, check_count
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.machines import Enumerated
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.refs import Tuples, array_of, numbered
from tundish.spec import ArraySpec

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Gather, Machine, Maker, Spec, Value
    from tundish.loader.protocols.refs import Positions, Refs


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """Pairs ``(n, element)``, with n counting from `start` in each pass."""

    start: int = 0

    flat = False
    light = True

    def spec(self, below: Spec) -> Any:
        told = below(self.up)
        return None if told is None else (ArraySpec((), np.int64), told)

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, numbered(ref)[1])]

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return Tuples(where, self.up.refs_at(where, pass_, context))

    def nested(self, at: int) -> Any:
        return {"n": at, "up": self.up.expand(at)}

    def hands_on(self, *, refs: bool) -> bool:
        return refs and self.up.hands_on(refs=refs)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Enumerated(builder.build(self.up, pass_))

    def evaluator(self, maker: Maker) -> Value:
        up, start, int64 = maker.below(self, self.up), self.start, np.int64

        def value(item: Any, pass_: int) -> Any:
            return (int64(start + item[0]), up(item[1], pass_))

        return value

    def gather(self, maker: Maker) -> Gather | None:
        up = maker.gather(self.up)
        return None if up is None else partial(_numbered, up, self.start)


def _numbered(up: Gather, start: int, refs: Refs, pass_: int) -> Any:
    """Return the columns of a `Tuples` of numbers and refs of the input."""
    if not isinstance(refs, Tuples):
        return None
    numbers, below = refs.columns
    columns = up(below, pass_)
    return None if columns is None else (array_of(numbers) + start, columns)


class EnumerateMethods(Fluent):
    """The method of `Dataset` that numbers the elements."""

    def enumerate(self, start: int = 0, name: str | None = None) -> Self:
        """Pair each element with its number: ``(n, element)``, where n is an int64.

        Parameters
        ----------
        start : int
            The first number. Each pass of a `repeat` after `enumerate` starts with it again.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        An element whose function failed takes up a number, as in tf.data.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_source(["a"]).enumerate(5))
        [(np.int64(5), 'a')]
        """
        return self._then(Enumerate, check_count("start", start, least=-LARGEST - 1, most=LARGEST))
