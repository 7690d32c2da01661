"""Computing in the consumer's process: the reference, and what runs with 0 workers.

`InlineStage` makes every item of a stream computed, one at a time and not before it is asked for.
The others put computed items together or take them apart.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.protocols.blame import NODE_MARK, give_up
from tundish.loader.protocols.collate import Collator
from tundish.loader.protocols.items import DROPPED, End, Failure, Made, Ref, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.ownership import SCALARS, lend, owned
from tundish.loader.protocols.positional import Positions, Taken
from tundish.loader.protocols.refs import BatchRefs
from tundish.loader.protocols.stated import count, load_part
from tundish.loader.run.overtaking import load_stage
from tundish.loader.run.sweeping import SweptStage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.batching import Batch
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Hand, Identity, Machine, Mark, Value
    from tundish.loader.watch.watch import StageMeter, Watch


class InlineStage:
    """Compute the items of a stream in this process.

    Parameters
    ----------
    up : Machine
        The stream.
    value, identity
        Of `compile_values`.
    pass_ : int
        The number of the pass.
    context : Context
        Of the iterator.
    chain : bool
        Whether the evaluator does more than computing the item: False passes computed items on.
    meter : StageMeter
        Where it is counted.
    compiled : callable
        ``compiled(hand, timed=)`` makes the evaluator again, for another `hand` or to time each node.

    Attributes
    ----------
    hand : callable or None
        How the evaluator hands its elements on by itself.
    owning : bool
        Whether the elements are made the receiver's own. Who writes each into a row before asking for the
        next needs no more than to look at it; what our own readers give is nobody else's.
    passing : bool
        Whether nothing of it makes new elements: items that have been computed are passed on or left out.
    """

    hand: Hand = None
    owning = True
    passing = False

    @property
    def delivers_own(self) -> bool:
        """Whether every element it gives has been made the receiver's own here."""
        return self.owning and self._taken is not None

    def __init__(
        self,
        up: Machine,
        value: Value,
        identity: Identity,
        pass_: int,
        context: Context,
        *,
        chain: bool,
        meter: StageMeter,
        compiled: Callable[..., Value],
    ) -> None:
        self._up, self._value, self._identity = up, value, identity
        self._meter, self._plain, self._compiled = meter, value, compiled
        self._timed: Value | None = None
        self._taken = Taken(up) if isinstance(up, Positions) else None
        if self._taken is not None:
            meter.follow(self._taken)
        self._pass, self._events, self._chain = pass_, context.events, chain
        self._where, self._notes = context.where, context.notes
        self._counts = Counts()

    def time(self, *, on: bool) -> None:
        """Begin or end to note what each node takes."""
        if on and self._timed is None:
            self._timed = self._compiled(self.hand, timed=True)
        self._value = self._timed if on and self._timed is not None else self._plain

    def lend(self) -> None:
        """Give elements to be looked at, from now on: `tundish.loader.protocols.ownership.lend`."""
        self.owning = False
        if self.hand is not None:
            self.hand = self._timed = None
            self._value = self._plain = self._compiled(None, timed=False)

    def next(self) -> Any:
        value, pass_, meter = self._value, self._pass, self._meter
        owning = self.owning and self.hand is None
        while True:
            item = self._up.next()
            kind = type(item)
            if kind is Failure or (kind is Made and not self._chain):
                meter.pass_on(failed=kind is Failure)
                return item
            try:
                if not owning:
                    element = value(item, pass_)
                elif kind is Made:
                    element = self._of_made(item)
                else:
                    element = value(item, pass_)
                    if type(element) not in SCALARS:
                        element = owned(element, element := None)
            except Exception as error:  # noqa: BLE001 - the element's error
                meter.fail(getattr(error, NODE_MARK, meter.name))
                return self._failed(ref_of(item), error)
            if self._events:
                self._counts.add(self._events)
            if element is not DROPPED:
                if self._taken is None:
                    meter.elements += 1
                note = self._notes.pop() if self._notes else None
                return Made(item if kind is int else _ref(item), element, note)

    def _of_made(self, item: Made) -> Any:
        """The element of an item that has been computed, which is ours if it only passes."""
        found = [self._value(item, self._pass)]
        if self.passing and found[0] is item.value:
            return item.value
        return owned(found.pop())

    def _failed(self, ref: Ref, error: Exception) -> Failure:
        self._counts.add(self._events)
        add_origin(error, describe_origin(*self._identity(ref, self._pass)), self._where)
        return Failure(ref, error)

    def mark(self) -> Mark:
        return (self._counts.by_event, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        counts, up = mark
        below = self._up.dump(up)
        return {"counts": counts, "up": below} if counts else below

    def load(self, state: Any) -> None:
        self._up = load_stage(self._up, state, self._counts)
        if self._taken is not None:
            self._taken.restart()


def _ref(item: Any) -> Ref:
    # A pair of ints, as enumerate makes, is its own ref; so is a batch's of rows by their numbers.
    if type(item) is tuple and len(item) == 2 and type(item[1]) in (int, BatchRefs):
        return item
    return ref_of(item)


def clocked(function: Callable[..., Any], inside: list[float]) -> Callable[..., Any]:
    """A function that adds what it takes."""

    def call(*args: Any) -> Any:
        began = perf_counter()
        try:
            return function(*args)
        finally:
            inside[0] += perf_counter() - began

    return call


class InlineBatches:
    """Stack computed items as they come; an error stands at its batch's place.

    Parameters
    ----------
    node : Batch
        How many.
    up : Machine
        The computed items.
    label : str
        Of the node.
    watch : Watch
        Of the iterator.
    meter : StageMeter
        Where it is counted.
    """

    def __init__(
        self, node: Batch, up: Machine, label: str, *, watch: Watch, meter: StageMeter
    ) -> None:
        self._up, self._size, self._drop = up, node.size, node.drop_remainder
        lend(up)
        self._label = label
        self._count = 0
        self._watch, self._meter = watch, meter
        self._own: list[float] | None = None

    def time(self, *, on: bool) -> None:
        """Begin or end to note what stacking takes."""
        own = self._watch.sample(self._label).own
        self._own = own.setdefault(self._label, []) if on else None

    def next(self) -> Any:
        if self._own is None:
            made = self._next()
        else:
            inside = [0.0]
            began = perf_counter()
            made = self._next(inside)
            self._own.append(perf_counter() - began - inside[0])
        if type(made) is Failure:
            self._meter.fail(self._label)
        else:
            self._meter.elements += 1
        return made

    def _next(self, inside: list[float] | None = None) -> Any:
        """The next batch; `inside` is told how long its items took."""
        batch = Collator(self._size)
        refs: list[Ref] = []
        add, take, note = batch.add, self._up.next, refs.append
        run = self._up.run if isinstance(self._up, SweptStage) else None
        if inside is not None:
            take, run = clocked(take, inside), None if run is None else clocked(run, inside)
        try:
            while batch.count < self._size:
                item = take() if run is None else run(self._size - batch.count, batch.scalar)
                if type(item) is tuple:  # numbers of one type, which fit
                    refs += item[0]
                    batch.extend(item[1])
                    continue
                if type(item) is Failure:
                    give_up(item.error, refs)
                    return Failure((self._count, (*refs, item.ref)), item.error)
                try:
                    add(item.value)
                except SpecError as error:
                    error.add_note(f"tundish: in {self._label}, at element {item.ref}")
                    give_up(error, refs)
                    return Failure((self._count, (*refs, item.ref)), error)
                note(item.ref)
                if run is not None and batch.scalar is None:
                    run = None  # numbers would not fit
        except End:
            if not refs or self._drop:
                raise
        n = self._count
        self._count += 1
        return Made((n, tuple(refs)), batch.finish())

    def mark(self) -> Mark:
        return (self._count, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        load_part(self._up, state)
