"""Operators: nodes of a plan that know how they are run, and what runs them.

An operator is one class. Its attributes and properties say what kind it is; its methods say everything
else, and whoever walks a plan asks them instead of asking for its type. Most have a default, which fits an
operator that passes its input's elements on.

An element's *ref* names it within its node: an int where that is possible (`Operator.int_refs`), else a
tuple. `Operator.children` takes it apart into refs of the inputs; identities, origins and replays are
recursions over that (`tundish.loader.protocols.lineage`).

A *machine* is the stream of one pass of a node. It gives *items* (`tundish.loader.protocols.items`),
computed or not, and never calls a user's function. The same machines run in the consumer's process with
workers and without, so the order cannot depend on workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from tundish.loader.plan.node import Node, walk
from tundish.loader.protocols.stated import MOST, check_whole, count, own, part, within

if TYPE_CHECKING:
    from tundish.formats.files import RecordFiles
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.loader.protocols.rng import Path
    from tundish.loader.watch.watch import StageMeter

Mark = Any

Value = Callable[[Any, int], Any]
"""``value(item, pass)``: the element, or `DROPPED`; raises what the user's function raises."""

Hand = Callable[..., Any] | None
"""How an element that was just made is handed on: `lent`, `owned`, or as it is."""

Spec = Callable[["Operator"], Any]
"""``spec(node)``: the nest of specs of a node's elements, or None."""

Step = Callable[[Iterator[Any]], Iterator[Any]]
"""A generator of an operator's elements, given those of its input."""

Steps = tuple[str, Callable[..., Any], Callable[[Callable[..., Any], bool], Step]]
"""An operator's label, the user's function, and ``make(function, owning)``: the step of that function, or of one
that is timed, for a stage that owns what it gives or lends it."""

Sweep = Callable[[range], Iterator[Any]]
"""``sweep(refs)``: a generator of the elements of a whole range of refs."""

Identity = Callable[[Any, int], "tuple[int, Path]"]
"""``identity(ref, pass)``: the number of the pass and the origin, which key an element's randomness."""


Short = Literal["keep", "drop", "error"]
"""What is done with a last batch that is not whole."""


class Machine(Protocol):
    """The stream of one pass of a node."""

    def next(self) -> Any:
        """Return the next item.

        Raises
        ------
        End
            There is none.
        NotReady
            A worker has to answer first. Ask again later; what was gathered so far is kept.
        """
        ...

    def mark(self) -> Mark:
        """Return the place just after the last item: immutable, good while the machine runs ahead."""
        ...

    def dump(self, mark: Mark) -> Any:
        """Return a mark as JSON, nested by operator; nothing in it depends on workers or stages."""
        ...

    def load(self, state: Any) -> None:
        """Bring a new machine to a place that was dumped."""
        ...


class Forgettable(Protocol):
    """A machine that is told when nobody will ask it again."""

    def forget(self) -> None:
        """Release what is kept for being asked again."""
        ...


class Builder(Protocol):
    """Builds the machines of a plan; it decides where elements are computed."""

    context: Context
    ahead: bool
    """True if streams are asked before those who need them are."""

    def keeps(self, machine: Forgettable) -> None:
        """Have a machine told when nobody will ask it again."""
        ...

    def build(self, node: Operator, pass_: int) -> Machine:
        """Build the stream of a node; its items may still have to be computed."""
        ...

    def computed(self, node: Operator, pass_: int) -> Machine:
        """Build the stream of a node with all items computed."""
        ...

    def noted(self, node: Unary, pass_: int) -> Machine:
        """Build the computed stream of a noting node's input, each item with its note."""
        ...

    def repeated(self, node: Any, pass_: int) -> Machine:
        """Build the stream of a `Repeat`; where there are workers its next pass may begin early."""
        ...

    def meter(self, node: Operator) -> StageMeter:
        """Make the meter of a node whose elements are made as the consumer asks for them."""
        ...

    def recorded(self, node: Unary, pass_: int) -> Machine:
        """Build the stream of a snapshot that is not complete: it is written as it passes."""
        ...

    def beside(self, plan: Operator, pass_: int) -> Machine:
        """Build the computed stream of a plan of its own, in this process."""
        ...

    def cache_limit(self) -> int:
        """Return the number of bytes that a cache may keep."""
        ...

    def batches(self, node: Any, up: Machine) -> Machine:
        """Build the machine that stacks computed items as a `Batch` says."""
        ...

    def flattened(self, node: Any, base: Operator, pass_: int) -> Machine:
        """Build the machine of the elements of a `FlatMap`'s inner datasets, which are made of `base`'s items."""
        ...


class Maker(Protocol):
    """Compiles the evaluators of a plan's nodes."""

    context: Context
    hand: Hand
    """How the reader of the node that is being compiled takes its elements."""

    def value(self, node: Operator) -> Value:
        """Compile the evaluator of a node's own items."""
        ...

    def below(self, node: Operator, up: Operator) -> Value:
        """Compile the evaluator of a node's input, whose items may arrive computed."""
        ...

    def held(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements are kept while others are made."""
        ...

    def at_hand(self, value: Value, *, again: bool = True, changed: bool = False) -> Value:
        """Wrap an evaluator so that it takes the value of an item that has been computed."""
        ...

    def noted(self, node: Unary) -> Value:
        """Compile the evaluator of a noting node's input; what it notes goes to the context's notes."""
        ...

    def asking(self, node: Operator, function: Callable[..., Any], up: Value) -> Value:
        """Wrap an evaluator so that it notes ``function(element)``."""
        ...

    def handing(self, hand: Hand) -> AbstractContextManager[None]:
        """Compile with another `hand` within a block."""
        ...

    def replayed(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements need a replay."""
        ...

    def identity(self, node: Operator) -> Identity:
        """Compile the identity of a node's refs."""
        ...

    def open_inner(self, plan: Any, origin: tuple[Any, ...], skip: int) -> Any:
        """Open an in-process network over the dataset that a function returned."""
        ...


class StoredElements(Protocol):
    """A complete snapshot, as stages and batches read it."""

    @property
    def mapped(self) -> bool:
        """True if elements are views of local files."""
        ...

    @property
    def safe(self) -> bool:
        """True if none of them is an error."""
        ...

    @property
    def reader(self) -> Any:
        """The open reader of its elements."""
        ...

    def stacks(self) -> Callable[[tuple[int, ...]], Any]:
        """Return a function from indices to the batch of these elements; it gives None if they do not stack."""
        ...


class Resolver(Protocol):
    """Looks at the snapshots of a plan when an iterator is made."""

    def with_inputs(self, node: Operator) -> Operator:
        """Return the node over its inputs as they are run."""
        ...

    def snapshot(self, node: Any) -> Operator:
        """Return what is run in the place of a snapshot."""
        ...


@dataclass(frozen=True, eq=False)
class Operator(Node):
    """A node that knows how it is run."""

    scatters: ClassVar[bool] = False
    """True if a position in its stream says nothing about a position in its input's."""
    ours: ClassVar[bool] = False
    """True if it makes elements of nothing that a user has: nobody else holds them."""
    recorded: ClassVar[bool] = False
    """True if its stream is walked step by step while it is being written, and positional later."""
    passes: ClassVar[bool] = False
    """True if its elements are its inputs', unchanged: all or some of them, in any order."""
    measures: ClassVar[bool] = False
    """True if something of each element is noted as it passes."""
    elementwise: ClassVar[bool] = False
    """True if it makes an element of one of its input's, by itself: it runs in one chain with such as are next to it."""
    relays: ClassVar[bool] = False
    """True if it gives its inputs' items as they come, computed or not: it holds none that a state names."""
    calls: ClassVar[bool] = False
    """True if it calls a user's function with each element of its input, to make its own or choose among them."""

    light: ClassVar[bool] = False
    """True if it makes numbers or paths of its refs: what costs less than being asked for, and cannot fail."""

    @property
    def counts(self) -> bool:
        """True if its states count what it left out or took of each source, for an iterator's stats."""
        return False

    @property
    def drops(self) -> bool:
        """True if it may leave out an element because of its value."""
        return False

    @property
    def lenient(self) -> bool:
        """True if an element that fails is left out, or tried again, and counted."""
        return False

    @property
    def unordered(self) -> bool:
        """True if its elements may come in the order in which they are ready."""
        return False

    choosing: ClassVar[bool] = False
    """True if its elements are those of its input, by their refs: it says which of them come, and in what order."""
    contiguous: ClassVar[bool] = False
    """True if it passes on whole runs of its input's elements, in order."""
    distributive: ClassVar[bool] = False
    """True if over the parts of its input it gives, in all, what it gives over the whole, in any order."""
    one_by_one: ClassVar[bool] = False
    """True if it looks at one element at a time and counts none: a range of its input gives a range."""
    joins: ClassVar[bool] = False
    """True if it puts together what others made, or takes it apart, in the process where that is made."""
    expands: ClassVar[bool] = False
    """True if it gives the elements of a dataset that a function makes of each element."""
    keeps: ClassVar[bool] = False
    """True if it keeps its input's elements for later passes."""
    gathers: ClassVar[bool] = False
    """True if its elements may lie as rows of several blocks: a stage gathers one where it is wanted whole."""
    placed: ClassVar[bool] = False
    """True if what names an element of an inner dataset is its place in a file, not its number."""

    @property
    def holds(self) -> bool:
        """True if it keeps elements of its input while it gives others."""
        return False

    @property
    def prefetched(self) -> int | None:
        """The number of elements that it wants to be ready ahead of the consumer; None if it says nothing of that."""
        return None

    @property
    def made_of(self) -> int:
        """The number of its input's elements that one of its own is made of; 0 if that is not fixed."""
        return 1 if self.origin == "input" else 0

    @property
    def rows_each(self) -> int | None:
        """The number of rows of each of its elements; None where the plan does not tell."""
        return self.inputs[0].rows_each if self.transparent or self.choosing else None

    @property
    def inner(self) -> bool:
        """True if it is a part of the operator after it: nothing can be put between the two."""
        return False

    @property
    def reads(self) -> Literal["", "generator", "stream"]:
        """How it reads: in the consumer's process, or from front to back by one worker; else ''."""
        return "stream" if self.expands else ""

    @property
    def grouped(self) -> bool:
        """True if it reads rows by their number, each decoded together with many others."""
        return False

    def several(self) -> Callable[[list[int]], Sequence[Any]] | None:
        """Return a function that reads several of its elements by their numbers, if that is one call."""
        return None

    @property
    def settings(self) -> Options | None:
        """The options that it sets for what is upstream of it."""
        return None

    @property
    def share(self) -> InputContext | None:
        """The process whose share of the elements it gives; None if it gives the same in every process."""
        return None

    @property
    def undivided(self) -> str:
        """Why its positions cannot be divided into ranges, where no trait tells; else ''."""
        return ""

    @property
    def gives_paths(self) -> bool:
        """True if it is a list of paths."""
        return False

    # -- how it is shown -----------------------------------------------------------------------

    cuts: ClassVar[bool] = False
    """True if it computes nothing, and what is upstream of it is computed as a stage of its own."""
    at_work: ClassVar[str] = ""
    """Where it is at work, in words, if it is not where others of its kind are."""

    @property
    def redone(self) -> str:
        """What a restored iterator computes again because of it, as a sentence; '' if nothing."""
        return ""

    def shown(self) -> dict[str, Any] | str:
        """Return its arguments as an outline shows them: by name, or as a text."""
        return self.params()

    # -- batches -------------------------------------------------------------------------------

    @property
    def batching(self) -> Operator | None:
        """The operator that makes batches of one size, if its elements are such batches."""
        passes = self.contiguous or self.scatters or (self.elementwise and not self.drops)
        return self.inputs[0].batching if passes else None

    @property
    def batch_size(self) -> int | None:
        """The rows of each batch but the last, if it makes batches of one size."""
        return None

    @property
    def drops_rest(self) -> bool:
        """True if it leaves out a last batch that is not whole."""
        return False

    @property
    def reorders(self) -> bool:
        """True if an element may come after one that stands behind it in its input, or comes again."""
        return self.scatters

    @property
    def widens(self) -> bool:
        """True if it pads its batches, and they may be of different widths."""
        return False

    def resized(self, size: int) -> Operator:
        """Return it with batches of another size."""
        raise NotImplementedError

    def of_process(self, context: InputContext, short: Short) -> Operator | None:
        """Return it with one process's rows of each batch; None if they depend on other rows.

        Parameters
        ----------
        context : InputContext
            Which process.
        short : {"keep", "drop", "error"}
            What is done with a last batch that is not whole.
        """
        return None

    def sharded(self, count: int, index: int) -> Operator:
        """Return what stands in its place in one of several processes that divide the elements here."""
        return self

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return ()

    @property
    def running(self) -> tuple[Operator, ...]:
        return self.inputs

    def spec(self, below: Spec) -> Any:
        """Return the nest of specs of its elements; None where the plan alone does not tell it.

        Parameters
        ----------
        below : callable
            Gives the specs of an input's elements. Ask only for what is needed: where the plan does
            not tell it, elements may be computed.
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
        """The number of int refs it may have; None where refs are tuples or unbounded."""
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
            It knows the seeds.

        Returns
        -------
        sequence
            A range, an int64 array, or a list of tuples; as long as `where`.
        """
        return self.inputs[0].refs_at(where, pass_, context)

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        """Take a ref apart: pairs of an input's number and a ref of it, in the same pass.

        Raises
        ------
        ValueError
            It is no ref of this operator's.
        """
        return [(0, ref)]

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        """Take a ref apart: as `parts`, each with the number of the pass of that input.

        Raises
        ------
        ValueError
            It is no ref of this operator's.
        """
        return [(which, below, pass_) for which, below in self.parts(ref)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        """Return the identity of its refs; None if `origin` says how it is made.

        Parameters
        ----------
        of : callable
            Gives the identity of an input's refs.
        prefix : tuple
            The origin of the element whose `flat_map` made this plan; () for an iterator's own.
        by_number : bool
            True: a record of files is named by its number in all of them, not by file and place.
        """
        return None

    # -- states --------------------------------------------------------------------------------
    #
    # A positional node's place is one integer. Where a snapshot is among its inputs the same stream was walked
    # step by step while that was being written, with a state nested by operator. So a place is always
    # dumped in the nested form, and loaded from either.

    @property
    def nests(self) -> bool:
        """True if its positions are dumped in the nested form."""
        nodes = list(walk(self, running=True))
        return any(node.recorded for node in nodes) and not any(node.scatters for node in nodes)

    def expand(self, at: int) -> Any:
        """Return a position as it is dumped: so many elements of a positional node have been given."""
        return self.nested(at) if self.nests else at

    def nested(self, at: int) -> Any:
        """Return a position in the form that the node's machine dumps."""
        return self.inputs[0].expand(at)

    def contract(self, state: Any) -> int:
        """Return the position that a state in either form says."""
        most = MOST if self.cardinality < 0 else self.cardinality
        if not isinstance(state, dict):
            return check_whole(state, most=most)
        return min(most, self.position(state))

    def position(self, state: dict[str, Any]) -> int:
        """Return the position that the nested form says."""
        if "n" in state:
            return count(state, "n")
        # A stage's own, around the state of its input; else that of the input stands in its place.
        if own(state, "counts") or own(state, "ahead"):
            return position_under_up(self.inputs[0], state)
        return self.inputs[0].contract(state)

    # -- what stands in files ------------------------------------------------------------------

    @property
    def asks_numbers(self) -> bool:
        """True if it chooses by position: files upstream are read by number where that answers it."""
        return False

    @property
    def same_refs(self) -> bool:
        """True if it gives elements of its input by their refs, and nothing looks at them on the way."""
        if self.transparent:
            return not self.measures
        return self.choosing and self.flat and self.share is None

    @property
    def uncomputed(self) -> bool:
        """True if there is nothing for workers to compute: it chooses, orders or stacks elements."""
        return self.transparent or (self.choosing and self.share is None)

    @property
    def kept(self) -> bool:
        """True if its elements are those of a snapshot or a table, alone or stacked: they are read-only."""
        return self.uncomputed and len(self.inputs) == 1 and self.inputs[0].kept

    @property
    def stored(self) -> StoredElements | None:
        """The complete snapshot of whose elements its refs are the indices."""
        return self.inputs[0].stored if self.same_refs else None

    @property
    def record_files(self) -> RecordFiles | None:
        """The files of whose records its refs end with the numbers."""
        up = self.same_refs or (self.choosing and self.share is None)
        return self.inputs[0].record_files if up else None

    @property
    def listed_paths(self) -> tuple[str, ...] | None:
        """The paths of which its refs are the numbers, if they are known."""
        return (
            self.inputs[0].listed_paths
            if self.transparent or (self.same_refs and not self.seeded)
            else None
        )

    @property
    def records(self) -> Any:
        """The user's object that gives its elements by number, if there is one."""
        return None

    @property
    def draw_instead(self) -> str:
        """Where its function is to draw random numbers that are the same after a restart."""
        if hasattr(self, "seed"):
            return f"take rng= and give {self.label}(..., seed=)"
        return "draw in a map(..., seed=) before it"

    def random_access(self) -> Callable[[int], Any] | None:
        """Return a function from an index to an element that needs no network, if there is one."""
        return None

    def resolved(self, resolver: Resolver) -> Operator:
        """Return it as an iterator runs it, now that files can be looked at."""
        return resolver.with_inputs(self)

    # -- how it is run -------------------------------------------------------------------------

    @property
    def unpositioned(self) -> str:
        """Why its positions are not known though it is `awaited`, to end a sentence about them; '' if they are."""
        return ""

    def check(self) -> None:
        """Refuse to be run where only the files that are there now show that it cannot be.

        Raises
        ------
        SpecError
            It needs random access, and there is none.
        """

    def machine(self, builder: Builder, pass_: int) -> Machine:
        """Build the machine of a pass."""
        raise NotImplementedError

    def begun(self, context: Context, skip: int) -> Machine | None:
        """Open it at a place of its own, if it is a whole plan that has places; else None."""
        return None

    def evaluator(self, maker: Maker) -> Value | None:
        """Compile the evaluator of its items; None if it passes its input's elements on."""
        return None

    @property
    def makes(self) -> bool:
        """True if it has an evaluator of its own."""
        return type(self).evaluator is not Operator.evaluator

    def hands_on(self, *, refs: bool) -> bool:
        """Return True if its evaluator, given a hand, hands on all that it makes.

        Parameters
        ----------
        refs : bool
            True: it makes them of refs alone; else parts of them may have been computed elsewhere.
        """
        if self.makes or self.noting:
            return self.progression is not None  # numbers belong to nobody
        return self.inputs[0].hands_on(refs=refs)

    def run_again(self) -> Iterator[Any] | None:
        """Return the elements of a pass, errors as `Broken`, if it can be run again without a network; else None."""
        return None

    def chained(self, context: Context, *, last: bool) -> Steps | None:
        """Return its step in a chain of generators; None if it needs its evaluator.

        Parameters
        ----------
        context : Context
            Of the iterator.
        last : bool
            True if no operator after it in the chain calls a function.
        """
        return None

    def sweep(self, start: int, step: int, dtype: Any) -> Sweep | None:
        """Return the generator of its elements over a progression of numbers; None if it needs its evaluator."""
        return None

    def noter(self, maker: Maker, up: Value) -> Value:
        """Compile the evaluator of its input's items that notes what the operator asks of each."""
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
    """What operators that make batches of one size have in common: `size`, `drop_remainder`."""

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
    """An operator that passes its input's elements on: it sets how they are made, or has them measured."""

    transparent = elementwise = passes = contiguous = distributive = True


def position_under_up(node: Operator, state: Any) -> int:
    """Return the position of an input whose state stands under ``up``."""
    inner = part(state, "up")
    with within("up"):
        return node.contract(inner)
