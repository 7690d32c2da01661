"""concatenate: the elements of one dataset, then those of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.chunk import renamed, taken
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Made, rewrap
from tundish.loader.protocols.lineage import of_input
from tundish.loader.protocols.operator import Operator, position_under_up
from tundish.loader.protocols.refs import array_of, ints, numbered, pieced, scaled
from tundish.loader.protocols.specs import check_alike, joined
from tundish.loader.protocols.state_parsing import count, load_part
from tundish.merging import merged

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Builder,
        Gather,
        Identity,
        Machine,
        Maker,
        Mark,
        Spec,
        Value,
    )
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.loader.protocols.rng import Path


@dataclass(frozen=True, eq=False)
class Concatenate(Operator):
    """The elements of one dataset, then those of another."""

    first: Operator
    second: Operator

    origin = "part"
    relays = True
    uniform = False  # the two may differ
    distributive = uncomputed = True

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.first, self.second)

    def spec(self, below: Spec) -> Any:
        return joined(self.inputs)

    @property
    def cardinality(self) -> int:
        counts = (self.first.cardinality, self.second.cardinality)
        if INFINITE_CARDINALITY in counts:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in counts else sum(counts)

    @property
    def positional(self) -> bool:
        first, second = self.inputs
        return first.positional and second.positional and first.cardinality != INFINITE_CARDINALITY

    @property
    def unit_sizes(self) -> np.ndarray | None:
        first, second = (up.unit_sizes for up in self.inputs)
        return None if first is None or second is None else np.concatenate([first, second])

    # If refs are ints, those of the second input are shifted by `base`; otherwise a ref is ``(0 or 1, ref)``.

    @property
    def base(self) -> int | None:
        """The offset of the second input's int refs; None if refs are tuples."""
        return self.first.space if self.second.int_refs else None

    @property
    def int_refs(self) -> bool:
        return self.base is not None

    @property
    def space(self) -> int | None:
        first, second = self.first.space, self.second.space
        return None if first is None or second is None else first + second

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        n, base = self.first.cardinality, self.base

        def one(which: int, below: Positions) -> Refs:
            refs = self.inputs[which].refs_at(below, pass_, context)
            if base is None:
                return [(which, ref) for ref in ints(refs)]
            if isinstance(refs, (range, np.ndarray)):
                return scaled(refs, 1, base if which else 0)
            return refs

        if isinstance(where, range) and len(where):
            if where[-1] < n:
                return one(0, where)
            if where[0] >= n:
                return one(1, scaled(where, 1, -n))
        array = array_of(where)
        second = array >= n
        parts = [
            (at, one(which, array[at] - which * n))
            for which, at in enumerate((np.flatnonzero(~second), np.flatnonzero(second)))
            if len(at)
        ]
        return pieced(parts, len(array))

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        base = self.base
        if base is None:
            which, below = numbered(ref)
        else:
            whole = type(ref) is int
            which, below = (0, ref) if whole and ref < base else (1, ref - base if whole else ref)
        if which not in (0, 1):
            raise ValueError(f"{self.label} has parts 0 and 1")
        return [(which, below)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        base = self.base
        if base is None:
            return None  # as of every operator with several inputs
        first, second = map(of, self.inputs)

        def identity(ref: Any, pass_: int) -> tuple[int, Path]:
            if ref < base:
                return of_input(first(ref, pass_), 0)
            return of_input(second(ref - base, pass_), 1)

        return identity

    def nested(self, at: int) -> Any:
        first = self.first.cardinality
        if at <= first:
            return {"part": 0, "up": self.first.expand(at)}
        return {"part": 1, "up": self.second.expand(at - first)}

    def position(self, state: dict[str, Any]) -> int:
        if count(state, "part", most=1):
            return self.first.cardinality + position_under_up(self.second, state)
        return position_under_up(self.first, state)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Concatenated(self, builder.build, pass_)

    def evaluator(self, maker: Maker) -> Value:
        parts = [maker.below(self, up) for up in self.inputs]
        base = self.base

        def value(item: Any, pass_: int) -> Any:
            ref: Any = item if type(item) is int or type(item) is tuple else item.ref
            if base is None:
                which, below = ref
            else:
                which, below = (0, ref) if ref < base else (1, ref - base)
            return parts[which](below if ref is item else Made(below, item.value), pass_)

        return value

    def gather(self, maker: Maker) -> Gather | None:
        first, second = map(maker.gather, self.inputs)
        base = self.base
        if base is None or first is None or second is None:
            return None

        def gather(refs: Any, pass_: int) -> Any:
            if isinstance(refs, range) and refs[-1] < base:
                return first(refs, pass_)
            refs = array_of(refs)
            of_second = refs >= base
            if not of_second.any() or of_second.all():
                return second(refs - base, pass_) if of_second[0] else first(refs, pass_)
            parts = [
                (at, up(refs[at] - shift, pass_))
                for up, shift, at in (
                    (first, 0, np.flatnonzero(~of_second)),
                    (second, base, np.flatnonzero(of_second)),
                )
            ]
            return merged(parts, len(refs))

        return gather


class Concatenated:
    """The stream of the first input, then that of the second."""

    def __init__(
        self, node: Concatenate, build: Callable[[Operator, int], Machine], pass_: int
    ) -> None:
        self._parts: tuple[Operator, ...] = node.inputs
        self._build, self._pass = build, pass_
        self._base = node.base
        self._go_to(0)

    def _go_to(self, which: int) -> None:
        self._which, base = which, self._base
        self._up = self._build(self._parts[which], self._pass)
        if base is None:
            self._wrap: Callable[[Ref], Ref] = lambda ref: (which, ref)
        else:
            self._wrap = lambda ref: ref + base * which

    def next(self) -> Any:
        while True:
            try:
                return rewrap(self._up.next(), self._wrap)
            except End:
                if self._which:
                    raise
                self._go_to(1)

    def take(self, most: int) -> Any:
        """Take up to `most` elements of one input; None if the next has to come from `next`."""
        while True:
            try:
                found = taken(self._up, most)
            except End:
                if self._which:
                    raise
                self._go_to(1)
                continue
            if found is None:
                return None
            shift = None if self._base is None else self._base * self._which
            return renamed(found, self._wrap, shift)

    def mark(self, left: int = 0) -> Mark:
        up: Any = self._up
        return (self._which, self._up, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        which, up, below = mark
        return {"part": which, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        if count(state, "part", most=1):
            self._go_to(1)
        load_part(self._up, state)


class ConcatenateMethods(Fluent):
    """The method of `Dataset` that appends another dataset."""

    def concatenate(self, dataset: Any, name: str | None = None) -> Self:
        """Append the elements of another dataset.

        Parameters
        ----------
        dataset : Dataset
            The dataset to append. It is never reached if this dataset is infinite.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `dataset` is not a `Dataset`.
        SpecError
            The elements of the two datasets differ in structure or dtype. This is checked only if
            the plan knows both specs. After a function without `output_signature` the spec is unknown.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(2).concatenate(td.Dataset.range(1))]
        [0, 1, 0]
        """
        if not isinstance(dataset, Fluent):
            what = f"{type(dataset).__name__} ({dataset!r})"
            raise TypeError(f"dataset must be a Dataset, not {what}")
        check_alike("concatenate", (self._node, dataset._node))  # noqa: SLF001 - ours
        return self._of(Concatenate(self._node, dataset._node))  # noqa: SLF001 - ours
