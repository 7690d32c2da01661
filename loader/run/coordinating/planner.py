"""The planner whose stages are computed by workers."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.batching import Unbatched
from tundish.loader.operators.repeat import Repeated
from tundish.loader.plan.node import walk
from tundish.loader.plan.options import Options
from tundish.loader.protocols.chains import chain_base, recomputes
from tundish.loader.protocols.items import Failure, Made, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.raised import node_of
from tundish.loader.run.coordinating.computed import ComputedTasks, StreamTasks, no_inner
from tundish.loader.run.evaluating.evaluators import compile_values
from tundish.loader.run.inline.batches import InlineBatches
from tundish.loader.run.inline.planner import Planner
from tundish.loader.run.inline.reference import open_inline, replays
from tundish.loader.run.stages.batches import RowBatches
from tundish.loader.run.stages.parallel import ParallelStage
from tundish.loader.run.stages.recorded import SnapshotTee
from tundish.loader.run.stages.streams import StreamStage
from tundish.loader.run.watching.watched import meter_of
from tundish.loader.run.wire.messages import CONTINUING
from tundish.loader.watch.watch import StageMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.operators.batching import Batch
    from tundish.loader.operators.flat_map import FlatMap, Inners
    from tundish.loader.operators.repeat import Repeat
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import AtHome, Forgettable, Machine
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.coordinator import Coordinator
    from tundish.loader.run.stages.stage import Stage


class AheadRepeated(Repeated):
    """A repeat whose next pass begins while workers compute the last elements of this one.

    Each pass has a planner of its own, which knows the stages built for it. Operators that
    stop early (`take`, `zip`) leave stages that compute ahead; they are released with the pass.
    """

    def __init__(self, node: Repeat, planner: ParallelPlanner, pass_: int) -> None:
        self._planner = planner
        self._own: ParallelPlanner | None = None
        self._early: tuple[int, Machine, ParallelPlanner] | None = None
        super().__init__(node, planner.build, pass_)
        planner.keep(self)

    def _make(self, p: int) -> tuple[int, Machine, ParallelPlanner]:
        planner = self._planner.for_pass()
        return p, planner.build(self._node.up, self._pass * self._radix + p), planner

    def _open(self) -> None:
        if self._own is not None:
            self._own.forget()
        early, self._early = self._early, None
        if early is not None and early[0] != self._p:
            early[2].forget()
            early = None
        _, up, self._own = early or self._make(self._p)
        self._set(up)

    @property
    def exhausted(self) -> bool:
        """True if this is the last pass, and all of it has been issued."""
        count = self._node.count
        return count is not None and self._p + 1 >= count and self._planners()[0].exhausted

    def _planners(self) -> list[ParallelPlanner]:
        """Return the planners of this pass and, if it was opened early, of the next one."""
        assert self._own is not None
        return [self._own] if self._early is None else [self._own, self._early[2]]

    def look_ahead(self) -> bool:
        """Open the next pass if all of this one has been issued; return True if it was."""
        count = self._node.count
        if self._early is not None or (count is not None and self._p + 1 >= count):
            return False
        if not self._planners()[0].exhausted:
            return False
        self._early = self._make(self._p + 1)
        self._early[2].feed()
        return True

    def feed(self) -> None:
        """Let the stages of this pass issue tasks."""
        self._planners()[0].feed()

    def forget(self) -> None:
        """Release the stages built for the passes."""
        for planner in self._planners():
            planner.forget()


class ParallelPlanner(Planner):
    """A planner of networks whose stages are computed by workers."""

    ahead = True

    def __init__(self, coordinator: Coordinator, context: Context, options: Options) -> None:
        super().__init__(context)
        self._coordinator = coordinator
        self._unordered = unordered(context.nodes, options)
        self._built: list[Stage | AheadRepeated] = []
        self._kept: list[Forgettable] = []
        self.context.replay = replays(options, coordinator.memory.budget)

    # -- what was built ------------------------------------------------------------------------

    def for_pass(self) -> ParallelPlanner:
        """Return a planner of the same plan that has built nothing yet."""
        planner = copy(self)
        planner._built, planner._kept = [], []  # noqa: SLF001 - a copy of this one
        return planner

    def keeps(self, machine: Forgettable) -> None:
        self._kept.append(machine)

    def keep(self, built: Stage | AheadRepeated) -> None:
        """Register a stage with this planner and the coordinator."""
        self._built.append(built)
        if isinstance(built, AheadRepeated):
            self._coordinator.repeats.append(built)
        else:
            self._coordinator.keep(built)

    @property
    def exhausted(self) -> bool:
        """True if stages compute ahead, and have issued everything."""
        return bool(self._built) and all(built.exhausted for built in self._built)

    def feed(self) -> None:
        """Let the stages issue tasks, downstream ones first, which makes room."""
        for built in reversed(self._built):
            built.feed()

    def forget(self) -> None:
        """Release the stages, which will not be read again."""
        for built in self._built:
            if isinstance(built, AheadRepeated):
                self._coordinator.repeats.remove(built)
                built.forget()
            else:
                self._coordinator.forget(built)
        self._built.clear()
        for machine in self._kept:
            machine.forget()
        self._kept.clear()

    # -- machines ------------------------------------------------------------------------------

    def cache_limit(self) -> int:
        return self._coordinator.memory.budget

    def stage(self, node: Operator, base: Operator, up: Machine, pass_: int) -> Machine:
        chain = recomputes(node)
        tasks = ComputedTasks(
            self.context, node, base, pass_, gathers=not chain, home=self.is_home(node)
        )
        meter = meter_of(node, self.context, "workers")
        ordered = id(node) not in self._unordered
        make = partial(spliced_at_home, node, pass_, self.context, meter)
        at_home = None if self.context.looks else base.at_home(node, make)
        return self.started(node, up, tasks, meter, chain=chain, ordered=ordered, at_home=at_home)

    def started(
        self,
        node: Operator,
        up: Machine,
        tasks: ComputedTasks,
        meter: StageMeter,
        *,
        chain: bool,
        ordered: bool,
        flag: int = 0,
        at_home: AtHome | None = None,
    ) -> ParallelStage:
        """Make the stage that ends at a node, and register it."""
        owner = self._coordinator
        number = owner.define(flag, tasks.definition, self.context.label(node))
        stage = ParallelStage(
            owner,
            number,
            up,
            tasks=tasks,
            chain=chain,
            ordered=ordered,
            meter=meter,
            continues=flag == CONTINUING,
            at_home=at_home,
        )
        self.keep(stage)
        return stage

    def is_home(self, node: Operator) -> bool:
        """Return True if the stage that ends at a node needs workers on this machine; without a service all are."""
        return False

    def batches(self, node: Batch, up: Machine) -> Machine:
        if isinstance(up, Unbatched):  # its rows are columns of this process
            label, watch = self.context.label(node), self.context.watch
            passed_on = StageMeter(label, (), "consumer")  # the stage that gives them counts them
            return InlineBatches(node, up, label, watch=watch, meter=passed_on)
        if isinstance(up, (ParallelStage, SnapshotTee)):
            up.group = node.size
        return RowBatches(node, up, self.context.label(node))

    def inners(self, node: FlatMap, up: Machine, base: Operator, pass_: int) -> Inners:
        owner = self._coordinator
        tasks = StreamTasks(self.context, node, base, pass_, home=self.is_home(node))
        number = owner.define(1, tasks.definition, self.context.label(node))
        stage = StreamStage(
            owner,
            number,
            up,
            tasks=tasks,
            cycle=node.in_turn,
            placed=node.placed,
            meter=meter_of(node, self.context, "workers"),
        )
        self.keep(stage)
        return stage

    def beside(self, plan: Operator, pass_: int) -> Machine:
        return open_inline(self.context.beside(plan, pass_), Options())

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        return AheadRepeated(node, self, pass_)


def spliced_at_home(node: Operator, pass_: int, context: Context, meter: StageMeter) -> AtHome:
    """Return a function that makes the element of ``(number, ((item, first, stop), ...))`` in this process.

    It returns None if an item has to be computed.
    """
    value, identity = compile_values(node, context, no_inner)

    def at_home(item: Any) -> Made | Failure | None:
        if any(type(part) in (int, tuple) for part, _, _ in item[1]):
            return None
        ref = ref_of(item)
        meter.made += 1
        try:
            return Made(ref, value(item, pass_))
        except Exception as error:  # noqa: BLE001 - the element's error
            label = node_of(error, meter.name)
            meter.failed[label] = meter.failed.get(label, 0) + 1
            add_origin(error, describe_origin(*identity(ref, pass_)), context.where)
            return Failure(ref, error)

    return at_home


def unordered(nodes: Sequence[Operator], options: Options) -> set[int]:
    """Return the ids of the nodes whose elements may be delivered out of order.

    These are nodes whose input has an order that no stage decides: a state names positions in that input.
    """
    if options.deterministic is not False and not any(node.unordered for node in nodes):
        return set()
    sequential = {id(up) for node in nodes if node.sequential for up in walk(node)}
    found = set()
    for node in nodes:
        base, _ = chain_base(node.inputs[0] if node.noting else node)
        if not any(up.dynamic or up.drops for up in walk(base)):
            found.add(id(node))
    return found - sequential
