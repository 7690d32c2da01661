"""The planner of a coordinator: what computes does so in workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.plan.node import walk
from tundish.loader.run.batches import Batches
from tundish.loader.run.chains import chain_base, defers, drops
from tundish.loader.run.machines import Machine, Repeated
from tundish.loader.run.planner import InlinePlanner, Planner
from tundish.loader.run.stages import ParallelStage, StageOwner
from tundish.loader.run.streams import StreamStage

if TYPE_CHECKING:
    from tundish.loader.plan.batching import Batch
    from tundish.loader.plan.elementwise import FlatMap
    from tundish.loader.plan.node import Node
    from tundish.loader.plan.options import Options
    from tundish.loader.plan.order import Repeat
    from tundish.loader.run.context import Context

AnyStage = ParallelStage | StreamStage


class PlannerOwner(StageOwner, Protocol):
    """Whose stages these are: the coordinator."""

    context: Context
    options: Options
    workers: int
    budget: int
    ordered: bool
    stages: list[AnyStage]

    def define(self, node: Node, base: Node, pass_: int, *, is_stream: bool) -> int:
        """A number for a new stage."""
        ...

    def look_after(self, repeated: AheadRepeated) -> None:
        """Let a repeat open its next pass early."""
        ...


class AheadRepeated(Repeated):
    """A repeat whose next pass begins while the last elements of this one are being computed."""

    _coordinator: PlannerOwner

    def __init__(self, node: Repeat, build: Any, pass_: int, coordinator: PlannerOwner) -> None:
        self._coordinator = coordinator
        self._own: list[AnyStage] = []
        self._early: Any = None
        super().__init__(node, build, pass_)
        coordinator.look_after(self)

    def _make(self, p: int) -> tuple[Machine, list[AnyStage]]:
        stages = self._coordinator.stages
        before = len(stages)
        up = self._build(self._node.up, self._pass * self._radix + p)
        return up, stages[before:]

    def _open(self) -> None:
        early, self._early = self._early, None
        if early is not None and early[0] == self._p:
            _, up, own = early
        else:
            up, own = self._make(self._p)
        self._own = own
        self._set(up)

    def look_ahead(self) -> bool:
        """Open the next pass if all of this one has been handed out."""
        count = self._node.count
        if self._early is not None or (count is not None and self._p + 1 >= count):
            return False
        if not self._own or not all(stage.exhausted for stage in self._own):
            return False
        self._early = (self._p + 1, *self._make(self._p + 1))
        for stage in reversed(self._early[2]):
            stage.feed()
        return True


class ParallelPlanner(Planner):
    """What computes does so in workers."""

    def __init__(self, coordinator: PlannerOwner) -> None:
        super().__init__(coordinator.context)
        self._coordinator = coordinator
        sequential = [n for n in self.context.nodes if n.sequential]
        self._sequential = {id(n) for top in sequential for n in walk(top)}
        InlinePlanner(self.context, coordinator.options)  # for replays

    def cache_limit(self) -> int:
        return self._coordinator.budget

    def stage(self, node: Node, base: Node, up: Machine, pass_: int) -> Machine:
        owner = self._coordinator
        chain = node.noting or chain_base(node)[1] or defers(node)
        number = owner.define(node, base, pass_, is_stream=False)
        stage = ParallelStage(owner, number, up, chain=chain, ordered=self._in_order(node, base))
        owner.stages.append(stage)
        return stage

    def _in_order(self, node: Node, base: Node) -> bool:
        """Whether a stage's elements have to come in the order of its input."""
        owner = self._coordinator
        return owner.ordered or id(node) in self._sequential or not is_static(base)

    def batches(self, node: Batch, up: Machine, pass_: int) -> Machine:
        if isinstance(up, ParallelStage):
            up.regroup(node.size)
        return Batches(node, up, self.context.label(node))

    def flat_mapped(self, node: FlatMap, up: Machine, base: Node, pass_: int) -> Machine:
        owner = self._coordinator
        number = owner.define(node, base, pass_, is_stream=True)
        stage = StreamStage(owner, number, up, owner.workers + 2)
        owner.stages.append(stage)
        return stage

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        return AheadRepeated(node, self.build, pass_, self._coordinator)

    def is_computed(self, node: Node) -> bool:
        base, dropping = chain_base(node)
        # A batch may lie in several blocks: a stage gathers it.
        return super().is_computed(node) and (dropping or not _reaches_batch(base))


def is_static(node: Node) -> bool:
    """Whether the order of a node's stream is decided without a stage.

    Only then may what is computed of it come out of turn: a state names ordinals of the input.
    """
    return not any(n.dynamic or drops(n) for n in walk(node))


def _reaches_batch(node: Node) -> bool:
    if node.label == "batch":
        return True
    if node.label in ("repeat", "shard", "shard_by_process", "skip", "take", "concatenate"):
        return any(_reaches_batch(chain_base(up)[0]) for up in node.inputs)
    return False
