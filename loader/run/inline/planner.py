"""The planner, which builds a network of machines from a plan.

Items stay uncomputed refs as long as only their order is decided: a `map` is not run at its place in the plan but
when its element is needed (it commutes with index operators, since a failed element is an element too). Items are
computed by *stages*:

* where operators drop elements (filter, ``on_error="skip"``): what remains depends on values;
* before `batch`, `unbatch` and `cache`, and at the end.

A stage evaluates all map and filter operators since the stage before. Subclasses decide where: `InlinePlanner`
(`tundish.loader.run.inline.reference`) in this process, `ParallelPlanner`
(`tundish.loader.run.coordinating.planner`) in workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.protocols.chains import chain_base, defers, run_of
from tundish.loader.protocols.positional import Positions
from tundish.loader.run.watching.watched import meter_of

if TYPE_CHECKING:
    from tundish.loader.operators.batching import Batch
    from tundish.loader.operators.flat_map import FlatMap, Inners
    from tundish.loader.operators.repeat import Repeat
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Forgettable, Machine
    from tundish.loader.protocols.operator import Operator, Unary
    from tundish.loader.watch.watch import StageMeter


class Planner:
    """Builds networks of machines; subclasses supply the stages that compute."""

    ahead = False

    def __init__(self, context: Context) -> None:
        self.context = context

    def keeps(self, machine: Forgettable) -> None:
        """Register a machine whose `forget` is called when it will not be read again; here nothing is kept."""

    # -- how things are computed ---------------------------------------------------------------

    def stage(self, node: Operator, base: Operator, up: Machine, pass_: int) -> Machine:
        """Build the machine that computes `node`'s elements from `base`'s items."""
        raise NotImplementedError

    def batches(self, node: Batch, up: Machine) -> Machine:
        """Build the machine that batches computed items."""
        raise NotImplementedError

    def inners(self, node: FlatMap, up: Machine, base: Operator, pass_: int) -> Inners:
        """Build the inner datasets of a `flat_map`."""
        raise NotImplementedError

    def flattened(self, node: FlatMap, base: Operator, pass_: int) -> Machine:
        """Build the machine that delivers the elements of inner datasets."""
        inners = self.inners(node, self.build(node.up, pass_), base, pass_)
        return node.joined(inners, pass_, self.context)

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        """Build the machine of a `Repeat`, which reads its input once for each pass."""
        from tundish.loader.operators.repeat import Repeated  # noqa: PLC0415 - if it is planned

        return Repeated(node, self.build, pass_)

    def meter(self, node: Operator) -> StageMeter:
        """Return the meter of a node whose elements are made on demand."""
        return meter_of(node, self.context, "consumer")

    def recorded(self, node: Unary, pass_: int) -> Machine:
        """Build the machine of a snapshot that is incomplete."""
        from tundish.loader.run.stages.recorded import recorded  # noqa: PLC0415 - as above

        return recorded(self, node, pass_)

    def beside(self, plan: Operator, pass_: int) -> Machine:
        """Build a machine in this process that gives the computed elements of another plan."""
        raise NotImplementedError

    def cache_limit(self) -> int:
        """Return the number of bytes that a cache may use."""
        raise NotImplementedError

    # -- the network ---------------------------------------------------------------------------

    def computed(self, node: Operator, pass_: int) -> Machine:
        """Build the machine of a node, with all items computed."""
        base, dropping = chain_base(node)
        if dropping or not self.is_computed(node):
            return self.stage(node, base, self.below(node, base, pass_), pass_)
        return self.build(node, pass_)

    def is_computed(self, node: Operator) -> bool:
        """Return True if `build` gives only computed items for a node."""
        base, dropping = chain_base(node)
        if dropping:
            return True
        if defers(node) or base.positional or (self.ahead and base.gathers):
            return False  # the rows of a batch may lie in several blocks: a stage gathers them
        return base.computing or (base.relays and all(map(self.is_computed, base.inputs)))

    def noted(self, node: Unary, pass_: int) -> Machine:
        """Build the machine of a noting node's input, computed, with a note on each item."""
        base, _ = chain_base(node.up)
        return self.stage(node, base, self.below(node.up, base, pass_), pass_)

    def below(self, node: Operator, base: Operator, pass_: int) -> Machine:
        """Build the machine before the map and filter operators that end at a node."""
        return measured(node, base, self.build(base, pass_), self.context)

    def build(self, node: Operator, pass_: int) -> Machine:
        """Build the machine of a node; its items may still have to be computed."""
        if node.positional:
            return Positions(node, pass_, self.context)
        if node.elementwise:
            base, dropping = chain_base(node)
            up = self.below(node, base, pass_)
            return self.stage(node, base, up, pass_) if dropping else up
        return node.machine(self, pass_)


def measured(node: Operator, base: Operator, up: Machine, context: Context) -> Machine:
    """Return the stream of `base`, with the measuring nodes before the first map or filter up to `node`."""
    if base.positional or not any(each.measures for each in run_of(node)):
        return up  # nothing is computed there, or no node measures
    from tundish.loader.operators.measuring import measuring  # noqa: PLC0415 - as above

    return measuring(node, up, context)
