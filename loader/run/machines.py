"""The order of a stream: one small state machine for every operator that chooses or orders.

A machine gives *items* (see `tundish.loader.run.items`), computed or not; it never calls a user's
function. With workers and without, the same machines run in the consumer's process, so the order
cannot depend on workers. A machine has

* ``next()``: the next item; raises `End`, or `NotReady` when it has to wait for a worker (it may
  then be called again: what it has gathered so far is kept);
* ``mark()``: where it stands just after the item it last gave; immutable, so that a mark stays
  good while the machine runs ahead. A state is made of the mark of the last *delivered* item;
* ``dump(mark)``: a mark as JSON, nested by operator, without a word of workers or stages;
* ``load(state)``: go there (on a new machine).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node, Unary
    from tundish.loader.run.context import Context
    from tundish.loader.run.items import Ref

Mark = Any


class Machine(Protocol):
    """What every machine does."""

    def next(self) -> Any:
        """The next item; raises End or NotReady."""
        ...

    def mark(self) -> Mark:
        """Where the machine stands after its last item."""
        ...

    def dump(self, mark: Mark) -> Any:
        """A mark as JSON."""
        ...

    def load(self, state: Any) -> None:
        """Go to where a state says."""
        ...


Build = Callable[["Node", int], Machine]
"""``build(node, pass)``: the machine of a node's stream."""


class Forgettable(Protocol):
    """What wants to know when nobody will ask it again."""

    def forget(self) -> None:
        """Nobody will."""
        ...


class Builder(Protocol):
    """What the makers of machines are given: the planner."""

    context: Context
    ahead: bool
    """Whether streams are asked before those who need them are."""

    def keeps(self, machine: Forgettable) -> None:
        """Have a machine told when nobody will ask it again."""
        ...

    def build(self, node: Node, pass_: int) -> Machine:
        """The stream of a node; its items may have to be computed yet."""
        ...

    def computed(self, node: Node, pass_: int) -> Machine:
        """The stream of a node, all of it computed."""
        ...

    def noted(self, node: Unary, pass_: int) -> Machine:
        """The computed stream of a noting node's input, each item with its note."""
        ...


MakeMachine = Callable[[Builder, Any, int], Machine]
"""``make(builder, node, pass)``: the machine of a node of some type."""


def several_of(machine: Any, most: int) -> list[Any] | None:
    """The next elements of a machine that can give several at once; None: ask `next`."""
    several = getattr(machine, "several", None)
    return None if several is None else several(most)


def rewrap(item: Any, wrap: Callable[[Ref], Ref]) -> Any:
    """Put an item's ref into an outer node's terms; a computed item keeps its value."""
    kind = type(item)
    if kind is int or kind is tuple:
        return wrap(item)
    item.ref = wrap(item.ref)
    return item
