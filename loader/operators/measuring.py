"""Tags on the edges of a plan, where something of each element is measured."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.plan.stats import check_text
from tundish.loader.protocols.operator import Operator, Passing


@dataclass(frozen=True, eq=False)
class Measuring(Passing):
    """The same elements; something of each is noted as it passes."""

    tag: str | None
    """Under which name; None: that of the operator below, behind ``record_latency_``."""

    tuning = frozenset({"tag"})
    one_by_one = True


@dataclass(frozen=True, eq=False)
class Latency(Measuring):
    """How long each element took."""

    op = "latency_stats"


@dataclass(frozen=True, eq=False)
class BytesProduced(Measuring):
    """How large each element is."""

    op = "bytes_produced_stats"


_REBUILT: weakref.WeakKeyDictionary[Operator, dict[str, Operator]] = weakref.WeakKeyDictionary()


def with_all_edges(root: Operator) -> Operator:
    """The plan with a `Latency` behind every operator that makes, chooses or orders elements."""
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
    """The plan without what measures."""
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
    """A plan rebuilt once for all its iterators: a cache is shared by those of one plan."""
    known = _REBUILT.get(root, {})
    if what not in known:
        new = rebuild(root)
        if new is root or not root.inputs:  # nothing to keep, and it would hold its own key
            return new
        _REBUILT.setdefault(root, {})[what] = new
    return _REBUILT[root][what]


class MeasuringMethods:
    """Methods of `Dataset` that measure what passes."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def latency_stats(self, tag: str) -> Self:
        """Measure how long the operators up to here take for each element.

        Parameters
        ----------
        tag : str
            The name under which it is found: ``it.stats.edges[tag]``, a `Histogram`, and in a
            `StatsAggregator`. What has the same tag is counted together.

        Raises
        ------
        TypeError
            `tag` is no str.
        ValueError
            `tag` is empty.

        Notes
        -----
        The elements, their order, where they are computed and the iterator's state are the same
        as without it. Measured is what the operators below need, in whichever process they run,
        up to where the element was last at hand (behind `batch`, `cache`, `filter`, ... an
        element is); behind such an operator it is how long it has been waited for. Counted is
        every element that passes, once, though a worker died on it; what failed or was left out
        below is not. Workers run ahead: what they have made and nobody asked for counts too, but
        what a restored iterator makes again does not.

        It was ``tf.data.experimental.latency_stats`` up to 2.4, for `apply`: so it is
        here as well.

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
            The name under which the sum is found: ``it.stats.counters[tag]``, and in a
            `StatsAggregator`. What has the same tag is counted together.

        Raises
        ------
        TypeError
            `tag` is no str.
        ValueError
            `tag` is empty.

        Notes
        -----
        Arrays and numbers count as they lie in memory, text as UTF-8, and a dataset within an
        element not at all. What is counted is said at `latency_stats`.

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
    """A tag: a str that is not empty."""
    if not check_text("tag", tag):
        raise ValueError("tag must not be empty: it is the name under which the numbers are found")
    return str(tag)
