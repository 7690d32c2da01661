"""Planning: a network of machines is made of a plan.

Items stay uncomputed refs as long as only their order is decided: a `map` on the way is not run
where it stands but when an item has to be computed (it commutes with index operators, since a
failed element is an element). Items are computed by *stages*:

* where operators drop elements (filter, ``on_error="skip"``): what remains depends on values;
* before `batch`, `unbatch` and `cache`, and at the end.

A stage evaluates the whole run of map and filter before it at once. How it does so is the
subclass's: `InlinePlanner` (`tundish.loader.run.inline.reference`) in this process, `ParallelPlanner`
(`tundish.loader.run.coordinating.planner`) in workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.operators.measuring import measured
from tundish.loader.operators.repeat import Repeat, Repeated
from tundish.loader.protocols.chains import chain_base, defers
from tundish.loader.protocols.positional import Positions
from tundish.loader.run.stages.recorded import recorded
from tundish.loader.run.watching.watched import meter_of

if TYPE_CHECKING:
    from tundish.loader.operators.batching import Batch
    from tundish.loader.operators.flat_map import FlatMap, Inners
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Forgettable, Machine
    from tundish.loader.protocols.operator import Operator, Unary
    from tundish.loader.watch.watch import StageMeter


class Planner:
    """Builds networks; what computes is left to subclasses."""

    ahead = False

    def __init__(self, context: Context) -> None:
        self.context = context

    def keeps(self, machine: Forgettable) -> None:
        """Have a machine told when nobody will ask it again: here it is dropped."""

    # -- how things are computed ---------------------------------------------------------------

    def stage(self, node: Operator, base: Operator, up: Machine, pass_: int) -> Machine:
        """Build a machine that computes a stream's items: from `base`'s items to `node`'s elements."""
        raise NotImplementedError

    def batches(self, node: Batch, up: Machine) -> Machine:
        """Build a machine that stacks computed items."""
        raise NotImplementedError

    def inners(self, node: FlatMap, up: Machine, base: Operator, pass_: int) -> Inners:
        """Build the inner datasets."""
        raise NotImplementedError

    def flattened(self, node: FlatMap, base: Operator, pass_: int) -> Machine:
        """Build the machine of the elements of inner datasets."""
        inners = self.inners(node, self.build(node.up, pass_), base, pass_)
        return node.joined(inners, pass_, self.context)

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        """Build a machine that goes through its input again and again."""
        return Repeated(node, self.build, pass_)

    def meter(self, node: Operator) -> StageMeter:
        """Make the meter of a node whose elements are made as the consumer asks for them."""
        return meter_of(node, self.context, "consumer")

    def recorded(self, node: Unary, pass_: int) -> Machine:
        """Build the stream of a snapshot that is not complete."""
        return recorded(self, node, pass_)

    def beside(self, plan: Operator, pass_: int) -> Machine:
        """Build the computed stream of a plan of its own, in this process."""
        raise NotImplementedError

    def cache_limit(self) -> int:
        """Return the number of bytes that a cache may keep."""
        raise NotImplementedError

    # -- the network ---------------------------------------------------------------------------

    def computed(self, node: Operator, pass_: int) -> Machine:
        """Build the stream of a node, all of it computed."""
        base, dropping = chain_base(node)
        if dropping or not self.is_computed(node):
            return self.stage(node, base, self.below(node, base, pass_), pass_)
        return self.build(node, pass_)

    def is_computed(self, node: Operator) -> bool:
        """Return True if `build` gives only computed items for a node."""
        base, dropping = chain_base(node)
        if dropping:
            return True
        if defers(node) or base.positional:
            return False
        return base.computing or (base.relays and all(map(self.is_computed, base.inputs)))

    def noted(self, node: Unary, pass_: int) -> Machine:
        """Build the computed stream of a noting node's input, each item with its note."""
        base, _ = chain_base(node.up)
        return self.stage(node, base, self.below(node.up, base, pass_), pass_)

    def below(self, node: Operator, base: Operator, pass_: int) -> Machine:
        """Build the stream before the run of map and filter that ends at a node."""
        return measured(node, base, self.build(base, pass_), self.context)

    def build(self, node: Operator, pass_: int) -> Machine:
        """Build the stream of a node; its items may still have to be computed."""
        if node.positional:
            return Positions(node, pass_, self.context)
        if node.elementwise:
            base, dropping = chain_base(node)
            up = self.below(node, base, pass_)
            return self.stage(node, base, up, pass_) if dropping else up
        return node.machine(self, pass_)
