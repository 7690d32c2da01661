"""Plain maps and filters over a source, in this process: one generator over another.

The closures of `tundish.loader.run.evaluating.values` cost more than a cheap function itself. Where a run of map
and filter has no seeds, policies and signatures, and its source has random access, its elements come
out of nested generators instead, still one at a time and not before they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.node import walk
from tundish.loader.protocols.chains import run_of
from tundish.loader.protocols.chunk import Chunk
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.ownership import lend, lent
from tundish.loader.protocols.positional import TakenPositions
from tundish.loader.protocols.raised import node_of
from tundish.loader.protocols.refs import array_of
from tundish.loader.protocols.state_parsing import own
from tundish.loader.watch.watch import MOST

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Identity, Machine, Mark, Steps, Value
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.positional import Positions
    from tundish.loader.watch.watch import NodeTimes, StageMeter

_CHUNK = 1024


def compile_steps(top: Operator, context: Context) -> list[Steps] | None:
    """Return the generators for a chain of plain maps and filters; None if one of them is not plain."""
    if any(node.lenient for node in walk(top)):
        return None  # anywhere in the plan: skipped elements and repeated calls are counted
    run = run_of(top)
    top = next((node for node in run if node.calls), top)
    steps: list[Steps] = []
    for node in reversed(run):
        if not node.makes:
            continue
        step = node.chained(context, last=node is top)
        if step is None:
            return None
        steps.append(step)
    return steps or None


def _timed(function: Callable[..., Any], sample: NodeTimes, own: list[float]) -> Callable[..., Any]:
    """Wrap a function so that it notes its durations."""

    def timed(*args: Any) -> Any:
        if sample.full:
            return function(*args)
        began = perf_counter()
        try:
            return function(*args)
        finally:
            own.append(perf_counter() - began)
            if len(own) >= MOST:
                sample.full = True

    return timed


class SweptStage:
    """The stage of plain maps and filters over positions, run as a chain of generators.

    Parameters
    ----------
    up : Positions
        The positions that `base` gives.
    base : Operator
        The source, or the operator that chooses positions of it.
    value : Value
        The evaluator of `base`.
    steps : list of Steps
        The generators through which its elements go, first to last.
    identity, pass_, context
        As for `InlineStage`.
    meter : StageMeter
        The meter that counts its elements.
    closures : callable
        Makes the `InlineStage` that takes over when a state is loaded that leaves out elements.

    Attributes
    ----------
    owning : bool
        As for `InlineStage`.
    """

    owning = delivers_own = True

    def __init__(
        self,
        up: Positions,
        base: Operator,
        value: Value,
        steps: list[Steps],
        *,
        identity: Identity,
        pass_: int,
        context: Context,
        meter: StageMeter,
        closures: Callable[[], Machine],
    ) -> None:
        self._closures, self._meter = closures, meter
        self._sample, self._timed = context.watch.sample, False
        self._other: Machine | None = None
        self._up, self._value, self._steps = up, value, steps
        self._numbers = base.progression
        self._identity, self._pass, self._where = identity, pass_, context.where
        self._pending: Made | Failure | None = None
        self._place = 0  # the last element's index in `_refs`
        self._places = [0]  # those of the last chunk's elements
        self._size = 16
        self._taken = TakenPositions(up)
        meter.follow(self._taken)
        self._begin(())

    def lend(self) -> None:
        """Lend elements, as `InlineStage.lend` does."""
        self.owning = False
        self._chain()

    def _begin(self, refs: Any) -> None:
        """Continue with the elements of a chunk of refs."""
        self._refs = refs = refs.tolist() if isinstance(refs, np.ndarray) else refs
        self._count = len(refs)
        self._source: Iterator[Any]
        if self._numbers is not None:
            start, step, dtype = self._numbers
            numbers = (array_of(refs) * step + start).astype(dtype, copy=False)
            self._counter: Iterator[Any] = iter(list(numbers))
            self._source = self._counter
        else:
            value, pass_ = self._value, self._pass
            self._counter = iter(list(refs))
            self._source = _evaluated(value, self._counter, pass_)
        self._taken.rest = self._counter
        self._chain()

    def _chain(self) -> None:
        elements = self._source
        sample = self._sample(self._meter.name) if self._timed else None
        for label, function, make in self._steps:
            if sample is None:
                called = function
            else:
                called = _timed(function, sample, sample.own.setdefault(label, []))
            elements = make(called, self.owning)(elements)
        self._elements = elements

    def time(self, *, on: bool) -> None:
        """Start or stop noting how long each function takes."""
        self._timed = on
        self._chain()  # between two elements the generators hold nothing

    def _refill(self) -> None:
        refs = self._up.take(self._size)
        if not len(refs):
            raise End
        self._size = min(2 * self._size, _CHUNK)
        self._begin(refs)

    def _ref(self) -> Ref:
        """The ref of the element that was taken last."""
        return self._refs[self._count - length_hint(self._counter) - 1]

    def _failed(self, error: Exception) -> Failure:
        ref = self._ref()
        if self._numbers is None:  # its evaluator may be what failed
            self._source = _evaluated(self._value, self._counter, self._pass)
        self._chain()
        self._meter.fail(node_of(error, self._meter.name))
        add_origin(error, describe_origin(*self._identity(ref, self._pass)), self._where)
        return Failure(ref, error)

    def next(self) -> Any:
        if self._other is not None:
            return self._other.next()
        if self._pending is not None:
            item, self._pending = self._pending, None
            return item
        while True:
            try:
                for element in self._elements:
                    self._place = place = self._count - length_hint(self._counter) - 1
                    return Made(self._refs[place], element)
            except Exception as error:  # noqa: BLE001 - the element's error
                return self._failed(error)
            self._refill()

    def take(self, most: int) -> Chunk | None:
        """Take up to `most` elements that are numbers of one type; None if the next is no number."""
        if self._other is not None:
            return None
        item = self.next()
        if type(item) is Failure or not _is_number(item.value):
            self._pending = item
            return None
        kind, values, places = type(item.value), [item.value], [self._place]
        note, keep = places.append, values.append
        counter, last = self._counter, self._count - 1
        try:
            for element in islice(self._elements, most - 1):
                place = last - length_hint(counter)
                if type(element) is not kind:
                    self._place = place
                    self._pending = Made(self._refs[place], element)
                    break
                note(place)
                keep(element)
        except Exception as error:  # noqa: BLE001 - the element's error
            self._pending = self._failed(error)
        self._places = places
        return Chunk([self._refs[place] for place in places], columns=np.array(values))

    def mark(self, left: int = 0) -> Mark:
        if self._other is not None:
            return self._other.mark()
        if left:
            return self._up.mark() - (self._count - 1 - self._places[-1 - left])
        # What is pending has been taken from the source, but not been given.
        ahead = length_hint(self._counter) + (self._pending is not None)
        return self._up.mark() - ahead

    def dump(self, mark: Mark) -> Any:
        return (self._other or self._up).dump(mark)

    def load(self, state: Any) -> None:
        if own(state, "ahead"):
            self._other = self._closures()
            if not self.owning:
                lend(self._other)
            self._other.load(state)
            return
        self._up.load(state)
        self._begin(())
        self._pending = None
        self._taken.restart()


def _is_number(value: Any) -> bool:
    """Return True if a value is a number of numpy's, whose type says its dtype."""
    return isinstance(value, np.generic) and value.dtype.kind in "biufc"


def _evaluated(value: Value, refs: Iterable[Any], pass_: int) -> Iterator[Any]:
    for ref in refs:
        yield lent(value(ref, pass_))
