"""Interfaces between operators and the engine: machines, their builder, and the compiler of evaluators.

A *machine* is the stream of one pass of a node. It gives *items* (`tundish.loader.protocols.items`),
computed or not, and never calls a user's function. The same machines run in the consumer's process with
workers and without, so the order cannot depend on workers. An *evaluator* computes the element of an item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.items import Failure, Made
    from tundish.loader.protocols.operator import Operator, Unary
    from tundish.loader.protocols.rng import Path
    from tundish.loader.watch.watch import StageMeter

Mark = Any

Value = Callable[[Any, int], Any]
"""``value(item, pass)`` returns the element, or `DROPPED`; raises what the user's function raises."""

Gather = Callable[[Any, int], Any]
"""``gather(refs, pass)`` returns the columns of the elements of `refs` (a range, an array or a `Tuples`) as new arrays,
stacked as by `collate`; None if one of them may be an error, so that each has to be made separately.
"""

Elements = Callable[[Any, int], Sequence[Any]]
"""``elements(refs, pass)`` returns the elements of refs, to be delivered one by one; if one cannot be made now, only the
elements before it.
"""

Hand = Callable[..., Any] | None
"""Hands on a new element: `lent`, `owned`, or None for as it is."""

AtHome = Callable[[Any], "Made | Failure | None"]
"""``at_home(item)`` makes an element in the consumer's process, or returns None to leave it to a worker."""

Spec = Callable[["Operator"], Any]
"""``spec(node)`` returns the nest of specs of a node's elements, or None."""

Step = Callable[[Iterator[Any]], Iterator[Any]]
"""A generator of an operator's elements from those of its input."""

Steps = tuple[str, Callable[..., Any], Callable[[Callable[..., Any], bool], Step]]
"""An operator's label, the user's function, and ``make(function, owning)``, which makes the step of that function, or of
a timed one, for a stage that owns the elements it gives, or lends them.
"""

Sweep = Callable[[range, int, list[Any]], Iterator[Any]]
"""``sweep(refs, pass, raw)`` is a generator of the elements of a range of refs; while the list `raw` is not empty, it
yields what the function returned, unconverted.
"""

Identity = Callable[[Any, int], "tuple[int, Path]"]
"""``identity(ref, pass)`` returns the number of the pass and the origin, which key an element's randomness."""


Short = Literal["keep", "drop", "error"]
"""The treatment of a last batch that is not full."""


class Machine(Protocol):
    """A stream of items: one pass of a node."""

    def next(self) -> Any:
        """Return the next item.

        Raises
        ------
        End
            There are no more items.
        NotReady
            A worker has to answer first. Ask again later; nothing gathered so far is lost.
        """
        ...

    def mark(self) -> Mark:
        """Return the mark after the last item: immutable, and valid while the machine runs ahead.

        It is asked for right after an item. After `NotReady` it may be between two items. A mark holds refs, not items,
        because the receiver of an item may change its ref (`rewrap`).
        """
        ...

    def dump(self, mark: Mark) -> Any:
        """Return a mark as JSON, nested by operator; nothing in it depends on workers or stages."""
        ...

    def load(self, state: Any) -> None:
        """Restore a new machine to a dumped mark."""
        ...


class Forgettable(Protocol):
    """A machine that can be told that it will not be read again."""

    def forget(self) -> None:
        """Release what is kept for later requests."""
        ...


class Builder(Protocol):
    """Builds the machines of a plan, and decides where elements are computed."""

    context: Context
    ahead: bool
    """True if streams are read before their elements are requested."""

    def keeps(self, machine: Forgettable) -> None:
        """Register a machine whose `forget` is called when it will not be read again."""
        ...

    def build(self, node: Operator, pass_: int) -> Machine:
        """Build the machine of a node; its items may still have to be computed."""
        ...

    def computed(self, node: Operator, pass_: int) -> Machine:
        """Build the machine of a node, with all items computed."""
        ...

    def noted(self, node: Unary, pass_: int) -> Machine:
        """Build the machine of a noting node's input, computed, with a note on each item."""
        ...

    def repeated(self, node: Any, pass_: int) -> Machine:
        """Build the machine of a `Repeat`; with workers its next pass may start early."""
        ...

    def meter(self, node: Operator) -> StageMeter:
        """Return the meter of a node whose elements are made on demand."""
        ...

    def recorded(self, node: Unary, pass_: int) -> Machine:
        """Build the machine of an incomplete snapshot, which is written as elements pass."""
        ...

    def beside(self, plan: Operator, pass_: int) -> Machine:
        """Build a machine in this process that gives the computed elements of another plan."""
        ...

    def cache_limit(self) -> int:
        """Return the number of bytes that a cache may use."""
        ...

    def batches(self, node: Any, up: Machine) -> Machine:
        """Build the machine that batches computed items for a `Batch`."""
        ...

    def flattened(self, node: Any, base: Operator, pass_: int) -> Machine:
        """Build the machine that gives the elements of a `FlatMap`'s inner datasets, opened from `base`'s items."""
        ...


class Maker(Protocol):
    """Compiles the evaluators of a plan's nodes."""

    context: Context
    hand: Hand
    """The way in which the node that is being compiled hands on its elements."""

    def value(self, node: Operator) -> Value:
        """Compile the evaluator of a node's own items."""
        ...

    def gather(self, node: Operator) -> Gather | None:
        """Compile a function from refs to columns of a node's elements; None if each is made separately."""
        ...

    def together(self, node: Operator) -> tuple[Elements, int] | None:
        """Compile a function that makes several elements at once, and say how many; None if each is made on demand."""
        ...

    def below(self, node: Operator, up: Operator) -> Value:
        """Compile the evaluator of a node's input, whose items may arrive computed."""
        ...

    def held(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements are held while others are made."""
        ...

    def at_hand(self, value: Value, *, again: bool = True, changed: bool = False) -> Value:
        """Wrap an evaluator so that it returns the value of an item that is already computed."""
        ...

    def noted(self, node: Unary) -> Value:
        """Compile the evaluator of a noting node's input; the answer for each element goes to the context's notes."""
        ...

    def asking(self, node: Operator, function: Callable[..., Any], up: Value) -> Value:
        """Wrap an evaluator so that it notes ``function(element)``."""
        ...

    def handing(self, hand: Hand) -> AbstractContextManager[None]:
        """Set how compiled evaluators hand on their elements, within a block."""
        ...

    def replayed(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements can only be recomputed by replaying a pass."""
        ...

    def identity(self, node: Operator) -> Identity:
        """Compile the function that names the element of a node's ref in states and errors."""
        ...

    def open_inner(self, plan: Any, origin: tuple[Any, ...], skip: int) -> Any:
        """Open an in-process network over the dataset that a function returned."""
        ...


class StoredElements(Protocol):
    """A complete snapshot, as stages and batches use it."""

    @property
    def mapped(self) -> bool:
        """True if elements are views of local files."""
        ...

    @property
    def safe(self) -> bool:
        """True if no element is an error."""
        ...

    @property
    def reader(self) -> Any:
        """The open reader of its elements."""
        ...


class Resolver(Protocol):
    """Decides on the snapshots of a plan when an iterator is made."""

    def with_inputs(self, node: Operator) -> Operator:
        """Return a node over its inputs as they are run."""
        ...

    def snapshot(self, node: Any) -> Operator:
        """Return the operator that is run in place of a snapshot."""
        ...
