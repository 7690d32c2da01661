"""From a plan to a network of machines.

Items stay uncomputed refs as long as only their order is decided: a `map` on the way is not run
where it stands but when an item has to be computed (it commutes with index operators, since a
failed element is an element). Items are computed by *stages*:

* where operators drop elements (filter, ``on_error="skip"``): what remains depends on values;
* below `batch`, `unbatch` and `cache`, and at the end.

A stage evaluates the whole run of map and filter below it at once. How it does so is the
subclass's: `InlinePlanner` in this process, `tundish.loader.run.coordinator` in workers.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tundish.loader.plan.batching import Batch
from tundish.loader.plan.elementwise import FlatMap
from tundish.loader.plan.files.node import FileRecords, ReadFiles
from tundish.loader.plan.interleaving import Interleave
from tundish.loader.plan.measuring import without_measuring
from tundish.loader.plan.options import Options, options_of
from tundish.loader.plan.order import (
    Concatenate,
    Repeat,
    Shard,
    ShardByProcess,
    Skip,
    Take,
)
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.plan.sources import Generator
from tundish.loader.plan.storing import Cache, Reread, Snapshot, SortedSnapshot
from tundish.loader.run.chains import ELEMENTWISE, chain_base, defers
from tundish.loader.run.evaluators import compile_inner, compile_values
from tundish.loader.run.files.batches import FileBatches
from tundish.loader.run.files.numbered import FileStage, files_below
from tundish.loader.run.files.records import FileMachine
from tundish.loader.run.files.sequence import FileSequence
from tundish.loader.run.generating import Broken, until_it_raises
from tundish.loader.run.inline import InlineBatches, InlineStage
from tundish.loader.run.items import End, Failure, Ref
from tundish.loader.run.machines import Builder, Forgettable, Machine, MakeMachine, several_of
from tundish.loader.run.operators import (
    asserting,
    batching,
    grouping,
    mixing,
    order,
    packing,
    padding,
    rebatching,
    resampling,
    scanning,
    sharing,
    sources,
    taking,
    uniqueness,
    windowing,
    windows,
    zipping,
)
from tundish.loader.run.operators.caching import Cached, store_of
from tundish.loader.run.operators.flattening import FlatMapped
from tundish.loader.run.operators.inners import InlineInners, Inners, left_out
from tundish.loader.run.operators.interleaving import Interleaved
from tundish.loader.run.operators.measuring import measured
from tundish.loader.run.operators.order import Repeated
from tundish.loader.run.plain import PlainStage, is_plain, numbers_of
from tundish.loader.run.positional import Positions
from tundish.loader.run.sampling import Timed
from tundish.loader.run.storing.rereading import Rereading
from tundish.loader.run.storing.setup import resolved_inner
from tundish.loader.run.storing.several import StoredStage
from tundish.loader.run.storing.stored import source_of
from tundish.loader.run.storing.streaming import recorded
from tundish.loader.run.sweeping import SweptStage, compile_steps
from tundish.loader.run.timing import Timer
from tundish.loader.run.watched import is_watched, meter_of

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node, Unary
    from tundish.loader.run.context import Context, Replay
    from tundish.loader.run.values import Value


AnyStage = TypeVar("AnyStage", bound=InlineStage)
AnyTimed = TypeVar("AnyTimed", bound=Timed)

_EFFECTIVE: weakref.WeakKeyDictionary[Node, dict[str, Node]] = weakref.WeakKeyDictionary()


def effective(node: Node, policy: str | None = None) -> Node:
    """The plan with ``Options.on_error`` given to every operator that says nothing itself."""
    policy = policy or options_of(node).on_error
    if policy is None:
        return node
    known = _EFFECTIVE.setdefault(node, {})
    if policy not in known:
        # Once for all iterators: a cache is shared by those of one plan.
        known[policy] = _with_policy(node, policy)
    return known[policy]


def _with_policy(node: Node, policy: str) -> Node:
    done: dict[int, Node] = {}

    def rebuilt(old: Node) -> Node:
        if id(old) not in done:
            changes = other_inputs(old, rebuilt)
            if getattr(old, "on_error", policy) is None:
                changes["on_error"] = policy
            done[id(old)] = replace(old, **changes) if changes else old
        return done[id(old)]

    return rebuilt(node)


class Planner:
    """Builds networks; what computes is left to subclasses."""

    ahead = False

    def __init__(self, context: Context) -> None:
        self.context = context

    def keeps(self, machine: Forgettable) -> None:
        """Have a machine told when nobody will ask it again: here it is dropped."""

    # -- how things are computed ---------------------------------------------------------------

    def stage(self, node: Node, base: Node, up: Machine, pass_: int) -> Machine:
        """A machine that computes a stream's items: from `base`'s items to `node`'s elements."""
        raise NotImplementedError

    def batches(self, node: Batch, up: Machine, pass_: int) -> Machine:
        """A machine that stacks computed items."""
        raise NotImplementedError

    def inners(self, node: FlatMap, up: Machine, base: Node, pass_: int) -> Inners:
        """The inner datasets."""
        raise NotImplementedError

    def flattened(self, node: FlatMap, base: Node, pass_: int) -> Machine:
        """The machine of the elements of inner datasets."""
        inners = self.inners(node, self.build(node.up, pass_), base, pass_)
        if isinstance(node, Interleave):
            return Interleaved(node, inners, pass_, self.context)
        return FlatMapped(inners, left_out(node, self.context))

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        """A machine that goes through its input again and again."""
        return Repeated(node, self.build, pass_)

    def cache_limit(self) -> int:
        """Bytes that a cache may keep."""
        raise NotImplementedError

    # -- the network ---------------------------------------------------------------------------

    def computed(self, node: Node, pass_: int) -> Machine:
        """The stream of a node, all of it computed."""
        base, dropping = chain_base(node)
        if dropping or not self.is_computed(node):
            return self.stage(node, base, self.below(node, base, pass_), pass_)
        return self.build(node, pass_)

    def is_computed(self, node: Node) -> bool:
        """Whether `build` gives only computed items for a node."""
        base, dropping = chain_base(node)
        if dropping:
            return True
        if defers(node):
            return False
        if isinstance(base, Batch):
            return not base.positional
        if base.computing:
            return True
        if isinstance(base, (Repeat, Shard, ShardByProcess, Skip, Take, Concatenate)):
            return not base.positional and all(self.is_computed(up) for up in base.inputs)
        return False  # a restored shuffle's window holds refs

    def noted(self, node: Unary, pass_: int) -> Machine:
        """The computed stream of a noting node's input, each item with its note."""
        base, _ = chain_base(node.up)
        return self.stage(node, base, self.below(node.up, base, pass_), pass_)

    def below(self, node: Node, base: Node, pass_: int) -> Machine:
        """The stream below the run of map and filter that ends at a node."""
        return measured(node, base, self.build(base, pass_), self.context)

    def build(self, node: Node, pass_: int) -> Machine:
        """The stream of a node; its items may have to be computed yet."""
        if node.positional:
            return Positions(node, pass_, self.context)
        if isinstance(node, ELEMENTWISE):
            base, dropping = chain_base(node)
            up = self.below(node, base, pass_)
            return self.stage(node, base, up, pass_) if dropping else up
        if isinstance(node, Repeat):
            return self.repeated(node, pass_)
        if isinstance(node, Batch):
            return self.batches(node, self.computed(node.up, pass_), pass_)
        if isinstance(node, FlatMap):
            base, dropping = chain_base(node.up)
            if dropping:
                base = node.up
            return self.flattened(node, base, pass_)
        if isinstance(node, Cache):
            store = store_of(node, self.cache_limit())
            return Cached(lambda: self.computed(node.up, 0), store)
        return MACHINES[type(node)](self, node, pass_)


def _reread(builder: Builder, node: Reread, pass_: int) -> Machine:
    """A plan of its own: what only orders elements of files needs no workers."""
    context = builder.context.beside(node.order, pass_)
    return Rereading(lambda: open_inline(context, Options()), node)


MACHINES: dict[type[Node], MakeMachine] = {
    Snapshot: recorded,
    SortedSnapshot: recorded,
    Reread: _reread,
    **sources.MACHINES,
    **order.MACHINES,
    **zipping.MACHINES,
    **batching.MACHINES,
    **windowing.MACHINES,
    **mixing.MACHINES,
    **padding.MACHINES,
    **rebatching.MACHINES,
    **packing.MACHINES,
    **taking.MACHINES,
    **windows.MACHINES,
    **grouping.MACHINES,
    **scanning.MACHINES,
    **uniqueness.MACHINES,
    **resampling.MACHINES,
    **asserting.MACHINES,
    **sharing.MACHINES,
}
"""The machines of operators that are the same wherever elements are computed."""


class InlinePlanner(Planner):
    """Everything is computed in this process, when it is asked for."""

    def __init__(self, context: Context, options: Options, cache_bytes: int = 2**34) -> None:
        super().__init__(context)
        self.options = options
        self._cache_bytes = cache_bytes
        context.replay = replays(options, cache_bytes)

    def cache_limit(self) -> int:
        return self._cache_bytes

    def stage(self, node: Node, base: Node, up: Machine, pass_: int) -> Machine:
        context = self.context
        value, identity = compile_values(node, context, self.open_inner)
        meter = meter_of(node, context, "consumer")

        def timed() -> Value:
            timer = Timer(context.watch.sample(meter.name))
            return compile_values(node, context, self.open_inner, timer)[0]

        def made(kind: type[AnyStage]) -> AnyStage:
            chain = node.noting or chain_base(node)[1] or defers(node)
            stage = kind(up, value, identity, pass_, context, chain=chain, meter=meter, timed=timed)
            return self.timing(stage)

        if context.probes:
            return made(InlineStage)

        files = source_of(node)
        if files is not None and files.found.mapped and files.found.safe:
            stored = made(StoredStage)
            stored.found = files.found
            return stored

        records = files_below(node)
        if records is not None:
            numbered = made(FileStage)
            numbered.source = records.source
            return numbered

        if is_plain(node):
            plain = made(PlainStage)
            plain.numbers = numbers_of(node)
            return plain

        if isinstance(up, Positions) and not node.noting:
            steps = compile_steps(node, context)
            if steps is not None:
                source, _ = compile_values(base, context, self.open_inner)
                return self.timing(
                    SweptStage(
                        up,
                        base,
                        source,
                        steps,
                        identity=identity,
                        pass_=pass_,
                        context=context,
                        meter=meter,
                        closures=lambda: made(InlineStage),
                    )
                )
        return made(InlineStage)

    def timing(self, stage: AnyTimed) -> AnyTimed:
        """Have a stage timed now and then, if this is the consumer's own network."""
        if self.context.sampling is not None:
            self.context.sampling.add(stage)
        return stage

    def batches(self, node: Batch, up: Machine, pass_: int) -> Machine:
        context = self.context
        label, meter = context.label(node), meter_of(node, context, "consumer")
        if isinstance(up, (FileSequence, FileStage)):
            leaf = up.form.leaf if isinstance(up, FileSequence) else up.source.form.leaf
            files = FileBatches(node, up, label, leaf, watch=context.watch, meter=meter)
            return self.timing(files)
        return self.timing(InlineBatches(node, up, label, watch=context.watch, meter=meter))

    def flattened(self, node: FlatMap, base: Node, pass_: int) -> Machine:
        if not isinstance(node, ReadFiles):
            return super().flattened(node, base, pass_)
        dataset, identity = compile_inner(node, self.context, self.open_inner)
        up = self.build(node.up, pass_)
        meter = meter_of(node, self.context, "consumer")
        return self.timing(
            FileSequence(
                node, up, dataset, identity, pass_=pass_, context=self.context, meter=meter
            )
        )

    def inners(self, node: FlatMap, up: Machine, base: Node, pass_: int) -> Inners:
        dataset, identity = compile_inner(node, self.context, self.open_inner)
        return self.timing(
            InlineInners(
                up,
                dataset,
                identity,
                pass_,
                open_inner=self.open_inner,
                context=self.context,
                placed=node.placed,
                meter=meter_of(node, self.context, "consumer"),
            )
        )

    def open_inner(self, plan: Node, origin: tuple[Any, ...], skip: int) -> Machine:
        """A network over the dataset that a flat_map's function returned."""
        plan = resolved_inner(effective(plan, self.options.on_error))
        if not is_watched(self.options):
            plan = without_measuring(plan)
        return open_inline(self.context.inner(plan, origin), self.options, skip, self._cache_bytes)


def replays(options: Options, cache_bytes: int) -> Replay:
    """How a pass is run again: in this process."""

    def replay(context: Context, node: Node, pass_: int) -> Iterator[tuple[Ref, Any]]:
        """The elements of a pass of a node, from its start: (ref, element or `Broken`)."""
        if isinstance(node, Generator):
            yield from enumerate(until_it_raises(node))
            return
        network = InlinePlanner(context.again(), options, cache_bytes).computed(node, pass_)
        while True:
            try:
                item = network.next()
            except End:
                return
            failed = type(item) is Failure
            yield item.ref, Broken(item.error) if failed else item.value

    return replay


def open_inline(
    context: Context, options: Options, skip: int = 0, cache_bytes: int = 2**34
) -> Machine:
    """An in-process network over a whole plan, the first `skip` items left out.

    Of the records of a file `skip` is where to begin.
    """
    planner = InlinePlanner(context, options, cache_bytes)
    node = context.root
    if isinstance(node, FileRecords):
        return FileMachine(node, context, skip)
    base, dropping = chain_base(node)
    if skip and not dropping:
        # Maps above the base need not run for what is left out.
        up = planner.build(base, context.iteration)
        leave_out(up, skip, context)
        up = measured(node, base, up, context)
        return up if planner.is_computed(node) else planner.stage(node, base, up, context.iteration)
    network = planner.computed(node, context.iteration)
    leave_out(network, skip, context)
    return network


def leave_out(machine: Machine, count: int, context: Context) -> None:
    """Go over the next items of a machine, many at once where it can: they have come before."""
    try:
        with context.watch.unwatched():
            while count > 0:
                found = several_of(machine, count)
                if found is None:
                    machine.next()
                count -= 1 if found is None else len(found)
    except End:
        pass
