"""The stage that computes in the consumer's process: the reference, used where there are no workers.

`InlineStage` computes the items of a stream on demand: one at a time, or as columns if the plan can give the
columns of many refs at once.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.chunk import Chunk, taken
from tundish.loader.protocols.items import DROPPED, Failure, Made, Ref, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.ownership import SCALARS, owned
from tundish.loader.protocols.positional import Positions, TakenPositions
from tundish.loader.protocols.raised import element_error, node_of
from tundish.loader.protocols.refs import BatchRefs, ints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import (
        Elements,
        Gather,
        Hand,
        Identity,
        Machine,
        Mark,
        Value,
    )
    from tundish.loader.watch.watch import StageMeter


_AT_ONCE = 2**20


class InlineStage:
    """Compute the items of a stream in this process.

    Parameters
    ----------
    up : Machine
        The machine that gives the stage's input.
    value, identity : callable
        The evaluator and the identity function, from `compile_values`.
    pass_ : int
        The number of the pass.
    context : Context
        The iterator's context.
    chain : bool
        False if the evaluator only computes the item, so that an item that is already computed passes unchanged.
    meter : StageMeter
        Counts what the stage delivers.
    compiled : callable
        ``compiled(hand, timed=)`` compiles the evaluator again, with another `hand` or with each node timed.

    Attributes
    ----------
    hand : callable or None
        How the evaluator itself hands on its elements: `lent`, `owned`, or None.
    gather : callable or None
        Makes columns of many elements from their refs, if the plan allows it.
    elements : callable or None
        Makes many elements at once, ahead of demand, if the plan allows it.
    most : callable
        Returns the largest number of elements that may be made ahead of demand.
    owning : bool
        True if elements are made the receiver's own. It is False for a receiver that copies each element into a row
        before it asks for the next, and for elements of our own readers, which belong to nobody else.
    passing : bool
        True if the stage makes no new elements: computed items are passed on or dropped.
    """

    hand: Hand = None
    gather: Gather | None = None
    elements: Elements | None = None
    most = staticmethod(lambda: _AT_ONCE)
    owning = True
    passing = False
    _delivers = False

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        return self.most() if self._delivers and self.elements is not None else 1

    def deliver(self) -> None:
        """Deliver single elements from now on, not columns."""
        self._delivers = True

    @property
    def delivers_own(self) -> bool:
        """True if this stage makes every element it delivers the receiver's own."""
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
        self._taken = TakenPositions(up) if isinstance(up, Positions) else None
        if self._taken is not None:
            meter.follow(self._taken)
        self._pass, self._events, self._chain = pass_, context.events, chain
        self._where, self._notes = context.where, context.notes
        self._counts = Counts()
        self._sample = context.watch.sample
        self._clocked = False

    def time(self, *, on: bool) -> None:
        """Start or stop timing each node."""
        self._clocked = on
        if on and self._timed is None:
            self._timed = self._compiled(self.hand, timed=True)
        self._value = self._timed if on and self._timed is not None else self._plain

    def lend(self) -> None:
        """Lend elements from now on, to receivers that only read them: `tundish.loader.protocols.ownership.lend`."""
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
                meter.fail(node_of(error, meter.name))
                return self._failed(ref_of(item), error)
            if self._events:
                self._counts.add(self._events)
            if element is not DROPPED:
                if self._taken is None:
                    meter.elements += 1
                note = self._notes.pop() if self._notes else None
                return Made(item if kind is int else _ref(item), element, note)

    def take(self, most: int) -> Chunk | None:
        """Take up to `most` elements by their refs; None if the next has to be made separately."""
        gather, elements = self.gather, self.elements if self._delivers else None
        if (elements or gather) is None or (refs := taken(self._up, most)) is None:
            return None
        chunk, many, apart = None, 0, len(refs)  # unless some can be made together
        began = perf_counter() if self._clocked else 0.0
        if elements is not None:
            try:
                values = elements(refs, self._pass)
            except BaseException as error:  # noqa: BLE001 - raised again at its element
                element_error(error)
            else:
                many = len(values)
                apart = 0 if many else 1
                chunk = Chunk(refs[:many], values=values) if many else None
        elif gather is not None and (columns := gather(refs, self._pass)) is not None:
            chunk, many = Chunk(refs, columns=columns), len(refs)
        if self._clocked and many:
            name = self._meter.name
            self._sample(name).node(name).add((perf_counter() - began) / many, many)
        if many < len(refs):
            self._put_back(refs[many:], apart)
        if self._taken is None:
            self._meter.elements += many
        return chunk

    def _put_back(self, refs: Any, apart: int) -> None:
        """Return refs to the input, which gives them again, the first `apart` of them one by one."""
        if type(self._up) is not RewindableRefs:
            self._up = RewindableRefs(self._up)
        self._up.put(refs, apart)

    def _of_made(self, item: Made) -> Any:
        """Return the element of a computed item, made the receiver's own if it only passes through."""
        found = [self._value(item, self._pass)]
        if self.passing and found[0] is item.value:
            return item.value
        return owned(found.pop())

    def _failed(self, ref: Ref, error: Exception) -> Failure:
        self._counts.add(self._events)
        add_origin(error, describe_origin(*self._identity(ref, self._pass)), self._where)
        return Failure(ref, error)

    def mark(self, left: int = 0) -> Mark:
        up: Any = self._up
        return (self._counts.by_event, up.mark(left) if left else up.mark())

    def dump(self, mark: Mark) -> Any:
        counts, up = mark
        below = self._up.dump(up)
        return {"counts": counts, "up": below} if counts else below

    def load(self, state: Any) -> None:
        from tundish.loader.run.stages.overtaking import load_stage  # noqa: PLC0415 - if restored

        self._up = load_stage(self._up, state, self._counts)
        if self._taken is not None:
            self._taken.restart()


class RewindableRefs:
    """A stream of refs whose last ones may be put back.

    Parameters
    ----------
    up : Machine
        The machine that gives the refs.
    """

    def __init__(self, up: Any) -> None:
        self._up = up
        self._refs: Any = ()
        self._at = self._apart = 0
        self._listed: Iterator[Ref] | None = None

    def put(self, refs: Any, apart: int) -> None:
        """Put refs back; the first `apart` of them then come separately."""
        if self._at < len(self._refs):
            self._at -= len(refs)
        else:
            self._refs, self._at = refs, 0
        self._apart, self._listed = self._at + apart, None

    def next(self) -> Any:
        if self._at == len(self._refs):
            return self._up.next()
        if self._listed is None:
            self._listed = iter(ints(self._refs[self._at :]))
        self._at += 1
        return next(self._listed)

    def take(self, most: int) -> Any:
        """Take the next refs; None if the next one has to be asked for separately."""
        first = self._at
        if first == len(self._refs):
            return taken(self._up, most)
        if first < self._apart:
            return None
        found = self._refs[first : first + most]
        self._at, self._listed = first + len(found), None
        return found

    def mark(self, left: int = 0) -> Mark:
        return self._up.mark(left + len(self._refs) - self._at)

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any) -> None:
        self._refs, self._at = (), 0
        self._up.load(state)


def _ref(item: Any) -> Ref:
    # A pair of ints, as enumerate makes, is its own ref; so is a batch's of rows by their numbers.
    if type(item) is tuple and len(item) == 2 and type(item[1]) in (int, BatchRefs):
        return item
    return ref_of(item)
