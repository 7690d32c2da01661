"""A `Summary` in Prometheus's format: names, units and labels.

Units are seconds and bytes; counters end in ``_total``; ``dataset`` is a prefix of
`StatsOptions`. Histogram buckets are octaves, the same ones in every scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.histogram import Histogram, upper_s

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from tundish.loader.watch.stats import StageStats, Stats
    from tundish.loader.watch.summary import Summary

_OCTAVE = 4  # buckets
_BOUNDS = tuple(range(4 * _OCTAVE - 1, 31 * _OCTAVE, _OCTAVE))  # 1.6 µs to 215 s

Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels, Any]]


def registry_of(summary: Callable[[], Summary]) -> CollectorRegistry:
    """Return a prometheus_client registry that computes a summary whenever it is read.

    Parameters
    ----------
    summary : callable
        Returns the summary.

    Raises
    ------
    ModuleNotFoundError
        prometheus_client is not installed.
    """
    registry: CollectorRegistry = _client().CollectorRegistry()
    registry.register(_Collector(summary))
    return registry


def text_of(summary: Summary) -> str:
    """Return the text of a scrape."""
    text: str = _client().generate_latest(registry_of(lambda: summary)).decode()
    return text


def _client() -> Any:
    try:
        import prometheus_client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "metrics for Prometheus need a package: pip install prometheus_client",
            name="prometheus_client",
        ) from missing
    return prometheus_client


class _Collector:
    """A collector for prometheus_client."""

    def __init__(self, summary: Callable[[], Summary]) -> None:
        self._summary = summary

    def describe(self) -> list[Metric]:
        """Return no descriptions: metrics are not known in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics."""
        summary = self._summary()
        datasets = list(summary.datasets.items())

        def each(value: Callable[[Stats], float]) -> Samples:
            return [((prefix,), value(stats)) for prefix, stats in datasets]

        yield _gauge(
            "tundish_iterators", "Iterators that are not closed.", (), [((), summary.open)]
        )
        yield _counter(
            "tundish_iterators_made", "Iterators that have told something.", (),
            [((), summary.iterators)],
        )  # fmt: skip
        for name, what, value in _COUNTERS:
            yield _counter(f"tundish_{name}", what, ("dataset",), each(value))
        for name, what, value in _GAUGES:
            yield _gauge(f"tundish_{name}", what, ("dataset",), each(value))
        for name, what, value in _OF_PROCESS:
            most = max((value(stats) for _, stats in datasets), default=0)
            yield _gauge(f"tundish_{name}", what, (), [((), most)])
        yield _counter(
            "tundish_consumer_seconds",
            "Where the time of iterators went: waiting for workers, at work in next, outside of it.",
            ("dataset", "spent"),
            [
                ((prefix, spent), seconds)
                for prefix, stats in datasets
                for spent, seconds in (
                    ("waiting", stats.waited_s), ("working", stats.own_s), ("outside", stats.outside_s),
                )
            ],
        )  # fmt: skip
        yield _histogram(
            "tundish_wait_seconds", "Waits of the consumer for workers.", ("dataset",),
            [((prefix,), stats.waits) for prefix, stats in datasets],
        )  # fmt: skip
        yield from _stages(datasets)
        yield from _workers(datasets)
        yield _histogram(
            "tundish_edge_seconds", "What latency_stats has measured, by tag.", ("dataset", "tag"),
            [((p, tag), found) for p, stats in datasets for tag, found in stats.edges.items()],
        )  # fmt: skip
        yield _counter(
            "tundish_produced_bytes", "What bytes_produced_stats has counted, by tag.", ("tag",),
            [((tag,), count) for tag, count in summary.counters.items()],
        )  # fmt: skip


_COUNTERS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("elements", "Elements delivered.", lambda stats: stats.elements),
    ("errors", "Elements whose error was raised.", lambda stats: stats.errors),
    ("delivered_bytes", "Bytes of the delivered elements.", lambda stats: stats.nbytes),
    ("tasks", "Tasks that workers have done.", lambda stats: stats.tasks),
    ("restarts", "Workers that died and were replaced.", lambda stats: stats.restarts),
    ("hedged", "Tasks given to a second worker.", lambda stats: stats.hedged),
    ("copies", "Batches delivered as private copies.", lambda stats: stats.copies),
)

_GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("workers", "Workers of iterators that are not closed.", lambda stats: stats.workers),
)

_OF_PROCESS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("leased_slots", "Slots that somebody holds a view of.", lambda stats: stats.leased),
    ("shared_memory_bytes", "Shared memory in use.", lambda stats: stats.used_bytes),
    ("shared_memory_limit_bytes", "Shared memory allowed.", lambda stats: stats.budget_bytes),
)


def _stages(datasets: Iterable[tuple[str, Stats]]) -> Iterator[Metric]:
    stages = [(prefix, stage) for prefix, stats in datasets for stage in stats.stages]
    by: Labels = ("dataset", "stage", "where")
    keyed: list[tuple[Labels, StageStats]] = [
        ((prefix, stage.name, stage.where), stage) for prefix, stage in stages
    ]
    for name, what, field in (
        ("elements", "Elements that left a stage.", "elements"),
        ("dropped", "Elements that were left out in a stage.", "dropped"),
        ("errors", "Elements that left a stage as errors.", "errors"),
        ("busy_seconds", "How long a stage was worked at, by all workers.", "busy_s"),
        ("cpu_seconds", "How long cores were busy with a stage.", "cpu_s"),
        ("written_bytes", "Shared memory that workers wrote for a stage.", "nbytes"),
    ):
        samples = [(labels, getattr(stage, field)) for labels, stage in keyed]
        yield _counter(f"tundish_stage_{name}", what, by, samples)
    yield _histogram(
        "tundish_task_seconds", "How long tasks took; without workers: elements, a sample.", by,
        [(labels, stage.time) for labels, stage in keyed],
    )  # fmt: skip
    yield _gauge(
        "tundish_stage_blocks", "Blocks being computed, made and waiting, and allowed.", (*by, "state"),
        [
            ((*labels, state), count)
            for labels, stage in keyed
            for state, count in (
                ("in_flight", stage.in_flight), ("ready", stage.ready), ("window", stage.window),
            )
        ],
    )  # fmt: skip
    by = ("dataset", "stage", "where", "node")
    nodes: list[tuple[Labels, Any]] = [
        ((*labels, node.name), node) for labels, stage in keyed for node in stage.nodes
    ]
    for name, what, field in (
        ("elements", "Elements that an operator gave.", "elements"),
        ("dropped", "Elements that an operator left out.", "dropped"),
        ("errors", "Elements that failed in an operator.", "errors"),
        ("busy_seconds", "About how long an operator has worked.", "busy_s"),
    ):
        samples = [(labels, getattr(node, field)) for labels, node in nodes]
        yield _counter(f"tundish_node_{name}", what, by, samples)
    yield _histogram(
        "tundish_node_seconds", "How long an operator took for an element; a sample.", by,
        [(labels, node.time) for labels, node in nodes],
    )  # fmt: skip


def _workers(datasets: Iterable[tuple[str, Stats]]) -> Iterator[Metric]:
    workers = [((p, str(each.name)), each) for p, stats in datasets for each in stats.pool]
    for name, what, field in (
        ("tasks", "Tasks that a worker has done.", "tasks"),
        ("busy_seconds", "How long a worker has worked.", "busy_s"),
        ("cpu_seconds", "How long a core has worked for a worker.", "cpu_s"),
        ("received_bytes", "Bytes received from a worker on another machine.", "received"),
        ("away_seconds", "How long tasks and rows of a worker were on their way.", "away_s"),
    ):
        samples = [(labels, getattr(each, field)) for labels, each in workers]
        yield _counter(f"tundish_worker_{name}", what, ("dataset", "worker"), samples)


def _counter(name: str, what: str, labels: Labels, samples: Samples) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415 - an extra

    return _filled(CounterMetricFamily(name, what, labels=labels), samples)


def _gauge(name: str, what: str, labels: Labels, samples: Samples) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    return _filled(GaugeMetricFamily(name, what, labels=labels), samples)


def _filled(family: Any, samples: Samples) -> Metric:
    for labels, value in _summed(samples).items():
        family.add_metric(labels, value)
    found: Metric = family
    return found


def _summed(samples: Samples) -> dict[Labels, Any]:
    """Add up samples with equal labels, which prometheus_client would refuse."""
    found: dict[Labels, Any] = {}
    for labels, value in samples:
        found[labels] = found[labels] + value if labels in found else value
    return found


def _histogram(
    name: str, what: str, labels: Labels, samples: Iterable[tuple[Labels, Histogram]]
) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415 - an extra

    family = HistogramMetricFamily(name, what, labels=labels)
    for values, histogram in _summed(samples).items():
        family.add_metric(values, _cumulative(histogram), histogram.total_s)
    return family


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the cumulative counts of a histogram."""
    buckets, seen, at = [], 0, 0
    ordered = sorted(histogram.counts.items())
    for bound in _BOUNDS:
        while at < len(ordered) and ordered[at][0] <= bound:
            seen += ordered[at][1]
            at += 1
        buckets.append((repr(upper_s(bound)), float(seen)))
    return [*buckets, ("+Inf", float(histogram.count))]
