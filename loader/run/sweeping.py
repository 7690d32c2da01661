"""Plain maps and filters over a source, in this process: one generator over another.

The closures of `tundish.loader.run.values` cost more than a cheap function itself. Where a run of map
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

from tundish.loader.operators.counting import Range
from tundish.loader.operators.elementwise import Filter, Map
from tundish.loader.plan.node import walk
from tundish.loader.protocols.blame import NODE_MARK, raise_from
from tundish.loader.protocols.chains import run_of
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.ownership import SCALARS, lend, lent, lent_result, owned, owned_result
from tundish.loader.protocols.positional import Taken
from tundish.loader.protocols.results import checked, truth
from tundish.loader.protocols.stated import own
from tundish.loader.watch.watch import MOST

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Hand, Identity, Machine, Mark, Operator, Value
    from tundish.loader.protocols.positional import Positions
    from tundish.loader.watch.watch import Sample, StageMeter

Step = Callable[[Iterator[Any]], Iterator[Any]]
"""One operator: its elements of its input's."""

Steps = tuple[str, Callable[..., Any], Callable[[Callable[..., Any], bool], Step]]
"""One operator: its name, its function, and ``make(function, owning)``, which makes the step of that function,
or of one that is timed, for a stage that owns what it gives or lends it."""

_CHUNK = 1024


def compile_steps(top: Operator, context: Context) -> list[Steps] | None:
    """Make the generators of a run of plain maps and filters; None where it is not plain."""
    if any(isinstance(node, (Map, Filter)) and _has_policy(node) for node in walk(top)):
        return None  # wherever it stands, what it skips and calls again is counted
    steps: list[Steps] = []
    run = run_of(top)
    top = next((node for node in run if isinstance(node, (Map, Filter))), top)
    for node in reversed(run):
        if isinstance(node, Map):
            if node.seed is not None or node.signature is not None:
                return None
            steps.append(_mapping(node.function, context.label(node), last=node is top))
        elif isinstance(node, Filter):
            label = context.label(node)
            tally = context.watch.tally(label)
            steps.append(_filtering(node.predicate, label, tally, last=node is top))
        elif node.measures:
            return None
    return steps or None


def _has_policy(node: Map | Filter) -> bool:
    return node.on_error in ("skip", "retry")


def _timed(function: Callable[..., Any], sample: Sample, own: list[float]) -> Callable[..., Any]:
    """A function that notes what it takes."""

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


def _mapping(function: Callable[..., Any], label: str, *, last: bool) -> Steps:
    def make(function: Callable[..., Any], owning: bool) -> Step:
        if not last:
            return _mapped(function, label, lent_result)
        return _mapped(function, label, owned_result) if owning else _looked_at(function, label)

    return label, function, make


def _filtering(predicate: Callable[..., Any], label: str, tally: list[int], *, last: bool) -> Steps:
    def make(predicate: Callable[..., Any], owning: bool) -> Step:
        return _filtered(predicate, label, tally, owned if last and owning else None)

    return label, predicate, make


def _looked_at(function: Callable[..., Any], label: str) -> Step:
    """Make a step whose elements are written into a row at once: whose they are does not matter."""
    int64 = np.int64

    def mapped(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                y = function(*x) if type(x) is tuple else function(x)
                if type(y) is not int64:
                    y = checked(y)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            yield y

    return mapped


def _mapped(function: Callable[..., Any], label: str, hand: Callable[..., Any]) -> Step:
    """Make a step whose elements are kept by the stage, or given to the next function."""
    int64 = np.int64

    def mapped(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                y = function(*x) if type(x) is tuple else function(x)
                if type(y) is not int64:
                    # No variable of this frame is to refer to it while others look at it.
                    x = None  # noqa: PLW2901 - see above
                    y = hand(y, y := None)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            if x is None:
                yield (y, y := None)[0]
            else:
                yield y

    return mapped


def _filtered(predicate: Callable[..., Any], label: str, tally: list[int], hand: Hand) -> Step:
    bool_, int64 = np.bool_, np.int64

    def filtered(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                keep = predicate(*x) if type(x) is tuple else predicate(x)
                if type(keep) is not bool_:
                    keep = truth(keep)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            if not keep:
                tally[0] += 1
            elif type(x) is int64 or type(x) in SCALARS:
                yield x
            elif hand is None:  # as in `_mapped`
                yield (x, x := None)[0]
            else:
                yield hand(x, x := None)

    return filtered


class SweptStage:
    """The elements of plain maps and filters over positions.

    Parameters
    ----------
    up : Positions
        Of `base`.
    base : Operator
        The source, or what chooses positions of it.
    value : Value
        The evaluator of `base`.
    steps : list of Steps
        What is done to its elements.
    identity, pass_, context
        As for `InlineStage`.
    meter : StageMeter
        Where it is counted.
    closures : callable
        Makes an `InlineStage` in its place, for a state that leaves out what came out of turn.

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
        self._up, self._base, self._value, self._steps = up, base, value, steps
        self._identity, self._pass, self._where = identity, pass_, context.where
        self._pending: Made | Failure | None = None
        self._size = 16
        self._taken = Taken(up)
        meter.follow(self._taken)
        self._begin(())

    def lend(self) -> None:
        """As of `InlineStage`."""
        self.owning = False
        self._chain()

    def _begin(self, refs: Any) -> None:
        """Go on with the elements of a chunk of refs."""
        self._refs = refs = refs.tolist() if isinstance(refs, np.ndarray) else refs
        self._count = len(refs)
        self._source: Iterator[Any]
        if isinstance(self._base, Range):
            numbers = np.asarray(refs, np.int64) * self._base.step + self._base.start
            numbers = numbers.astype(self._base.dtype or np.int64, copy=False)
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
        """Begin or end to note what each function takes."""
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
        if not isinstance(self._base, Range):  # its evaluator may be what failed
            self._source = _evaluated(self._value, self._counter, self._pass)
        self._chain()
        self._meter.fail(getattr(error, NODE_MARK, self._meter.name))
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
                    return Made(self._ref(), element)
            except Exception as error:  # noqa: BLE001 - the element's error
                return self._failed(error)
            self._refill()

    def run(self, most: int, kind: type | None) -> Any:
        """As `next`, but of numbers of one type several at once.

        Parameters
        ----------
        most : int
            How many at most.
        kind : type or None
            Of what type; None: of any.

        Returns
        -------
        (list of Ref, list) or an item
        """
        item = self.next()
        if self._other is not None or type(item) is Failure or not is_number(item.value):
            return item
        kind = kind or type(item.value)
        if type(item.value) is not kind or most == 1:
            return item
        refs, values = [item.ref], [item.value]
        note, keep = refs.append, values.append
        counter, count, own = self._counter, self._count, self._refs
        try:
            for element in islice(self._elements, most - 1):
                ref = own[count - length_hint(counter) - 1]
                if type(element) is not kind:
                    self._pending = Made(ref, element)
                    break
                note(ref)
                keep(element)
        except Exception as error:  # noqa: BLE001 - the element's error
            self._pending = self._failed(error)
        return refs, values

    def mark(self) -> Mark:
        if self._other is not None:
            return self._other.mark()
        # What is pending has been taken from the source, but not been given.
        left = length_hint(self._counter) + (self._pending is not None)
        return self._up.mark() - left

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


def is_number(value: Any) -> bool:
    """Whether a value is a number of numpy's, whose type says its dtype."""
    return isinstance(value, np.generic) and value.dtype.kind in "biufc"


def _evaluated(value: Value, refs: Iterable[Any], pass_: int) -> Iterator[Any]:
    for ref in refs:
        yield lent(value(ref, pass_))
