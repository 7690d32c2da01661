"""`Stats`, the counts and measurements of an iterator, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Self

from tundish.loader.watch.histogram import Histogram


@dataclass(frozen=True)
class SnapshotStats:
    """An iterator's work on one snapshot.

    Attributes
    ----------
    path, key, run : str
        The snapshot, and the run that is being written, or "".
    doing : str
        "read": it is complete; "write"; "pass": another process writes it, or nothing may be written.
    elements : int
        Elements known to this iterator: all of a complete snapshot, or those that have passed
        one that is being written.
    durable : int
        The number of them that are durable.
    nbytes : int
        Bytes that this iterator has written.
    commits : int
        The number of commits.
    """

    path: str
    key: str
    run: str
    doing: str
    elements: int
    durable: int
    nbytes: int = 0
    commits: int = 0


@dataclass(frozen=True)
class NodeStats:
    """An operator as evaluated in a stage.

    Attributes
    ----------
    name : str
        Its name in the plan: ``map#2``.
    elements : int
        Elements it gave, including those computed ahead; exact.
    dropped, errors : int
        Elements it dropped (a filter, ``on_error="skip"``), and elements that failed in it; exact.
    time : Histogram
        Its time for one element, without its inputs, from a sample of timed elements.
    busy_s : float
        Its approximate total time: the sample's mean times the number of calls.
    calls : bool
        True if it calls a user's function.
    draws : bool
        True if its elements depend on randomness (a seed of its own), so that epochs differ.
    """

    name: str
    elements: int = 0
    dropped: int = 0
    errors: int = 0
    time: Histogram = field(default_factory=Histogram)
    busy_s: float = 0.0
    calls: bool = False
    draws: bool = False


@dataclass(frozen=True)
class StageStats:
    """Operators that are computed together in one place.

    Attributes
    ----------
    name : str
        The last of its operators.
    nodes : tuple of NodeStats
        Its operators, the one next to the source first.
    where : {"workers", "consumer"}
        The process that computes it.
    elements, dropped, errors : int
        Elements that left it, were dropped in it, and left it as errors. They are exact; at
        the end they do not depend on the number of workers, while before it they include elements that
        downstream stages have taken ahead.
    tasks : int
        Tasks that workers have done for it, including those lost with a worker.
    rows : int
        Elements that workers have computed in tasks: more than have left it, by those computed ahead.
    busy_s, cpu_s : float
        Total seconds of work, and the part in which a core was busy: the rest is waiting
        (a disk, a network, sleep). Exact with workers; in the consumer's process from a sample.
    nbytes : int
        Bytes of shared memory that workers have written for it.
    time : Histogram
        The durations of tasks; in the consumer's process, of timed elements.
    in_flight, ready, window : int
        Blocks that are being computed, blocks that are ready, and the limit on the sum
        of both.
    """

    name: str
    nodes: tuple[NodeStats, ...] = ()
    where: str = "workers"
    elements: int = 0
    dropped: int = 0
    errors: int = 0
    tasks: int = 0
    rows: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    nbytes: int = 0
    time: Histogram = field(default_factory=Histogram)
    in_flight: int = 0
    ready: int = 0
    window: int = 0


@dataclass(frozen=True)
class WorkerStats:
    """One worker that is alive.

    Attributes
    ----------
    name : int
        Its number; the replacement of a dead worker has a new one.
    pid : int or None
        Its process id; None for a thread, and before its first answer.
    tasks, rows : int
        Tasks and rows it has done.
    busy_s, cpu_s, alive_s : float
        Seconds it worked, seconds a core worked for it in that time, and seconds since it started.
    queued_s : float
        Seconds it was ready to run without a core, after its start; 0.0 if unknown.
    where : str
        The address of the machine it is on; "" for this one.
    received : int
        Bytes received from there.
    away_s : float
        Seconds in which it had a task or its rows were not received, and it did not work: they were on their way.
    """

    name: int
    pid: int | None
    tasks: int = 0
    rows: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    alive_s: float = 0.0
    queued_s: float = 0.0
    where: str = ""
    received: int = 0
    away_s: float = 0.0

    @property
    def round_trip_s(self) -> float:
        """The mean time that a task and its rows were on their way; 0.0 on this machine."""
        return self.away_s / self.tasks if self.tasks else 0.0


@dataclass(frozen=True)
class Stats:
    """The counts and measurements of one iterator so far.

    Counts are exact. Times are by ``perf_counter``; the attributes say where they come from a sample.
    ``str`` is a table.

    Attributes
    ----------
    workers : int
        The number of workers; 0: this process computes.
    elements : int
        Elements delivered.
    errors : int
        Elements whose error was raised.
    restarts : int
        The number of workers that died and were replaced.
    hedged : int
        Tasks that were given to a second worker of a service, since the first was late.
    tasks : int
        Tasks that workers have done.
    copies : int
        Batches delivered as private copies for lack of memory to lease.
    received : int
        Bytes received from workers of a service, those that are gone included.
    receiving_s : float
        Seconds of `own_s` in which they were received.
    leased : int
        Slots that somebody holds a view of.
    used_bytes, budget_bytes : int
        Shared memory of this process: in use, and allowed.
    sources : mapping of str to int
        Elements that named mixtures (`sample_from_datasets` of a dict) have given of each
        source, up to the last delivered element. A restored iterator continues the counts; each pass of a
        `repeat` around a mixture restarts them.
    skipped : mapping of str to int
        Elements dropped by each operator with ``on_error="skip"``, and by `ignore_errors`, by its
        name in the plan: ``{"map#2": 3}``. A restored iterator continues the counts.
    snapshots : tuple of SnapshotStats
        The snapshots that are run, the one next to the source first.
    nbytes : int
        The size of the delivered elements; in the consumer's process approximate, from a sample.
    wall_s : float
        Seconds since the iterator was made, or loaded a state, up to its end.
    waited_s : float
        Seconds that ``next`` has waited for workers; without workers, that it has computed
        (extrapolated from a sample).
    own_s : float
        Seconds of ``next``'s own work: order, messages, views.
    outside_s : float
        The rest: seconds of the caller between two elements.
    waits : Histogram
        The durations of waits for workers, of calls that had to wait.
    cpu_s : float
        Seconds that cores were busy for the consumer's process in `wall_s`.
    queued_s : float
        Without workers: seconds that the consumer's thread was ready to run without a core
        in that time; 0.0 if unknown.
    cores : int
        The number of cores that this process may use.
    watched : bool
        True if times are measured (`StatsOptions.enabled`).
    stages : tuple of StageStats
        The stages, the one next to the source first.
    pool : tuple of WorkerStats
        The workers.
    edges : mapping of str to Histogram
        What `Dataset.latency_stats` has measured, by tag; each element of each edge.
    counters : mapping of str to int
        What `Dataset.bytes_produced_stats` has counted, by tag.
    tuned : tuple of (float, int)
        When AUTOTUNE changed the number of workers (in `wall_s`), and to what.
    """

    workers: int = 0
    elements: int = 0
    errors: int = 0
    restarts: int = 0
    hedged: int = 0
    tasks: int = 0
    copies: int = 0
    received: int = 0
    receiving_s: float = 0.0
    leased: int = 0
    used_bytes: int = 0
    budget_bytes: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    snapshots: tuple[SnapshotStats, ...] = ()
    nbytes: int = 0
    wall_s: float = 0.0
    waited_s: float = 0.0
    own_s: float = 0.0
    outside_s: float = 0.0
    waits: Histogram = field(default_factory=Histogram)
    cpu_s: float = 0.0
    queued_s: float = 0.0
    cores: int = 1
    watched: bool = False
    stages: tuple[StageStats, ...] = ()
    pool: tuple[WorkerStats, ...] = ()
    edges: Mapping[str, Histogram] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    tuned: tuple[tuple[float, int], ...] = ()

    def __str__(self) -> str:
        from tundish.loader.watch.statstext import stats_lines  # noqa: PLC0415 - for people alone

        return "\n".join(stats_lines(self))

    def _repr_html_(self) -> str:
        from tundish.loader.watch.table import html_of  # noqa: PLC0415 - in notebooks alone

        return html_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {each.name: _told(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Parse the result of `to_dict`; unknown names are ignored."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in told.items() if name in known}
        return cls(
            **{
                **given,
                "waits": Histogram.from_dict(told["waits"]),
                "snapshots": tuple(SnapshotStats(**each) for each in told["snapshots"]),
                "stages": tuple(_stage(each) for each in told["stages"]),
                "pool": tuple(WorkerStats(**each) for each in told["pool"]),
                "edges": {tag: Histogram.from_dict(each) for tag, each in told["edges"].items()},
                "tuned": tuple((at, workers) for at, workers in told["tuned"]),
            }
        )


def with_begun(stage: StageStats, elements: int, dropped: int, errors: int) -> StageStats:
    """Return a stage's statistics with those of its current block added."""
    return replace(
        stage,
        elements=stage.elements + elements,
        dropped=stage.dropped + dropped,
        errors=stage.errors + errors,
    )


def _told(value: Any) -> Any:
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, Histogram):
        return value.to_dict()
    if is_dataclass(value):
        return {each.name: _told(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_told(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _told(each) for key, each in value.items()}
    return value


def _stage(told: Mapping[str, Any]) -> StageStats:
    nodes = tuple(
        NodeStats(**{**each, "time": Histogram.from_dict(each["time"])}) for each in told["nodes"]
    )
    return StageStats(**{**told, "nodes": nodes, "time": Histogram.from_dict(told["time"])})


def count_skipped(state: Any) -> dict[str, int]:
    """Return the numbers of dropped elements by operator, from anywhere in a position."""
    found: dict[str, int] = {}
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    for below in parts:
        for label, count in count_skipped(below).items():
            found[label] = found.get(label, 0) + count
    for event, count in state.get("counts", {}).items() if isinstance(state, dict) else ():
        label, _, what = event.rpartition(" ")
        if what in ("skipped", "ignored"):
            found[label] = found.get(label, 0) + count
    return found
