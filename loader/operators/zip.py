"""zip: tuples or dicts of the elements of several datasets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.protocols.operator import Operator
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.refs import Tuples, numbered
from tundish.loader.protocols.state_parsing import count, load_parts
from tundish.spec import flatten, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Builder,
        Gather,
        Machine,
        Maker,
        Mark,
        Spec,
        Value,
    )
    from tundish.loader.protocols.refs import Positions, Refs


@dataclass(frozen=True, eq=False)
class Zip(Operator):
    """Tuples (or dicts) of the elements of several datasets; the shortest ends it."""

    ups: tuple[Operator, ...]
    tree: Any

    origin = "ordinal"
    flat = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return list(enumerate(numbered(ref, 1 + len(self.ups))[1:]))

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return Tuples(where, *[up.refs_at(where, pass_, context) for up in self.ups])

    def nested(self, at: int) -> Any:
        return {"n": at, "ups": [up.expand(at) for up in self.ups]}

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.ups

    def spec(self, below: Spec) -> Any:
        told = [below(up) for up in self.ups]
        return None if None in told else unflatten(self.tree, told)

    @property
    def cardinality(self) -> int:
        counts = [up.cardinality for up in self.ups]
        if UNKNOWN_CARDINALITY in counts:
            return UNKNOWN_CARDINALITY
        finite = [n for n in counts if n != INFINITE_CARDINALITY]
        return min(finite) if finite else INFINITE_CARDINALITY

    @property
    def positional(self) -> bool:
        return all(up.positional for up in self.ups)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Zipped([builder.build(up, pass_) for up in self.ups])

    def evaluator(self, maker: Maker) -> Value:
        with maker.handing(owned):  # each is kept while the next is made, the last excepted
            parts = [maker.below(self, up) for up in self.ups[:-1]]
        parts.append(maker.below(self, self.ups[-1]))
        tree = self.tree

        def value(item: Any, pass_: int) -> Any:
            if Failure in map(type, item):
                for part, x in zip(parts, item[1:], strict=True):
                    if type(x) is Failure:
                        raise x.error
                    part(x, pass_)  # its own error, if it has one, comes first
            return unflatten(
                tree, [part(x, pass_) for part, x in zip(parts, item[1:], strict=True)]
            )

        return value

    def gather(self, maker: Maker) -> Gather | None:
        ups = [gather for up in self.ups if (gather := maker.gather(up)) is not None]
        return partial(_side_by_side, ups, self.tree) if len(ups) == len(self.ups) else None


def _side_by_side(ups: list[Gather], tree: Any, refs: Refs, pass_: int) -> Any:
    """Return the columns of a `Tuples` of numbers and refs of each input."""
    if not isinstance(refs, Tuples):
        return None
    parts = [up(below, pass_) for up, below in zip(ups, refs.columns[1:], strict=True)]
    return None if any(part is None for part in parts) else unflatten(tree, parts)


class Zipped:
    """A stream of one item of each input at a time; the first input to end ends it."""

    def __init__(self, ups: list[Machine]) -> None:
        self._ups = ups
        self._count = 0
        self._held: list[Any] = []
        self._ended = False
        self._reached: Mark = None

    def next(self) -> Any:
        if self._ended:
            raise End
        held = self._held
        if not held:
            self.mark()  # items whose partners never come are in no state
        try:
            while len(held) < len(self._ups):
                held.append(self._ups[len(held)].next())
        except End:
            self._ended = True
            raise
        self._held = []
        self._reached = None
        n = self._count
        self._count += 1
        first = held[0]
        if type(first) is Failure:
            return Failure((n, *map(ref_of, held)), first.error)
        return (n, *held)  # a later input's error waits: the first may be one when it is computed

    def mark(self) -> Mark:
        if self._reached is None:
            self._reached = (self._count, [up.mark() for up in self._ups])
        return self._reached

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ups": [u.dump(m) for u, m in zip(self._ups, mark[1], strict=True)]}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        self._reached = None
        load_parts(self._ups, state)


class ZipMethods(Fluent):
    """The class method of `Dataset` that zips several."""

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Self:
        """Combine the elements of several datasets; the shortest one ends the result.

        Parameters
        ----------
        *args : Dataset, or one nest of Dataset
            The datasets. A nest gives elements of its structure; several arguments give tuples.
        datasets : nest of Dataset, optional
            The nest, in tf.data's older spelling.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            There is no dataset, or an argument contains something else.

        Notes
        -----
        If several parts of an element failed, the error of the first is raised. All datasets continue after it.

        Examples
        --------
        >>> import tundish as td
        >>> a = td.Dataset.range(2)
        >>> [tuple(map(int, x)) for x in td.Dataset.zip(a, a)]
        [(0, 0), (1, 1)]
        """
        nest = datasets if datasets is not None else (args if len(args) != 1 else args[0])
        leaves, tree = flatten(nest)
        if not leaves:
            raise TypeError("zip takes at least one dataset, not none")
        for leaf in leaves:
            if not isinstance(leaf, Fluent):
                what = f"{type(leaf).__name__} ({leaf!r})"
                raise TypeError(
                    f"zip takes datasets, or tuples, dicts and namedtuples of datasets, not {what}"
                )
        return cls._of(Zip(tuple(leaf._node for leaf in leaves), tree))  # noqa: SLF001 - ours
