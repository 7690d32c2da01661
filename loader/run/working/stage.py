"""The stages that a worker computes, each compiled once for all its passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.protocols.items import ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin, identities
from tundish.loader.protocols.raised import element_error
from tundish.loader.run.evaluating.evaluators import (
    compile_gather,
    compile_inner,
    compile_sweep,
    compile_values,
)
from tundish.loader.run.watching.timing import (
    CLOCK_S,
    TASK_S,
    StreamTimer,
    Timer,
    TimingSchedule,
)
from tundish.loader.run.watching.watched import evaluated
from tundish.loader.run.wire.messages import CONTINUING, WRITING

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Gather, Identity, Value
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.evaluating.values import OpenInner
    from tundish.loader.run.storing.orders import SnapshotWriter
    from tundish.loader.watch.watch import NodeTimes

_SYNC_BYTES = 32 << 20


class StageEvaluator:
    """One stage's evaluator.

    Parameters
    ----------
    value, identity : callable
        The evaluator and the identity, from `compile_values`; for a stream, of an item's inner plan.
    is_stream : bool
        True if it reads inner datasets.
    placed : bool
        True if their elements are named by offsets in a file.
    in_turn : int
        The number of them that are read in turn.

    Attributes
    ----------
    pass_ : int
        The number of the pass.
    sweep : callable or None
        Computes the elements of a range of items.
    gather : Gather or None
        Computes the columns of many items' elements.
    read : callable or None
        Reads the records of many items before they are evaluated.
    timed : Value or None
        Like `value`, with each node timed.
    turns : TimingSchedule or None
        Chooses the tasks to time.
    clock : StreamTimer or None
        Times each task of a stream.
    note_read : callable or None
        ``note_read(seconds)`` adds what `read` took in a timed task to the time of the source.
    """

    __slots__ = (
        "clock", "gather", "identity", "in_turn", "is_stream", "label", "note_read", "pass_", "placed",
        "read", "sweep", "timed", "turns", "value",
    )  # fmt: skip

    def __init__(
        self,
        value: Value,
        identity: Identity,
        *,
        is_stream: bool,
        placed: bool = False,
        in_turn: int = 0,
    ) -> None:
        self.value, self.identity, self.is_stream = value, identity, is_stream
        self.placed, self.in_turn = placed, in_turn
        self.pass_ = 0
        self.sweep: Any = None
        self.gather: Gather | None = None
        self.read: Any = None
        self.timed: Value | None = None
        self.turns: TimingSchedule | None = None
        self.clock: StreamTimer | None = None
        self.note_read: Callable[[float], None] | None = None
        self.label = ""

    @property
    def whole(self) -> bool:
        """True if many elements are computed at once."""
        return self.sweep is not None or self.gather is not None

    def error(self, error: Exception, item: Any, where: str) -> bytes:
        """Return an item's pickled error, with its element's origin and who computed it."""
        return dumps_exception(add_origin(error, self.origin(item), where))

    def origin(self, item: Any) -> str:
        """Describe the element of an item."""
        return describe_origin(*self.identity(ref_of(item), self.pass_))


class Stages:
    """The stages that a worker knows.

    Parameters
    ----------
    context : Context
        The iterator's context.
    open_inner : callable
        Opens the inner dataset of a `flat_map`.
    one_by_one : bool
        True if each element must be computed separately, because it has a deadline.
    """

    def __init__(self, context: Context, open_inner: OpenInner, *, one_by_one: bool) -> None:
        self._context, self._open_inner = context, open_inner
        self._one_by_one = one_by_one or bool(context.probes)
        self._stages: dict[int, StageEvaluator] = {}
        self._compiled: dict[tuple[int, int, int], StageEvaluator] = {}
        self.desk: SnapshotWriter | None = None
        """Writes the runs of snapshots; only in the writer."""

    def open(self, number: int, flag: int, what: tuple[int, int, int]) -> StageEvaluator:
        """Prepare a stage from its definition: its node, its base and its pass."""
        node, base, pass_ = what
        compiled = (flag, node, base)
        if compiled not in self._compiled:
            self._compiled[compiled] = self._compile(*compiled)
        self._stages[number] = stage = copy(self._compiled[compiled])
        stage.pass_ = pass_
        return stage

    def __getitem__(self, number: int) -> StageEvaluator:
        return self._stages[number]

    def _compile(self, is_stream: int, node: int, base: int) -> StageEvaluator:
        """Compile a stage from its nodes, for any pass."""
        nodes, context = self._context.nodes, self._context
        open_inner = self._open_inner
        if is_stream == WRITING:
            # pyarrow takes a while to load, and is needed by no other worker.
            from tundish.loader.run.storing.orders import SnapshotWriter  # noqa: PLC0415 - see above

            desk = self.desk = SnapshotWriter(_SYNC_BYTES)
            return StageEvaluator(
                lambda order, _: desk.do(order), identities(nodes[node], context), is_stream=False
            )
        if is_stream == CONTINUING:
            return self._continuing(nodes[node], nodes[base])
        if is_stream:
            flat_map: Any = nodes[node]
            label = context.label(flat_map.acting)
            clock = StreamTimer(context.watch, label) if context.watch.enabled else None
            stage = StageEvaluator(
                *compile_inner(flat_map, context, open_inner, clock),
                is_stream=True,
                placed=flat_map.placed,
                in_turn=flat_map.in_turn,
            )
            stage.clock = clock
            return stage
        stage = StageEvaluator(*compile_values(nodes[node], context, open_inner), is_stream=False)
        stage.label = context.label(nodes[node].acting)
        if not self._one_by_one:
            stage.sweep = compile_sweep(nodes[node], nodes[base], context)
            stage.read, source = compile_read(nodes[node], context)
            if stage.read is not None and context.watch.enabled:
                sample, label = context.watch.sample(stage.label), context.label(source)
                stage.note_read = functools.partial(_add_to_last, sample, label)
            stage.gather = compile_gather(nodes[node], context, open_inner)
        timed = context.watch.enabled
        if timed and stage.whole:  # one function, or none: the task is timed
            stage.turns = TimingSchedule(0.0, TASK_S)
        elif timed:
            self._time(stage, nodes[node], None)
        return stage

    def _continuing(self, node: Operator, computed: Operator) -> StageEvaluator:
        """Compile a stage that continues a run of operators, whose items another stage has computed at a node."""
        context = self._context
        made = compile_values(node, context, self._open_inner, computed=computed)
        stage = StageEvaluator(*made, is_stream=False)
        stage.label = context.label(node.acting)
        if context.watch.enabled:
            self._time(stage, node, computed)
        return stage

    def _time(self, stage: StageEvaluator, node: Operator, computed: Operator | None) -> None:
        """Add the evaluator that times each node."""
        context = self._context
        timer = Timer(context.watch.sample(stage.label))
        stage.timed, _ = compile_values(node, context, self._open_inner, timer, computed=computed)
        stage.turns = TimingSchedule(CLOCK_S * len(evaluated(node, computed)))


def _add_to_last(sample: NodeTimes, label: str, seconds: float) -> None:
    """Add seconds to the last time that was recorded for a node."""
    own = sample.own.setdefault(label, [])
    if own:
        own[-1] += seconds
    else:
        own.append(seconds)


def compile_read(
    top: Operator, context: Context
) -> tuple[Callable[[Sequence[Any], int], None] | None, Operator]:
    """Make a function that reads the records of many items before they are evaluated.

    Hugging Face datasets and torch's map-style datasets may have ``__getitems__(indices)``. One call for
    many records costs a fraction of one call per record.

    Parameters
    ----------
    top : Operator
        The node of the items.
    context : Context
        The function stores the records in its `records`, from which a source's evaluator takes them.

    Returns
    -------
    (callable or None, Operator)
        ``read(items, pass)``, and the source; None if the records come neither from indexed files nor from
        a single source with ``__getitems__``.
    """
    node = top
    while len(node.inputs) == 1 and node.flat and not node.keeps:
        node = node.inputs[0]
    getitems = node.several()
    if getitems is None:
        return None, node
    records = context.records.setdefault(id(node), {})
    identity = identities(top, context, by_number=True)

    def read(items: Sequence[Any], pass_: int) -> None:
        records.clear()
        origins = [identity(item, pass_)[1] for item in items if type(item) is int]
        indices = list(dict.fromkeys(index for index in origins if type(index) is int))
        if len(indices) < 2:
            return
        try:
            found = list(getitems(indices))
        except BaseException as error:  # noqa: BLE001 - one by one then: it belongs to its element
            element_error(error)
            return
        if len(found) == len(indices):
            records.update(zip(indices, found, strict=True))

    return read, node
