"""The order of a stream: one small state machine for every operator that chooses or orders.

A machine gives *items* (see `tundish.loader.run.items`), computed or not; it never calls a user's
function. With workers and without, the same machines run in the consumer's process, so the order
cannot depend on workers. A machine has

* ``next()``: the next item; raises `End`, or `NotReady` when it has to wait for a worker (it may
  then be called again: what it has gathered so far is kept);
* ``mark()``: where it stands just after the item it last gave; immutable, so that a mark stays
  good while the machine runs ahead. A state is made of the mark of the last *delivered* item;
* ``dump(mark)``: a mark as JSON, nested by operator, without a word of workers or stages;
* ``load(state)``: go there (on a new machine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import length_hint
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.loader.run.generating import generated
from tundish.loader.run.items import (
    End,
    Failure,
    Made,
    NotReady,
    Ref,
    ref_of,
)
from tundish.loader.run.nested import contract, expand, is_nested
from tundish.loader.run.positions import concat_base, pass_base, radix, refs_at
from tundish.loader.run.watched import meter_of

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node, Unary
    from tundish.loader.plan.order import Concatenate, Repeat, ShardByProcess
    from tundish.loader.plan.sources import Generator
    from tundish.loader.run.context import Context

_CHUNK = 8192

Mark = Any


class Machine(Protocol):
    """What every machine does."""

    def next(self) -> Any:
        """The next item; raises End or NotReady."""
        ...

    def mark(self) -> Mark:
        """Where the machine stands after its last item."""
        ...

    def dump(self, mark: Mark) -> Any:
        """A mark as JSON."""
        ...

    def load(self, state: Any) -> None:
        """Go to where a state says."""
        ...


Build = Callable[["Node", int], Machine]
"""``build(node, pass)``: the machine of a node's stream."""


class Forgettable(Protocol):
    """What wants to know when nobody will ask it again."""

    def forget(self) -> None:
        """Nobody will."""
        ...


class Builder(Protocol):
    """What the makers of machines are given: the planner."""

    context: Context
    ahead: bool
    """Whether streams are asked before those who need them are."""

    def keeps(self, machine: Forgettable) -> None:
        """Have a machine told when nobody will ask it again."""
        ...

    def build(self, node: Node, pass_: int) -> Machine:
        """The stream of a node; its items may have to be computed yet."""
        ...

    def computed(self, node: Node, pass_: int) -> Machine:
        """The stream of a node, all of it computed."""
        ...

    def noted(self, node: Unary, pass_: int) -> Machine:
        """The computed stream of a noting node's input, each item with its note."""
        ...


MakeMachine = Callable[[Builder, Any, int], Machine]
"""``make(builder, node, pass)``: the machine of a node of some type."""


def several_of(machine: Any, most: int) -> list[Any] | None:
    """The next elements of a machine that can give several at once; None: ask `next`."""
    several = getattr(machine, "several", None)
    return None if several is None else several(most)


class Taken:
    """How many positions were taken of a stream, and not put back; it holds no more than their numbers.

    Parameters
    ----------
    up : Positions
        The stream.

    Attributes
    ----------
    rest : iterator
        Those that were taken in advance, and that nobody has got yet.
    """

    __slots__ = ("_first", "_up", "rest")

    def __init__(self, up: Positions) -> None:
        self._up, self.rest = up, iter(())
        self._first = up.mark()

    def __call__(self) -> int:
        return self._up.mark() - self._first - length_hint(self.rest)

    def restart(self) -> None:
        """Begin to count where the stream was brought to."""
        self._first = self._up.mark()


def rewrap(item: Any, wrap: Callable[[Ref], Ref]) -> Any:
    """Put an item's ref into an outer node's terms; a computed item keeps its value."""
    kind = type(item)
    if kind is int or kind is tuple:
        return wrap(item)
    item.ref = wrap(item.ref)
    return item


def listed(refs: Any) -> list[Ref]:
    """Refs that come as a range, array or list, as a list."""
    return refs.tolist() if isinstance(refs, np.ndarray) else list(refs)


class Positions:
    """The stream of a positional node: index arithmetic over blocks; its state is one integer."""

    def __init__(self, node: Node, pass_: int, context: Context) -> None:
        self._node, self._pass, self._context = node, pass_, context
        count = node.cardinality
        self._count = count if count >= 0 else None
        self._at = 0
        self._size = 64
        self._chunk: Iterator[Any] = iter(())
        self._nested = is_nested(node)

    def next(self) -> Any:
        for item in self._chunk:
            self._at += 1
            return item
        refs = self._refs(self._size)
        self._size = min(2 * self._size, _CHUNK)
        if not len(refs):
            raise End
        self._chunk = iter(refs if isinstance(refs, (range, list)) else refs.tolist())
        self._at += 1
        return next(self._chunk)

    def take(self, count: int) -> Any:
        """The next refs, at most `count`, as a range, array or list; empty at the end."""
        refs = self._refs(count)
        self._at += len(refs)
        self._chunk = iter(())
        return refs

    def _refs(self, count: int) -> Any:
        stop = self._at + count
        if self._count is not None:
            stop = min(stop, self._count)
        if stop <= self._at:
            return ()
        return refs_at(self._node, range(self._at, stop), self._pass, self._context)

    def run(self, most: int) -> list[Ref]:
        """As `next`, but several refs at once."""
        refs = self.take(most)
        if not len(refs):
            raise End
        return listed(refs)

    def back(self, count: int) -> None:
        """Give the last refs of `take` again."""
        self._at -= count

    def mark_back(self, left: int) -> int:
        """The mark so many items before the last one of a run."""
        return self._at - left

    def advance(self, count: int) -> None:
        """Leave out items without making them."""
        self._at += count if self._count is None else min(count, self._count - self._at)
        self._chunk = iter(())

    def mark(self) -> int:
        return self._at

    def dump(self, mark: int) -> Any:
        return expand(self._node, mark) if self._nested else mark

    def load(self, state: Any) -> None:
        self._at = contract(self._node, state)
        self._chunk = iter(())


_TIME_EACH = 16
"""Of so many elements of a generator one is timed."""


class Generated:
    """The stream of a user's generator, in the consumer's process."""

    def __init__(self, node: Generator, pass_: int, context: Context) -> None:
        self._node = node
        self._count = 0
        self._run: Iterator[Any] | None = None
        self._ended = False
        watch = context.watch
        self._meter = meter_of(node, context, "consumer")
        self._sample, self._timing = watch.sample, watch.enabled

    def next(self) -> Any:
        if self._ended:
            raise End
        at = self._count
        try:
            if self._run is None:
                self._run = generated(self._node)
                for _ in range(at):
                    next(self._run)
            if at % _TIME_EACH or not self._timing:
                value = next(self._run)
            else:
                began = perf_counter()
                value = next(self._run)
                name = self._meter.name
                self._sample(name).node(name).add(perf_counter() - began)
        except StopIteration:
            self._ended = True
            raise End from None
        except Exception as error:  # noqa: BLE001 - whatever the user's generator raises
            # As in tf.data, what the generator raises ends the pass after it.
            self._ended = True
            self._count += 1
            self._meter.fail(self._meter.name)
            return Failure(at, error)
        self._count += 1
        self._meter.elements += 1
        return Failure(at, value) if isinstance(value, Exception) else Made(at, value)

    def mark(self) -> Mark:
        return (self._count, self._ended)

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ended": mark[1]}

    def load(self, state: Any) -> None:
        self._count, self._ended = state["n"], state["ended"]


class Repeated:
    """Pass after pass of the input; a pass that gives nothing ends it."""

    def __init__(self, node: Repeat, build: Build, pass_: int) -> None:
        self._node, self._build, self._pass = node, build, pass_
        self._base, self._radix = pass_base(node), radix(node)
        self._p = 0
        self._some = False
        self._open()

    def _open(self) -> None:
        self._set(self._build(self._node.up, self._pass * self._radix + self._p))

    def _set(self, up: Machine) -> None:
        self._up = up
        p, base = self._p, self._base
        if base is None:
            self._wrap: Callable[[Ref], Ref] = lambda ref: (p, ref)
        else:
            self._wrap = lambda ref: p * base + ref

    def next(self) -> Any:
        count = self._node.count
        while count is None or self._p < count:
            try:
                item = self._up.next()
            except End:
                if not self._some:
                    raise
                if count is not None and self._p + 1 >= count:
                    raise
                self._p += 1
                self._some = False
                self._open()
                continue
            self._some = True
            return rewrap(item, self._wrap)
        raise End

    def several(self, most: int) -> list[Any] | None:
        """As the input's, if it has such a method; None at the end of a pass."""
        try:
            found = several_of(self._up, most)
        except End:
            return None
        self._some = self._some or bool(found)
        return found

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        up: Any = self._up
        return (self._p, self._some, up, up.mark_back(left))

    def mark(self) -> Mark:
        return (self._p, self._some, self._up, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        p, some, up, below = mark
        return {"pass": p, "some": some, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        self._p, self._some = state["pass"], state["some"]
        self._open()
        self._up.load(state["up"])


class Chosen:
    """skip, take and shard: the items at ``first, first + step, ...`` below ``stop``."""

    def __init__(self, up: Machine, first: int, step: int, stop: int | None) -> None:
        self._up, self._first, self._step, self._stop = up, first, step, stop
        self._seen = 0

    def next(self) -> Any:
        up, first, step = self._up, self._first, self._step
        while True:
            if self._seen < first:
                left_out = several_of(up, first - self._seen)
                if left_out is not None:
                    self._seen += len(left_out)
                    continue
            if self._stop is not None and self._seen >= self._stop:
                raise End
            item = up.next()
            at = self._seen - first
            self._seen += 1
            if at >= 0 and at % step == 0:
                return item

    def several(self, most: int) -> list[Any] | None:
        """As the input's, if it has such a method; None where items are left out, and at the end."""
        if self._stop is not None:
            most = min(most, self._stop - self._seen)
        if self._step > 1 or self._seen < self._first or most < 1:
            return None
        found = several_of(self._up, most)
        self._seen += len(found or ())
        return found

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        up: Any = self._up
        return (self._seen - left, up.mark_back(left))

    def mark(self) -> Mark:
        return (self._seen, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"seen": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._seen = state["seen"]
        self._up.load(state["up"])


class LeftOut:
    """A stream without some of its next items: what came out of turn before a state was taken.

    With ``deterministic=False`` the items behind a state's position have come in part. The ranges
    are of ordinals counted from that position.
    """

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._seen = 0
        self._ranges: tuple[tuple[int, int], ...] = ()

    def next(self) -> Any:
        while True:
            item = self._up.next()
            at = self._seen
            self._seen += 1
            if not any(first <= at < stop for first, stop in self._ranges):
                return item

    def mark(self) -> Mark:
        return (self._seen, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        seen, up = mark
        left = [[max(a - seen, 0), b - seen] for a, b in self._ranges if b > seen]
        return with_left_out(self._up.dump(up), left)

    def load(self, state: Any) -> None:
        self._ranges = tuple((a, b) for a, b in state["ahead"])
        self._up.load(state["up"])


def with_left_out(state: Any, ranges: list[list[int]]) -> Any:
    """A stage's state, with what has come out of turn behind it."""
    return {"ahead": ranges, "up": state} if ranges else state


def load_stage(up: Machine, state: Any) -> Machine:
    """Bring a stage's input to a state; what has come out of turn already is left out."""
    if isinstance(state, dict) and "ahead" in state:
        up = LeftOut(up)
    up.load(state)
    return up


class ProcessShare:
    """shard_by_process: one item of each round over all processes; its state is between rounds."""

    def __init__(self, node: ShardByProcess, up: Machine) -> None:
        self._up = up
        self._count = node.context.num_input_pipelines
        self._index = node.context.input_pipeline_id
        self._round: list[Any] = []
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        while len(self._round) < self._count:
            try:
                self._round.append(self._up.next())
            except End:
                self._ended = True
                break
        mine = self._round[self._index : self._index + 1]
        self._round = []
        if not mine:
            raise End
        return mine[0]

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        below = self._up.dump(mark)
        # Not at the top: a stage above tells its own counts from a state without any there.
        counted = isinstance(below, dict) and "counts" in below
        return {"share": below} if counted else below

    def load(self, state: Any) -> None:
        self._up.load(state["share"] if isinstance(state, dict) and "share" in state else state)


class Concatenated:
    """The first input, then the second."""

    def __init__(self, node: Concatenate, build: Build, pass_: int) -> None:
        self._parts: tuple[Node, ...] = node.inputs
        self._build, self._pass = build, pass_
        self._base = concat_base(node)
        self._which = 0
        self._up = build(self._parts[0], pass_)

    def _wrap(self, ref: Ref) -> Ref:
        if self._base is None:
            return (self._which, ref)
        return ref + self._base if self._which else ref

    def next(self) -> Any:
        while True:
            try:
                return rewrap(self._up.next(), self._wrap)
            except End:
                if self._which:
                    raise
                self._which = 1
                self._up = self._build(self._parts[1], self._pass)

    def mark(self) -> Mark:
        return (self._which, self._up, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        which, up, below = mark
        return {"part": which, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        if state["part"]:
            self._which = 1
            self._up = self._build(self._parts[1], self._pass)
        self._up.load(state["up"])


class Zipped:
    """One item of each input, side by side; the first input to end ends it."""

    def __init__(self, ups: list[Machine]) -> None:
        self._ups = ups
        self._count = 0
        self._held: list[Any] = []
        self._ended = False
        self._reached: Mark = None

    def next(self) -> Any:
        if self._ended:
            raise End
        held = self._held
        if not held:
            self.mark()  # items whose partners never come are in no state
        try:
            while len(held) < len(self._ups):
                held.append(self._ups[len(held)].next())
        except End:
            self._ended = True
            raise
        self._held = []
        self._reached = None
        n = self._count
        self._count += 1
        first = held[0]
        if type(first) is Failure:
            return Failure((n, *map(ref_of, held)), first.error)
        return (n, *held)  # a later input's error waits: the first may be one when it is computed

    def mark(self) -> Mark:
        if self._reached is None:
            self._reached = (self._count, [up.mark() for up in self._ups])
        return self._reached

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ups": [u.dump(m) for u, m in zip(self._ups, mark[1], strict=True)]}

    def load(self, state: Any) -> None:
        self._count = state["n"]
        self._reached = None
        for up, below in zip(self._ups, state["ups"], strict=True):
            up.load(below)


class Enumerated:
    """Items with their number in the pass."""

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._count = 0

    def next(self) -> Any:
        item = self._up.next()
        n = self._count
        self._count += 1
        if type(item) is Failure:
            return Failure((n, item.ref), item.error)
        return (n, item)

    def mark(self) -> Mark:
        return (self._count, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._count = state["n"]
        self._up.load(state["up"])


__all__ = [
    "Build",
    "Builder",
    "Chosen",
    "Concatenated",
    "Enumerated",
    "Generated",
    "LeftOut",
    "Machine",
    "MakeMachine",
    "Mark",
    "NotReady",
    "Positions",
    "ProcessShare",
    "Repeated",
    "Zipped",
    "listed",
    "load_stage",
    "rewrap",
    "with_left_out",
]
