"""Networks that compute on demand in this process: the reference for all others, and used where there are no workers.

Workers use them for the inner datasets of flat_map, and replays use them for what has to be computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tundish.loader.plan.options import Options
from tundish.loader.protocols.chains import chain_base, recomputes, run_of
from tundish.loader.protocols.chunk import taken
from tundish.loader.protocols.generating import BrokenElement
from tundish.loader.protocols.items import End, Failure, Ref
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.positional import Positions
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.evaluating.evaluators import (
    compile_gather,
    compile_inner,
    compile_together,
    compile_values,
    elements_of,
)
from tundish.loader.run.inline.batches import InlineBatches
from tundish.loader.run.inline.planner import Planner, measured
from tundish.loader.run.inline.stage import InlineStage
from tundish.loader.run.inline.sweeping import SweptStage, compile_steps
from tundish.loader.run.storing.setup import resolved_inner
from tundish.loader.run.watching.timing import StreamTimer, Timeable, Timer
from tundish.loader.run.watching.watched import measured_plan, meter_of

if TYPE_CHECKING:
    from tundish.loader.operators.batching import Batch
    from tundish.loader.operators.files import ReadFiles
    from tundish.loader.operators.flat_map import FlatMap, Inners
    from tundish.loader.protocols.context import Context, Replay
    from tundish.loader.protocols.contracts import Hand, Machine, Value
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.watch.watch import StageMeter


AnyTimed = TypeVar("AnyTimed", bound=Timeable)


_AT_ONCE = 8192
"""The number of elements that are skipped at once: an endless stream has more than memory can hold."""


class InlinePlanner(Planner):
    """Builds networks that compute everything in this process, on demand."""

    def __init__(self, context: Context, options: Options, cache_bytes: int = 2**34) -> None:
        super().__init__(context)
        self.options = options
        self._cache_bytes = cache_bytes
        context.replay = replays(options, cache_bytes)

    def cache_limit(self) -> int:
        return self._cache_bytes

    def stage(self, node: Operator, base: Operator, up: Machine, pass_: int) -> Machine:
        context = self.context
        hand = owned if node.hands_on(refs=isinstance(up, Positions)) else None
        value, identity = compile_values(node, context, self.open_inner, hand=hand)
        gather = compile_gather(node, context, self.open_inner)
        meter = meter_of(node, context, "consumer")

        def compiled(hand: Hand, *, timed: bool) -> Value:
            timer = Timer(context.watch.sample(meter.name)) if timed else None
            return compile_values(node, context, self.open_inner, timer, hand=hand)[0]

        def made() -> InlineStage:
            stage = InlineStage(
                up,
                value,
                identity,
                pass_,
                context,
                chain=recomputes(node),
                meter=meter,
                compiled=compiled,
            )
            stage.hand, stage.gather = hand, gather
            run = run_of(node.inputs[0] if node.noting else node)
            stage.passing = all(part.passes for part in run)
            stage.owning = not (stage.passing and base.ours)
            return self.timing(stage)

        if context.probes:
            return made()

        elements = elements_of(node, value, gather)
        if elements is not None:
            plain = made()
            plain.elements, plain.owning = elements, False  # no function of the user's makes them
            if node.stored is not None:
                stored = node.stored
                plain.most = lambda: stored.reader.at_once
            return plain

        together = compile_together(node, context, self.open_inner)
        if together is not None and isinstance(up, Positions):
            batches = made()
            batches.elements, most = together
            batches.most = lambda: most
            return batches

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
                        closures=made,
                    )
                )
        return made()

    def timing(self, stage: AnyTimed) -> AnyTimed:
        """Register a stage for timing, if this is the consumer's own network."""
        if self.context.sampling is not None:
            self.context.sampling.add(stage)
        return stage

    def batches(self, node: Batch, up: Machine) -> Machine:
        context = self.context
        label, meter = context.label(node), meter_of(node, context, "consumer")
        return self.timing(InlineBatches(node, up, label, watch=context.watch, meter=meter))

    def beside(self, plan: Operator, pass_: int) -> Machine:
        return open_inline(self.context.beside(plan, pass_), Options())

    def flattened(self, node: FlatMap, base: Operator, pass_: int) -> Machine:
        if not node.consecutive:
            return super().flattened(node, base, pass_)
        from tundish.loader.run.inline.sequence import FileSequence  # noqa: PLC0415 - if there are

        up = self.build(node.up, pass_)
        meter = meter_of(node, self.context, "consumer")
        timer = self._stream_timer(meter)
        dataset, identity = compile_inner(node, self.context, self.open_inner, timer)
        return self.timing(
            FileSequence(
                cast("ReadFiles", node),
                up,
                dataset,
                identity,
                pass_=pass_,
                context=self.context,
                meter=meter,
                timer=timer,
            )
        )

    def _stream_timer(self, meter: StageMeter) -> StreamTimer | None:
        """Return the timer of a stage of inner datasets; None if nothing is timed here."""
        context = self.context
        if context.sampling is None or not context.watch.enabled:
            return None
        return StreamTimer(context.watch, meter.name)

    def inners(self, node: FlatMap, up: Machine, base: Operator, pass_: int) -> Inners:
        from tundish.loader.run.inline.inners import InlineInners  # noqa: PLC0415 - as above

        meter = meter_of(node, self.context, "consumer")
        timer = self._stream_timer(meter)
        dataset, identity = compile_inner(node, self.context, self.open_inner, timer)
        return self.timing(
            InlineInners(
                up,
                dataset,
                identity,
                pass_,
                open_inner=self.open_inner,
                context=self.context,
                placed=node.placed,
                meter=meter,
                timer=timer,
            )
        )

    def open_inner(self, plan: Operator, origin: tuple[Any, ...], skip: int) -> Machine:
        """Return a network over the dataset that a flat_map's function returned.

        Its first `skip` items are left out. For records of a file `skip` is the offset at which to begin.
        """
        plan = resolved_inner(effective(plan, self.options.on_error))
        plan = measured_plan(plan, self.options, edges=False)
        context = self.context.inner(plan, origin)
        return InlinePlanner(context, self.options, self._cache_bytes).after(skip)

    def after(self, skip: int) -> Machine:
        """Return a network over the whole plan, with the first items left out."""
        context, node = self.context, self.context.root
        begun = node.begun(context, skip)
        if begun is not None:
            return begun
        base, dropping = chain_base(node)
        if not skip or dropping:
            network = self.computed(node, context.iteration)
            leave_out(network, skip, context)
            return network
        # Maps after the base need not run for the skipped items.
        up = self.build(base, context.iteration)
        leave_out(up, skip, context)
        up = measured(node, base, up, context)
        return up if self.is_computed(node) else self.stage(node, base, up, context.iteration)


def replays(options: Options, cache_bytes: int) -> Replay:
    """Return a function that replays a pass in this process."""

    def replay(context: Context, node: Operator, pass_: int) -> Iterator[tuple[Ref, Any]]:
        """Yield the elements of a pass of a node from its start, as (ref, element or `BrokenElement`)."""
        alone = node.run_again()
        if alone is not None:
            yield from enumerate(alone)
            return
        network = InlinePlanner(context.again(), options, cache_bytes).computed(node, pass_)
        while True:
            try:
                item = network.next()
            except End:
                return
            failed = type(item) is Failure
            yield item.ref, BrokenElement(item.error) if failed else item.value

    return replay


def open_inline(context: Context, options: Options) -> Machine:
    """Return an in-process network over a whole plan."""
    return InlinePlanner(context, options).computed(context.root, context.iteration)


def leave_out(machine: Machine, count: int, context: Context) -> None:
    """Skip the next items of a machine, several at once if possible: they were delivered before."""
    try:
        with context.watch.unwatched():
            while count > 0:
                found = taken(machine, min(count, _AT_ONCE))
                if found is None:
                    machine.next()
                count -= 1 if found is None else len(found)
    except End:
        pass
