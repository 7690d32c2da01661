"""`Watch`: counts and times of one process while a pipeline runs.

A worker's counts are taken from it with the answer of each task (`Watch.take`) and added to those of the
consumer, so everything counts once: a task whose worker died has reported nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.histogram import Durations, Histogram

if TYPE_CHECKING:
    from tundish.loader.watch.stats import NodeStats, StageStats
    from tundish.loader.watch.summary import StatsAggregator

Noted = tuple[dict[str, Any], dict[str, int], dict[str, int], dict[str, dict[str, Any]]]
"""What one task tells: durations of edges as `Durations.told`, counts, elements left out by node, and
what was timed: by stage, the durations of each node as `Durations.told`."""

MOST = 10_000
"""Durations of one thing that are noted before they are counted: however long one call takes, they do
not pile up."""


OPENING = ""
"""The name under which a stage notes how long its last node took to open inner datasets, all of them."""


class NodeTimes:
    """The measured times of one stage's nodes.

    Attributes
    ----------
    own : dict of str to list of float
        By node, the time of each element without its inputs; not yet counted.
    full : bool
        True if one node has enough times: timing is to stop until they are counted.
    """

    __slots__ = ("_nodes", "_noted", "full", "own")

    def __init__(self) -> None:
        self.own: dict[str, list[float]] = {}
        self.full = False
        self._nodes: dict[str, Durations] = {}
        self._noted = 0

    @property
    def noted(self) -> int:
        """The number of times noted in sequence."""
        return self._noted + sum(map(len, list(self.own.values())))

    def node(self, label: str) -> Durations:
        """Return a node's counted durations."""
        return self._nodes.setdefault(label, Durations())

    @property
    def rows(self) -> int:
        """The number of timed elements."""
        return max((each.count for each in list(self._nodes.values())), default=0)

    def settle(self) -> None:
        """Count the noted times."""
        for label, seconds in list(self.own.items()):
            taken = _taken(seconds)
            if taken:
                self._noted += len(taken)
                self.node(label).extend(taken)
        self.full = False

    def take(self) -> dict[str, Any]:
        """Return the noted times, and remove them here."""
        self.settle()
        taken = {label: each.told() for label, each in self._nodes.items()}
        self._nodes.clear()
        return taken

    def absorb(self, nodes: Mapping[str, Any]) -> None:
        """Add the times of another process."""
        for label, told in nodes.items():
            self.node(label).merge(Histogram(*told))


def _taken(noted: list[float]) -> list[float]:
    """Take out the times noted so far, while another thread may be adding more."""
    taken = noted[:]
    del noted[: len(taken)]
    return taken


class StageMeter:
    """The counts and times of one stage, over all machines that compute it.

    Parameters
    ----------
    name : str
        The stage's name, that of the last of its nodes.
    nodes : sequence of (str, bool, bool)
        Its nodes, the one next to the source first: name, True if it calls the user's function,
        True if it draws.
    where : {"workers", "consumer"}
        The process that computes it.

    Attributes
    ----------
    elements, dropped, errors : int
        Elements that have left it.
    rows, made : int
        Elements that were computed in tasks, and those that were not recomputed.
    passed : int
        Items that have left it unchanged, being computed before or errors.
    opened : int
        Inputs of which its last node has opened inner datasets: its other nodes make elements for these.
    """

    def __init__(self, name: str, nodes: Iterable[tuple[str, bool, bool]], where: str) -> None:
        self.name, self.where = name, where
        self.nodes = tuple(nodes)
        self.elements = self.dropped = self.errors = self.passed = 0
        self.rows = self.made = self.tasks = self.nbytes = self.opened = 0
        self._settled = 0
        self._count: Callable[[], int] | None = None
        self.busy_s = self.cpu_s = 0.0
        self._time = Durations()
        self._noted: list[float] = []
        self.failed: dict[str, int] = {}
        self.in_flight = self.ready = self.window = 0

    def follow(self, count: Callable[[], int]) -> None:
        """Count taken elements from now on by a machine's own counter.

        Counting each of them here would cost more than a cheap function does.
        """
        self._settled, self._count = self.taken, count

    @property
    def taken(self) -> int:
        """The number of elements taken from machines with counters."""
        return self._settled + (self._count() if self._count is not None else 0)

    def end(self) -> None:
        """Note that nothing more will be taken, and release the counters."""
        self._settled, self._count = self.taken, None

    def gave(self, elements: int, dropped: int = 0, errors: int = 0) -> None:
        """Count elements that have left the stage."""
        self.elements += elements
        self.dropped += dropped
        self.errors += errors

    def pass_on(self, *, failed: bool) -> None:
        """Count an item that has left the stage unchanged."""
        self.passed += 1
        if failed:
            self.errors += 1
        else:
            self.elements += 1

    def fail(self, label: str, times: int = 1) -> None:
        """Count an element that failed at a node; -1 times if it is requested again."""
        self.errors += times
        self.failed[label] = self.failed.get(label, 0) + times

    def leave_out(self, *, counted: bool) -> None:
        """Count a dropped error, which may have been counted as an error before."""
        self.dropped += 1
        self.errors -= counted

    def did(self, rows: int, busy_s: float, cpu_s: float) -> None:
        """Count a task."""
        self.tasks += 1
        self.rows += rows
        self.busy_s += busy_s
        self.cpu_s += cpu_s
        self._noted.append(busy_s)  # to count each of them would cost a call
        if len(self._noted) >= MOST:
            self._time.extend(_taken(self._noted))

    @property
    def time(self) -> Histogram:
        """The durations of tasks."""
        time = Durations()
        time.merge(self._time.frozen())
        time.extend(tuple(self._noted))  # noted they stay: another thread may ask
        return time.frozen()

    def frozen(self, sample: NodeTimes | None, dropped: Mapping[str, int]) -> StageStats:
        """Return the statistics so far.

        Parameters
        ----------
        sample : NodeTimes or None
            The stage's measured times.
        dropped : mapping of str to int
            Elements that each node has dropped.
        """
        from tundish.loader.watch.stats import NodeStats, StageStats  # noqa: PLC0415 - if asked

        nodes = []
        # Workers count what they leave out when it leaves the stage, in its turn.
        away = self.dropped or sum(dropped.get(name, 0) for name, _, _ in self.nodes)
        elements = self.elements
        if self.taken:
            elements += self.taken - away - sum(self.failed.values())
        left = made = self.made or elements + away + self.errors - self.passed
        if len(self.nodes) == 1 and self.passed:  # it puts together what others have made
            left = elements + away + self.errors
        if self.opened:
            left = self.opened
        for name, calls, draws in self.nodes:
            gone, failed = dropped.get(name, 0), self.failed.get(name, 0)
            if self.opened and name == self.nodes[-1][0]:
                left = made - sum(self.failed.get(other, 0) for other, _, _ in self.nodes[:-1])
            left -= gone + failed
            time = sample.node(name).frozen() if sample is not None else Histogram()
            nodes.append(NodeStats(name, left, gone, failed, time, 0.0, calls, draws))
        nodes = self._with_busy(nodes, sample, self.rows or made)
        return StageStats(
            name=self.name,
            nodes=tuple(nodes),
            where=self.where,
            elements=elements,
            dropped=away if self.where == "consumer" else self.dropped,
            errors=self.errors,
            tasks=self.tasks,
            rows=self.rows,
            busy_s=self.busy_s if self.tasks else sum(node.busy_s for node in nodes),
            cpu_s=self.cpu_s,
            nbytes=self.nbytes,
            time=self.time,
            in_flight=self.in_flight,
            ready=self.ready,
            window=self.window,
        )

    def _with_busy(
        self, nodes: list[NodeStats], sample: NodeTimes | None, rows: int
    ) -> list[NodeStats]:
        """Return nodes with their total times: those of the timed rows, extrapolated to all rows."""
        if sample is None or not nodes:
            return nodes
        timed_rows = sample.node(nodes[-1].name).count if self.opened else sample.rows
        share = rows / timed_rows if timed_rows else 0.0
        busy = [node.time.total_s * share for node in nodes]
        if self.opened:
            # Each opening is timed, with the nodes before it; workers report a part of them only later.
            reported = max(share, 1.0) if self.tasks else 1.0
            opening_s = sample.node(OPENING).frozen().total_s
            busy = [node.time.total_s * reported for node in nodes[:-1]]
            busy.append(nodes[-1].time.total_s * share + opening_s * reported)
        total_s = sum(busy)
        if self.tasks and total_s > self.busy_s:  # that of the whole stage is measured
            busy = [seconds * self.busy_s / total_s for seconds in busy]
        return [replace(node, busy_s=s) for node, s in zip(nodes, busy, strict=True)]


class Again:
    """The nesting depth of recomputation."""

    __slots__ = ("depth",)

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        self.depth -= 1


class Watch:
    """The counts and times of one process for one iterator.

    Parameters
    ----------
    enabled : bool
        True if anything is timed; counts are kept in any case.

    Attributes
    ----------
    samples : dict of str to NodeTimes
        The measured times, by stage.
    meters : dict of str to StageMeter
        The stages, in the order in which they were first made.
    opening_s : list of float
        Seconds in this process in which inner datasets were opened: all, and those while calls were timed.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.opening_s = [0.0, 0.0]
        self.is_inner = False
        self.samples: dict[str, NodeTimes] = {}
        self.meters: dict[str, StageMeter] = {}
        self._tallies: dict[str, list[int]] = {}  # what each node has left out
        self._edges: dict[str, list[float]] = {}
        self._counts: dict[str, int] = {}
        self._histograms: dict[str, Durations] = {}
        self._told: deque[Noted] = deque()  # by workers, and not yet counted
        self._again = Again()
        self._lock = Lock()

    def inner(self) -> Watch:
        """Return the watch of a dataset that a function made, with common edges and counters."""
        inner = Watch(enabled=False)
        inner.is_inner = True
        inner._edges, inner._counts = self._edges, self._counts
        inner._histograms, inner._again, inner._lock = self._histograms, self._again, self._lock
        return inner

    def edge(self, tag: str, seconds: float) -> None:
        """Note the time of an element at an edge of the plan."""
        if self._again.depth:
            return
        noted = self._edges.setdefault(tag, [])
        noted.append(seconds)
        if len(noted) >= MOST:
            self.settle()

    def count(self, tag: str, n: int) -> None:
        """Add to a counter."""
        if self._again.depth:
            return
        self._counts[tag] = self._counts.get(tag, 0) + n

    def tally(self, label: str) -> list[int]:
        """Return a node's count of dropped elements as a one-item list, which callers increment without a call."""
        return self._tallies.setdefault(label, [0])

    def unwatched(self) -> Again:
        """Return a context in which elements are recomputed and not counted again."""
        return self._again

    def sample(self, stage: str) -> NodeTimes:
        """Return a stage's measured times."""
        found = self.samples.get(stage)
        if found is None:
            found = self.samples[stage] = NodeTimes()
        return found

    def meter(self, name: str, nodes: Iterable[tuple[str, bool, bool]], where: str) -> StageMeter:
        """Return a stage's meter, made on first use; those of inner datasets are private."""
        if self.is_inner:
            # Kept, it would lead from a plan to itself: nothing would be freed at once.
            return StageMeter("", (), where)
        found = self.meters.get(name)
        if found is None:
            found = self.meters[name] = StageMeter(name, nodes, where)
        return found

    def end(self) -> None:
        """Note that nothing more will be counted; the counts stay."""
        for meter in self.meters.values():
            meter.end()

    # -- from a worker to the consumer -----------------------------------------------------------

    @property
    def has_told(self) -> bool:
        """True if there is anything to send with the answer of a task."""
        left_out = any(n for (n,) in self._tallies.values())
        return bool(self._edges or self._histograms or self._counts or left_out)

    def take(self, *, timed: bool) -> Noted:
        """Return the notes, and remove them here; times only if `timed`."""
        self.settle()
        edges = {tag: each.told() for tag, each in self._histograms.items()}
        samples = {stage: each.take() for stage, each in self.samples.items()} if timed else {}
        dropped = {label: n for label, (n,) in self._tallies.items() if n}
        told: Noted = (edges, dict(self._counts), dropped, samples)
        # Cleared, not replaced: closures and inner watches hold them.
        self._edges.clear()
        self._histograms.clear()
        self._counts.clear()
        for tally in self._tallies.values():
            tally[0] = 0
        return told

    def absorb(self, told: Noted) -> None:
        """Add what another process has taken."""
        edges, counts, dropped, samples = told
        for tag, n in counts.items():
            self._counts[tag] = self._counts.get(tag, 0) + n
        for label, n in dropped.items():
            self.tally(label)[0] += n
        if edges or samples:
            self._told.append(told)
            self.settle()

    # -- what is known ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Add the notes to the counts, unless another thread, or interrupted code, is doing so."""
        if self._lock.locked():
            return
        with self._lock:
            while self._told:
                edges, _, _, samples = self._told.popleft()
                for tag, told in edges.items():
                    self._histogram(tag).merge(Histogram(*told))
                for stage, nodes in samples.items():
                    self.sample(stage).absorb(nodes)
            for tag, noted in list(self._edges.items()):
                taken = _taken(noted)
                if taken:
                    self._histogram(tag).extend(taken)
            for sample in list(self.samples.values()):
                sample.settle()

    def _histogram(self, tag: str) -> Durations:
        return self._histograms.setdefault(tag, Durations())

    @property
    def edges(self) -> dict[str, Histogram]:
        """The times of elements at each edge."""
        self.settle()
        return {tag: each.frozen() for tag, each in list(self._histograms.items())}

    @property
    def counters(self) -> dict[str, int]:
        """The counters, by tag."""
        return dict(self._counts)

    def stages(self) -> tuple[StageStats, ...]:
        """Return each stage's statistics."""
        self.settle()
        dropped = {label: n for label, (n,) in list(self._tallies.items())}
        return tuple(
            meter.frozen(self.samples.get(name), dropped)
            for name, meter in list(self.meters.items())
        )


_EVERYWHERE: list[StatsAggregator] = []


def aggregators_of(own: StatsAggregator | None) -> tuple[StatsAggregator, ...]:
    """Return the aggregators of an iterator: its own, and those for all of this process."""
    return (*(() if own is None else (own,)), *(each for each in _EVERYWHERE if each is not own))


def take_of_all(aggregator: StatsAggregator) -> None:
    """Make every iterator that is created from now on report to an aggregator, too."""
    _EVERYWHERE.append(aggregator)


def take_no_more(aggregator: StatsAggregator) -> None:
    """End `take_of_all`."""
    _EVERYWHERE[:] = [each for each in _EVERYWHERE if each is not aggregator]
