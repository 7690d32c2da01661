"""Counts and measurements of an iterator so far: `Stats`, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Self

from tundish.loader.watch.histogram import Histogram


@dataclass(frozen=True)
class SnapshotStats:
    """The work of an iterator on one snapshot.

    Attributes
    ----------
    path, key, run : str
        Which; the run is that which is written, or "".
    doing : str
        "read": it is complete; "write"; "pass": another process writes it, or nothing may be written.
    elements : int
        Elements that are known to this iterator: all of a complete one, those that have passed
        of one that is written.
    durable : int
        How many of them stand in files, whatever happens now.
    nbytes : int
        What this iterator has written to files.
    commits : int
        How often what had passed was made durable.
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
    """One operator, as it is evaluated within a stage.

    Attributes
    ----------
    name : str
        Its name in the plan: ``map#2``.
    elements : int
        How many it gave, those among them that were computed ahead; exact.
    dropped, errors : int
        How many it left out (a filter, ``on_error="skip"``), and how many failed in it; exact.
    time : Histogram
        What it took for one element, without its inputs: of the elements that were timed, a sample.
    busy_s : float
        About how long it has worked in all: the sample's mean times how many it was asked for.
    calls : bool
        Whether it calls a function of the user's.
    draws : bool
        Whether what it gives depends on randomness (a seed of its own): then it differs by epoch.
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
    """Operators that run fused, in one place.

    Attributes
    ----------
    name : str
        The last of its operators.
    nodes : tuple of NodeStats
        Its operators, the one next to the source first.
    where : {"workers", "consumer"}
        Who computes it.
    elements, dropped, errors : int
        How many elements left it, were left out in it, and left it as errors. They are exact; when
        the end was reached they are the same with any number of workers, while before it those that
        stages above have taken ahead count, too.
    tasks : int
        How many tasks workers have done for it; what died with a worker counts again.
    rows : int
        How many elements workers have computed in them: more than have left it, by those computed ahead.
    busy_s, cpu_s : float
        How long it was worked at in all, and how much of it a core was busy: the rest is waiting
        (a disk, a network, sleep). Exact with workers; in the consumer's process from a sample.
    nbytes : int
        Bytes of shared memory that workers have written for it.
    time : Histogram
        How long tasks took; in the consumer's process: elements that were timed.
    in_flight, ready, window : int
        Blocks that are being computed, those that are made and wait for the consumer, and how many
        of both there may be.
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
        Its number; one that takes a dead one's place has a new one.
    pid : int or None
        Its process; None for a thread, and as long as it has not answered.
    tasks, rows : int
        What it has done.
    busy_s, cpu_s, alive_s : float
        How long it worked, how long a core worked for it in that time, and how long it has been there.
    queued_s : float
        How long it was ready to run and had no core, since others had them; its start is left out,
        and it is 0.0 where nobody knows.
    """

    name: int
    pid: int | None
    tasks: int = 0
    rows: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    alive_s: float = 0.0
    queued_s: float = 0.0


@dataclass(frozen=True)
class Stats:
    """The counts and measurements of one iterator so far.

    Counts are exact. Times are of ``perf_counter``; where a sample is measured, it says so.

    Attributes
    ----------
    workers : int
        How many compute for it; 0: this process.
    elements : int
        Elements delivered.
    errors : int
        Elements whose error was raised.
    restarts : int
        Workers that died and were replaced.
    tasks : int
        Tasks that workers have done.
    copies : int
        Batches delivered as private copies, for want of room to lease them.
    leased : int
        Slots that somebody holds a view of.
    used_bytes, budget_bytes : int
        Shared memory of this process: in use, and allowed.
    sources : mapping of str to int
        How many elements named mixtures (`sample_from_datasets` of a dict) have given of each
        source, up to the last delivered element. It goes on where a restored state left off, and
        begins anew with each pass of a `repeat` around a mixture.
    skipped : mapping of str to int
        How many elements each operator with ``on_error="skip"`` has left out, and `ignore_errors`, by its
        name in the plan: ``{"map#2": 3}``. It goes on where a restored state left off.
    snapshots : tuple of SnapshotStats
        What is done with each snapshot that is run, the one next to the source first.
    nbytes : int
        Bytes of the delivered elements; in the consumer's process about, from a sample.
    wall_s : float
        Since the iterator was made, or went to a state; up to its end.
    waited_s : float
        How long ``next`` has waited for workers; with none, how long it has computed (a sample's
        share of the whole).
    own_s : float
        How long ``next`` was at work itself: order, messages, views.
    outside_s : float
        The rest of the time: what the caller does between two elements.
    waits : Histogram
        How long each wait for workers took, of the calls that had to wait.
    cpu_s : float
        How long cores were busy for the consumer's process in `wall_s`, whatever it did.
    queued_s : float
        Without workers: how long the consumer's thread was ready to run and had no core in that time,
        since other programs had them; 0.0 where nobody knows.
    cores : int
        How many cores this process may use.
    watched : bool
        Whether times are measured (`StatsOptions.enabled`).
    stages : tuple of StageStats
        What computes, the one next to the source first.
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
    tasks: int = 0
    copies: int = 0
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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {each.name: _told(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave; names that are not known here are left out."""
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
    """Return what is known of a stage, with what it has given of a block that is at hand."""
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
    """Count the elements that were left out, by operator, wherever a position says it."""
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
