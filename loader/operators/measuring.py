"""latency_stats and bytes_produced_stats: measurements of the elements that pass an edge of the plan.

An element that is computed between a stage's input and its output is noted by its evaluator, in whichever process
that is. An element that arrives computed is noted as it passes, since no evaluator runs for it. Each element is one or
the other, so it is noted once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import check_text
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.protocols.chains import chain_base, run_of
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import DROPPED, Failure
from tundish.loader.protocols.operator import Operator, Passing
from tundish.loader.protocols.rows import Rows

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine, Maker, Mark, Value

_UNCOMPUTED = (int, tuple, Failure)

Note = Callable[[Any, float], None]
"""``note(element, seconds)``."""


@dataclass(frozen=True, eq=False)
class Measuring(Passing):
    """The elements of its input, measured as they pass."""

    tag: str | None
    """The name of the measurements. None: ``record_latency_`` and the label of the operator before."""

    tuning = frozenset({"tag"})
    measures = one_by_one = True

    def noting_in(self, context: Context, nbytes: Callable[[Any], int]) -> Note:
        """Return the function that notes an element; `nbytes` returns an element's size."""
        raise NotImplementedError

    def tag_in(self, context: Context) -> str:
        """Return the tag under which the measurements are recorded."""
        return f"record_latency_{context.label(self.up)}" if self.tag is None else self.tag

    def evaluator(self, maker: Maker) -> Value:
        up = maker.below(self, self.up)
        note = self.noting_in(maker.context, nbytes_of)
        base, _ = chain_base(self)
        computing = not all(each.transparent for each in run_of(self))
        passed_by = not computing and not base.positional

        def value(item: Any, pass_: int) -> Any:
            if passed_by and type(item) not in _UNCOMPUTED:
                return up(item, pass_)
            began = perf_counter()
            element = up(item, pass_)
            if element is not DROPPED:
                note(element, perf_counter() - began)
            return element

        return value


@dataclass(frozen=True, eq=False)
class Latency(Measuring):
    """Measures the time that each element took."""

    op = "latency_stats"

    def noting_in(self, context: Context, nbytes: Callable[[Any], int]) -> Note:
        watch, tag = context.watch, self.tag_in(context)
        return lambda _, seconds: watch.edge(tag, seconds)


@dataclass(frozen=True, eq=False)
class BytesProduced(Measuring):
    """Measures the size of each element."""

    op = "bytes_produced_stats"

    def noting_in(self, context: Context, nbytes: Callable[[Any], int]) -> Note:
        watch, tag = context.watch, self.tag_in(context)
        return lambda element, _: watch.count(tag, nbytes(element))


class MeasuredStream:
    """A stream whose computed items are measured.

    The time of an element is from the first call that asked for it to the call that returned it.
    """

    def __init__(self, up: Machine, note: Note) -> None:
        self._up, self._note = up, note
        self._began: float | None = None

    def next(self) -> Any:
        if self._began is None:
            self._began = perf_counter()
        item = self._up.next()  # if it is not ready, the next call asks for the same one
        began, self._began = self._began, None
        if type(item) not in _UNCOMPUTED:
            self._note(item, perf_counter() - began)
        return item

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any) -> None:
        self._up.load(state)


def measuring(node: Operator, up: Machine, context: Context) -> Machine:
    """Return a computed stream with the measuring nodes before the first map or filter up to `node`."""
    for each in reversed(run_of(node)):
        if isinstance(each, Measuring):
            up = MeasuredStream(up, each.noting_in(context, item_nbytes))
        elif not each.transparent:
            break
    return up


def item_nbytes(item: Any) -> int:
    """Return the size of a computed item's element."""
    if type(item) is not Rows:
        return nbytes_of(item.value)
    total = 0
    for block, first, stop, _ in item.runs:
        loose = block.layout is None or block.elements
        parts = (
            [block.element(k) for k in range(first, stop)] if loose else [block.batch(first, stop)]
        )
        total += sum(map(nbytes_of, parts))
    return total


def nbytes_of(element: Any) -> int:
    """Return the size of an element: the bytes of its arrays and numbers, and of text as UTF-8."""
    if isinstance(element, np.ndarray) and element.dtype.hasobject and element.dtype.kind == "O":
        return sum(map(nbytes_of, element.flat))
    if isinstance(element, (np.ndarray, np.generic)):
        return int(element.nbytes)
    if isinstance(element, str):
        return len(element.encode("utf-8", "surrogatepass"))
    if isinstance(element, bytes):
        return len(element)
    if isinstance(element, dict):
        return sum(map(nbytes_of, element.values()))
    if isinstance(element, (tuple, list)):
        return sum(map(nbytes_of, element))
    return 0  # a dataset, which is read by itself, or None


_REBUILT: weakref.WeakKeyDictionary[Operator, dict[str, Operator]] = weakref.WeakKeyDictionary()


def with_all_edges(root: Operator) -> Operator:
    """Return a plan with a `Latency` after every operator that makes, chooses or orders elements."""
    edges: dict[int, Operator] = {}

    def rebuilt(node: Operator) -> Operator:
        changes = other_inputs(node, edge)
        return replace(node, **changes) if changes else node

    def edge(node: Operator) -> Operator:
        if id(node) not in edges:
            new = rebuilt(node)
            # A noting node is one half of an operator: the other half knows it by its type.
            edges[id(node)] = new if node.transparent or node.noting else Latency(new, None)
        return edges[id(node)]

    return _once(root, "edges", edge)


def without_measuring(root: Operator) -> Operator:
    """Return a plan without measuring operators."""
    done: dict[int, Operator] = {}

    def rebuilt(node: Operator) -> Operator:
        if isinstance(node, Measuring):
            return rebuilt(node.up)
        if id(node) not in done:
            changes = other_inputs(node, rebuilt)
            done[id(node)] = replace(node, **changes) if changes else node
        return done[id(node)]

    return _once(root, "without", rebuilt)


def _once(root: Operator, what: str, rebuild: Callable[[Operator], Operator]) -> Operator:
    """Rebuild a plan once for all its iterators, since the iterators of one plan share caches."""
    known = _REBUILT.get(root, {})
    if what not in known:
        new = rebuild(root)
        if new is root or not root.inputs:  # nothing to keep, and it would hold its own key
            return new
        _REBUILT.setdefault(root, {})[what] = new
    return _REBUILT[root][what]


class MeasuringMethods(Fluent):
    """Methods of `Dataset` that measure the elements that pass."""

    def latency_stats(self, tag: str) -> Self:
        """Measure how long the operators up to here take for each element.

        Parameters
        ----------
        tag : str
            The name of the measurements: ``it.stats.edges[tag]`` is a `Histogram`, and a
            `StatsAggregator` has it, too. Operators with the same tag are counted together.

        Raises
        ------
        TypeError
            `tag` is not a str.
        ValueError
            `tag` is empty.

        Notes
        -----
        The operator does not change the elements, their order, where they are computed, or the iterator's
        state. It measures the time that the operators before it take, in whichever process they run, back to the
        last operator after which an element is complete (`batch`, `cache`, `filter` and others).
        Directly after such an operator it measures the time spent waiting for the element. Every element that passes
        counts once, even if a worker died while computing it. Elements that failed or were dropped before do not
        count. Elements that workers computed ahead count even if they are never delivered; elements that a
        restored iterator computes again do not.

        TensorFlow up to 2.4 had ``tf.data.experimental.latency_stats``, for `apply`. That form exists here, too.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(4).map(lambda x: x * 2).latency_stats("doubled")
        >>> with iter(ds) as it:
        ...     [int(x) for x in it], it.stats.edges["doubled"].count
        ([0, 2, 4, 6], 4)
        """
        return self._then(Latency, check_tag(tag))

    def bytes_produced_stats(self, tag: str) -> Self:
        """Count the bytes of the elements that pass.

        Parameters
        ----------
        tag : str
            The name of the sum: ``it.stats.counters[tag]``, also in a
            `StatsAggregator`. Operators with the same tag are counted together.

        Raises
        ------
        TypeError
            `tag` is not a str.
        ValueError
            `tag` is empty.

        Notes
        -----
        Arrays and numbers count with their size in memory, and text with its size in UTF-8. A dataset within an
        element does not count. See `latency_stats` for the elements that count.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(6).batch(2).bytes_produced_stats("batches")
        >>> with iter(ds) as it:
        ...     len(list(it)), it.stats.counters["batches"]
        (3, 48)
        """
        return self._then(BytesProduced, check_tag(tag))


def check_tag(tag: Any) -> str:
    """Check a tag: a str that is not empty."""
    if not check_text("tag", tag):
        raise ValueError("tag must not be empty: it is the name under which the numbers are found")
    return str(tag)
