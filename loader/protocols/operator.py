"""The base classes of operators: nodes of a plan that know how they run.

An operator is one class. Its attributes and properties describe its kind, its methods do everything else, and code
that walks a plan calls them instead of testing types. Most have a default, which fits an operator that passes on
its input's elements.

An element's *ref* names it within its node: an int where possible (`Operator.int_refs`), else a tuple.
`Operator.children` splits it into refs of the inputs; identities, origins and replays are recursions over that
(`tundish.loader.protocols.lineage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.plan.node import walk
from tundish.loader.protocols.refs import scaled
from tundish.loader.protocols.state_parsing import MOST, check_whole, count, own, part, within
from tundish.loader.protocols.traits import Traits

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        AtHome,
        Builder,
        Elements,
        Gather,
        Identity,
        Machine,
        Maker,
        Resolver,
        Spec,
        Steps,
        Sweep,
        Value,
    )
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Positions, Refs


@dataclass(frozen=True, eq=False)
class Operator(Traits):
    """A node of a plan that knows how it runs."""

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def running(self) -> tuple[Operator, ...]:
        return self.inputs

    def spec(self, below: Spec) -> Any:
        """Return the nest of specs of its elements; None if the plan alone does not tell.

        Parameters
        ----------
        below : callable
            Returns the specs of an input's elements. Call it only if needed: if the plan does not tell them, elements
            may be computed.
        """
        return below(self.inputs[0]) if self.passes else None

    # -- refs ----------------------------------------------------------------------------------

    @property
    def numbers(self) -> int | None:
        """The number of its elements if their refs are 0, 1, ... (negative: unknown); None if they are not."""
        return None

    @property
    def int_refs(self) -> bool:
        """True if its refs are ints."""
        return self.flat and not self.fails and len(self.inputs) == 1 and self.inputs[0].int_refs

    @property
    def space(self) -> int | None:
        """The number of possible int refs; None if refs are tuples or unbounded."""
        if not self.flat or self.fails or len(self.inputs) != 1:
            return None
        return self.inputs[0].space

    @property
    def progression(self) -> tuple[int, int, Any] | None:
        """(start, step, dtype) if the element of ref i is the number ``start + i * step``; else None."""
        same = (self.choosing or self.transparent) and self.int_refs
        return self.inputs[0].progression if same else None

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        """Return the refs at positions of a positional node.

        Parameters
        ----------
        where : range or (k,) int64 ndarray
            Positions, each less than the node's cardinality.
        pass_ : int
            The number of the pass around the node.
        context : Context
            The context, which has the seeds.

        Returns
        -------
        sequence
            A range, an int64 array, or a list of tuples; as long as `where`.
        """
        return self.inputs[0].refs_at(where, pass_, context)

    def dealt_at(
        self, where: Positions, count: int, index: int, pass_: int, context: Context
    ) -> Refs:
        """Return the refs at positions of one of `count` shards: every `count`-th element, from `index`.

        An operator may deal its elements differently, as long as the shards have the same lengths.
        """
        if self.in_place:
            return self.inputs[0].dealt_at(where, count, index, pass_, context)
        return self.refs_at(scaled(where, count, index), pass_, context)

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        """Split a ref into pairs: the number of an input, and a ref of it in the same pass.

        Raises
        ------
        ValueError
            It is not a ref of this operator.
        """
        return [(0, ref)]

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        """Split a ref as `parts` does, with the pass number of each input added.

        Raises
        ------
        ValueError
            It is not a ref of this operator.
        """
        return [(which, below, pass_) for which, below in self.parts(ref)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        """Return the function that names a ref's element in states and errors; None if `origin` implies it.

        Parameters
        ----------
        of : callable
            Returns the identity function of an input's refs.
        prefix : tuple
            The origin of the element from which a `flat_map` made this plan; () for an iterator's own.
        by_number : bool
            True if a file's record is identified by its number over all files, not by file and offset.
        """
        return None

    # -- states --------------------------------------------------------------------------------
    #
    # A positional node's place is one integer. With a snapshot among its inputs, however, the same stream was run
    # step by step while the snapshot was being written, with a state nested by operator. The place of such a node is
    # therefore always dumped in the nested form, and loaded from either form.

    @property
    def nests(self) -> bool:
        """True if its positions are dumped in the nested form."""
        nodes = list(walk(self, running=True))
        return any(node.recorded for node in nodes) and not any(node.shuffles for node in nodes)

    def expand(self, at: int) -> Any:
        """Convert a position, the number of elements given so far, to its form in a state."""
        if self.nests:
            return self.nested(at)
        layout = self.layout
        return {"n": at, "layout": layout} if layout else at

    def nested(self, at: int) -> Any:
        """Convert a position to the form that the node's machine dumps."""
        return self.inputs[0].expand(at)

    def contract(self, state: Any) -> int:
        """Return the position in a state of either form."""
        most = MOST if self.cardinality < 0 else self.cardinality
        if not isinstance(state, dict):
            return check_whole(state, most=most)
        if "layout" in state:
            return self._within_layout(state, most)
        return min(most, self.position(state))

    def _within_layout(self, state: dict[str, Any], most: int) -> int:
        """Return the position in a state; raise if the layout of files has changed since it was taken."""
        if state["layout"] != self.layout:
            problem = "shuffle(None, units=) permutes the units in which files are stored (row groups, batches), but these files have other units than those of the state: continue with those files, or start again"
            raise IncompatibleCheckpointError((problem,))
        return count(state, "n", most=most)

    def position(self, state: dict[str, Any]) -> int:
        """Return the position in a state of the nested form."""
        if "n" in state:
            return count(state, "n")
        # The stage's own state around that of its input; without one, the input's state is in its place.
        if own(state, "counts") or own(state, "ahead"):
            return position_under_up(self.inputs[0], state)
        return self.inputs[0].contract(state)

    # -- files ---------------------------------------------------------------------------------

    def random_access(self) -> Callable[[int], Any] | None:
        """Return a function from an index to an element that needs no network, if there is one."""
        return None

    def resolved(self, resolver: Resolver) -> Operator:
        """Return the operator as an iterator runs it, once files have been opened."""
        return resolver.with_inputs(self)

    # -- how it is run -------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the files that exist now do not allow it to run.

        Raises
        ------
        SpecError
            It needs random access, which its input lacks.
        """

    def machine(self, builder: Builder, pass_: int) -> Machine:
        """Build the machine of one pass."""
        raise NotImplementedError

    def begun(self, context: Context, skip: int) -> Machine | None:
        """Open the machine of a whole plan at an offset, if its source supports offsets; else None."""
        return None

    def evaluator(self, maker: Maker) -> Value | None:
        """Compile the evaluator of its items; None if it passes on its input's elements."""
        return None

    def gather(self, maker: Maker) -> Gather | None:
        """Compile a function from refs to columns of its elements; None if each is made separately."""
        return maker.gather(self.inputs[0]) if self.same_refs else None

    def together(self, maker: Maker) -> tuple[Elements, int] | None:
        """Compile a function that makes several elements at once, and say how many; None if each is made on demand."""
        return maker.together(self.inputs[0]) if self.same_refs else None

    def at_home(self, top: Operator, make: Callable[[], AtHome]) -> AtHome | None:
        """Return a function that makes elements of the stage up to `top` in the consumer's process; None if workers make all."""
        return None

    @property
    def makes(self) -> bool:
        """True if it has an evaluator of its own."""
        return type(self).evaluator is not Operator.evaluator

    def hands_on(self, *, refs: bool) -> bool:
        """Return True if its evaluator, given a hand, applies it to everything it makes.

        Parameters
        ----------
        refs : bool
            True if it makes elements from refs alone; False if parts may have been computed elsewhere.
        """
        if self.makes or self.noting:
            return self.progression is not None  # numbers belong to nobody
        return self.inputs[0].hands_on(refs=refs)

    def run_again(self) -> Iterator[Any] | None:
        """Replay a pass without a network: yield elements, `BrokenElement` for errors; None if that is impossible."""
        return None

    def chained(self, context: Context, *, last: bool) -> Steps | None:
        """Return its step in a chain of generators; None if it needs its evaluator.

        Parameters
        ----------
        context : Context
            The iterator's context.
        last : bool
            True if no later operator in the chain calls a function.
        """
        return None

    def sweep(self, numbers: tuple[int, int, Any], context: Context) -> Sweep | None:
        """Return a generator of its elements over a progression of numbers; None if it needs its evaluator."""
        return None

    def noter(self, maker: Maker, up: Value) -> Value:
        """Compile the evaluator of its input's items that also notes the operator's answer about each."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class SourceNode(Operator):
    """An operator without inputs; its elements are numbered from 0."""

    @property
    def numbers(self) -> int | None:
        return self.cardinality

    @property
    def int_refs(self) -> bool:
        return True

    @property
    def space(self) -> int | None:
        return self.cardinality if self.cardinality >= 0 else None

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return where

    def contract(self, state: Any) -> int:
        return check_whole(state, most=MOST if self.cardinality < 0 else self.cardinality)


@dataclass(frozen=True, eq=False)
class Unary(Operator):
    """An operator with one input."""

    up: Operator

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.up,)

    @property
    def cardinality(self) -> int:
        return self.up.cardinality

    @property
    def positional(self) -> bool:
        return self.up.positional


class Batching:
    """The common part of operators with batches of one size: `size`, `drop_remainder`."""

    size: int
    drop_remainder: bool

    @property
    def batching(self) -> Self:
        return self

    @property
    def batch_size(self) -> int:
        return self.size

    @property
    def drops_rest(self) -> bool:
        return self.drop_remainder

    def resized(self, size: int) -> Self:
        return replace(self, size=size)  # type: ignore[type-var]  # subclasses are dataclasses


@dataclass(frozen=True, eq=False)
class Passing(Unary):
    """An operator that passes on its input's elements: it affects how they are made, or measures them."""

    transparent = elementwise = passes = contiguous = distributive = True


def position_under_up(node: Operator, state: Any) -> int:
    """Return the position of an input whose state is the entry ``up``."""
    inner = part(state, "up")
    with within("up"):
        return node.contract(inner)
