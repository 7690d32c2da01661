"""repeat: the elements several times, or without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import check_count
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.chunk import at_once, renamed, taken
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Made, rewrap
from tundish.loader.protocols.operator import Operator, Unary, position_under_up
from tundish.loader.protocols.refs import (
    Tuples,
    array_of,
    joined,
    numbered,
    pieced,
    scaled,
)
from tundish.loader.protocols.state_parsing import count, flag, load_part
from tundish.merging import merged

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Builder,
        Elements,
        Gather,
        Identity,
        Machine,
        Maker,
        Mark,
        Value,
    )
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Positions, Refs


_ENDLESS_RADIX = 2**32


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """The elements of its input `count` times; None is without end."""

    count: int | None

    passes = relays = choosing = contiguous = distributive = True
    same_refs = False

    @property
    def reorders(self) -> bool:
        return self.count != 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count == 0 or below == 0:
            return 0
        if self.count is None:
            return INFINITE_CARDINALITY
        return below * self.count if below >= 0 else below

    @property
    def positional(self) -> bool:
        return self.up.positional and self.up.cardinality != INFINITE_CARDINALITY

    # An int ref is ``pass * base + ref``, a tuple ``(pass, ref)``: `base` is the space of the input's refs.
    # Around the input the number of the pass is ``pass * radix + pass here``.

    @property
    def base(self) -> int | None:
        """The distance of int refs from one pass to the next; None if refs are tuples."""
        return self.up.space

    @property
    def radix(self) -> int:
        """The radix of this node's digit in the number of a pass."""
        return _ENDLESS_RADIX if self.count is None else max(1, self.count)

    @property
    def int_refs(self) -> bool:
        return self.base is not None

    @property
    def space(self) -> int | None:
        return None if self.base is None or self.count is None else self.base * self.count

    @property
    def progression(self) -> None:
        return None

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        n, base, radix = self.up.cardinality, self.base, self.radix

        def one(p: int, below: Positions) -> Refs:
            refs = self.up.refs_at(below, pass_ * radix + p, context)
            if base is None:
                return Tuples(np.full(len(refs), p), refs)
            if isinstance(refs, (range, np.ndarray)):
                return scaled(refs, 1, p * base)
            return [p * base + ref for ref in refs]

        if isinstance(where, range) and where.step == 1 and len(where):
            p, first = divmod(where.start, n)
            if first + len(where) <= n:
                return one(p, range(first, first + len(where)))
            starts = [where.start, *range((p + 1) * n, where.stop, n)]
            each = [range(*ends) for ends in pairwise([*starts, where.stop])]
            return joined([self.refs_at(one_pass, pass_, context) for one_pass in each])
        array = array_of(where)
        passes = array // n
        parts = [
            (at := np.flatnonzero(passes == k), one(k, array[at] - k * n))
            for k in np.unique(passes).tolist()
        ]
        return pieced(parts, len(array))

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        return [(0, split_ref(ref, self.base)[1])]

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        p, below = split_ref(ref, self.base)
        if not 0 <= p < self.radix:
            raise ValueError(f"{self.label} has passes 0 to {self.radix - 1}")
        return [(0, below, pass_ * self.radix + p)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity:
        up, base, radix = of(self.up), self.base, self.radix
        if base is None:
            return lambda ref, pass_: up(ref[1], pass_ * radix + ref[0])
        return lambda ref, pass_: up(ref % base, pass_ * radix + ref // base)

    def nested(self, at: int) -> Any:
        whole = self.up.cardinality
        pass_, within = divmod(at, whole) if whole else (0, 0)
        if at and not within:
            pass_, within = pass_ - 1, whole
        return {"pass": pass_, "some": within > 0, "up": self.up.expand(within)}

    def position(self, state: dict[str, Any]) -> int:
        return count(state, "pass") * self.up.cardinality + position_under_up(self.up, state)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.repeated(self, pass_)

    def evaluator(self, maker: Maker) -> Value:
        up, base, digits = maker.below(self, self.up), self.base, self.radix

        def value(item: Any, pass_: int) -> Any:
            ref: Any = item if type(item) is int or type(item) is tuple else item.ref
            p, below = ref if base is None else divmod(ref, base)
            return up(below if ref is item else Made(below, item.value), pass_ * digits + p)

        return value

    def together(self, maker: Maker) -> tuple[Elements, int] | None:
        below = maker.together(self.up)
        if below is None or self.base is not None:
            return None
        up, most = below
        digits = self.radix

        def elements(refs: Any, pass_: int) -> Any:
            refs = refs if isinstance(refs, Tuples) else Tuples(*zip(*refs, strict=True))
            passes, rest = refs.columns
            p, count = int(passes[0]), len(refs)
            if passes[-1] != p:  # the others come with the next call
                count = next(k for k, each in enumerate(passes) if each != p)
            return up(rest[:count], pass_ * digits + p)

        return elements, most

    def gather(self, maker: Maker) -> Gather | None:
        up, base, digits = maker.gather(self.up), self.base, self.radix
        if up is None or not base:
            return None

        def gather(refs: Any, pass_: int) -> Any:
            if isinstance(refs, range) and (p := refs[0] // base) == refs[-1] // base:
                return up(scaled(refs, 1, -p * base), pass_ * digits + p)
            passes, below = np.divmod(array_of(refs), base)
            if (passes == passes[0]).all():
                return up(below, pass_ * digits + int(passes[0]))
            parts = [
                (at := np.flatnonzero(passes == p), up(below[at], pass_ * digits + int(p)))
                for p in np.unique(passes)
            ]
            return merged(parts, len(below))

        return gather


def split_ref(ref: Ref, base: int | None) -> tuple[int, Ref]:
    """Split a ref of a `Repeat` into its pass and the input's ref."""
    if base is None:
        p, below = numbered(ref)
        return p, below
    if type(ref) is int and base:
        return divmod(ref, base)
    raise ValueError("it must be an integer")


class Repeated:
    """Pass after pass of the input. An empty pass ends an endless repetition, which might never give an element."""

    def __init__(self, node: Repeat, build: Callable[[Operator, int], Machine], pass_: int) -> None:
        self._node, self._build, self._pass = node, build, pass_
        self._base, self._radix = node.base, node.radix
        self._p = 0
        self._some = False
        self._open()

    def _open(self) -> None:
        self._set(self._build(self._node.up, self._pass * self._radix + self._p))

    def _set(self, up: Machine) -> None:
        self._up = up
        p, base = self._p, self._base
        self._shift = None if base is None else p * base
        if base is None:
            self._wrap: Callable[[Ref], Ref] = lambda ref: (p, ref)
        else:
            self._wrap = lambda ref: p * base + ref

    def next(self) -> Any:
        while self._goes_on():
            try:
                item = self._up.next()
            except End:
                self._open_next()
                continue
            self._some = True
            return rewrap(item, self._wrap)
        raise End

    def take(self, most: int) -> Any:
        """Take up to `most` elements of one pass; None if the next has to come from `next`."""
        while self._goes_on():
            try:
                found = taken(self._up, most)
            except End:
                self._open_next()
                continue
            if found is None:
                return None
            self._some = True
            return renamed(found, self._wrap, self._shift)
        raise End

    def _goes_on(self) -> bool:
        count = self._node.count
        return count is None or self._p < count

    def _open_next(self) -> None:
        """Start the next pass, or raise End if this one was the last, or was empty and no other need be different."""
        count = self._node.count
        if count is not None and self._p + 1 >= count:
            raise End
        if not self._some and (count is None or self._node.up.cardinality == 0):
            raise End
        self._p += 1
        self._some = False
        self._open()

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        return at_once(self._up)

    def mark(self, left: int = 0) -> Mark:
        up: Any = self._up
        return (self._p, self._some, self._up, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        p, some, up, below = mark
        return {"pass": p, "some": some, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        self._p = count(state, "pass", most=self._radix - 1)
        self._some = flag(state, "some")
        self._open()
        load_part(self._up, state)


class RepeatMethods(Fluent):
    """The method of `Dataset` that repeats it."""

    def repeat(self, count: int | None = None, name: str | None = None) -> Self:
        """Deliver the elements several times, or without end.

        Parameters
        ----------
        count : int, optional
            The number of passes; None or a negative number means without end.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        In each pass shuffles before it draw another order, and augmentations draw other numbers. As in tf.data,
        an empty pass ends a repetition without end, so an empty dataset stays empty. A repetition with a `count`
        continues with the next pass.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(2).repeat(2)]
        [0, 1, 0, 1]
        """
        if count is not None:
            count = check_count("count", count)
        return self._then(Repeat, None if count is None or count < 0 else count)
