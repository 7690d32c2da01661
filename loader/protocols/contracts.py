"""Contracts between operators and those who run them: machines, and who builds and compiles.

A *machine* is the stream of one pass of a node. It gives *items* (`tundish.loader.protocols.items`),
computed or not, and never calls a user's function. The same machines run in the consumer's process with
workers and without, so the order cannot depend on workers. An *evaluator* makes an element of an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Operator, Unary
    from tundish.loader.protocols.rng import Path
    from tundish.loader.watch.watch import StageMeter

Mark = Any

Value = Callable[[Any, int], Any]
"""``value(item, pass)``: the element, or `DROPPED`; raises what the user's function raises."""

Gather = Callable[[Any, int], Any]
"""``gather(refs, pass)``: the columns of the elements of `refs`, a range, an array or a `Tuples`: new arrays, as `collate`
stacks the elements. None: it cannot tell, since one of them may be an error; each is to be made by itself."""

Hand = Callable[..., Any] | None
"""How an element that was just made is handed on: `lent`, `owned`, or as it is."""

Spec = Callable[["Operator"], Any]
"""``spec(node)``: the nest of specs of a node's elements, or None."""

Step = Callable[[Iterator[Any]], Iterator[Any]]
"""A generator of an operator's elements, given those of its input."""

Steps = tuple[str, Callable[..., Any], Callable[[Callable[..., Any], bool], Step]]
"""An operator's label, the user's function, and ``make(function, owning)``: the step of that function, or of one
that is timed, for a stage that owns what it gives or lends it."""

Sweep = Callable[[range, int, list[Any]], Iterator[Any]]
"""``sweep(refs, pass, raw)``: a generator of the elements of a whole range of refs; as long as something is in
the list `raw`, of what the function returned, as it is."""

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
        """Return the place just after the last item: immutable, good while the machine runs ahead.

        It is asked for as soon as the item has been given. After `NotReady` it may be between two items. A mark
        holds refs, not items: who is given an item may change its ref (`rewrap`).
        """
        ...

    def dump(self, mark: Mark) -> Any:
        """Return a mark as JSON, nested by operator; nothing in it depends on workers or stages."""
        ...

    def load(self, state: Any) -> None:
        """Bring a new machine to a place that was dumped."""
        ...


class Takeable(Machine, Protocol):
    """A machine of which several items can be taken at once; nobody has to ask for them so."""

    def take(self, most: int) -> Any:
        """Return the next items, `most` at most, at least one: refs, or a `Chunk` of computed elements.

        None: the next item comes from `next`; it is an error, say, or has to be made by itself. Raises as `next` does.
        """
        ...

    def mark(self, left: int = 0) -> Mark:
        """Return the place so many items before the last one; they were taken with it."""
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

    def gather(self, node: Operator) -> Gather | None:
        """Compile what gives columns of a node's elements; None where each has to be made, or seen, by itself."""
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


class Resolver(Protocol):
    """Looks at the snapshots of a plan when an iterator is made."""

    def with_inputs(self, node: Operator) -> Operator:
        """Return the node over its inputs as they are run."""
        ...

    def snapshot(self, node: Any) -> Operator:
        """Return what is run in the place of a snapshot."""
        ...
