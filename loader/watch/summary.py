"""`Summary` and `StatsAggregator`: sums of the measurements of several iterators."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.adding import added, ended
from tundish.loader.watch.exposition import text_of
from tundish.loader.watch.statstext import stats_lines
from tundish.loader.watch.wording import aligned, count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tundish.loader.watch.histogram import Histogram
    from tundish.loader.watch.stats import Stats


@dataclass(frozen=True)
class Summary:
    """The sums of what iterators that report to one `StatsAggregator` have done and measured.

    ``str`` is a table.

    Attributes
    ----------
    iterators : int
        The number of iterators that have reported.
    open : int
        The number of these that are not closed.
    datasets : mapping of str to Stats
        The sums by `StatsOptions.prefix`: iterators of one dataset, and of datasets with
        the same prefix, are one entry; "" is that of datasets without a prefix.
    counters : mapping of str to int
        What `Dataset.bytes_produced_stats` has counted, as ``prefix::tag``.

    Examples
    --------
    >>> from tundish.loader.watch.stats import Stats
    >>> Summary(1, 0, {"train": Stats(elements=7)}, {}).elements
    7
    """

    iterators: int = 0
    open: int = 0
    datasets: Mapping[str, Stats] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> Stats:
        """The sum over all iterators, whatever their prefixes."""
        return replace(added(self.datasets.values()), edges=self.edges, counters=self.counters)

    @property
    def elements(self) -> int:
        """The number of delivered elements."""
        return sum(stats.elements for stats in self.datasets.values())

    @property
    def errors(self) -> int:
        """The number of errors that were raised in elements' places."""
        return sum(stats.errors for stats in self.datasets.values())

    @property
    def edges(self) -> dict[str, Histogram]:
        """The measurements of `Dataset.latency_stats`, as ``prefix::tag``."""
        return {
            named(prefix, tag): histogram
            for prefix, stats in self.datasets.items()
            for tag, histogram in stats.edges.items()
        }

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def named(prefix: str, tag: str) -> str:
    """Return ``prefix::tag``, as in tf.data."""
    return f"{prefix}::{tag}" if prefix else tag


def _lines(summary: Summary) -> Iterator[str]:
    told = count_text(summary.iterators, "iterator")
    yield f"{told} ({summary.open} open), {count_text(summary.elements, 'element')}"
    for prefix, stats in summary.datasets.items():
        yield ""
        yield from stats_lines(stats, prefix)
    if summary.counters:
        yield ""
        counts = [(k, f"{v:,}") for k, v in summary.counters.items()]
        yield from aligned([("counter", "sum"), *counts])


Prefixes = tuple[str, str]
"""The prefix of a dataset, and that of its counters."""


class StatsAggregator:
    """Adds up what iterators measure: over epochs, datasets and threads.

    Give it to datasets as ``Options.stats.aggregator``; every iterator of these reports to it
    about twice a second while elements are requested, and when it ends or is closed.

    Notes
    -----
    In tf.data, which had it up to 2.4, a summary is a protocol buffer for TensorBoard; here it is a
    frozen dataclass whose ``str`` is a table. Pickled it is empty, as it is when options travel to
    workers: what it holds belongs to the process that iterates.

    Examples
    --------
    >>> import tundish as td
    >>> aggregator = td.StatsAggregator()
    >>> options = td.Options()
    >>> options.stats.aggregator = aggregator
    >>> ds = td.Dataset.range(3).latency_stats("read").with_options(options)
    >>> for _ in range(2):
    ...     _ = list(ds)
    >>> aggregator.summary().elements, aggregator.summary().edges["read"].count
    (6, 6)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may read it during an update
        self._open: dict[str, tuple[Prefixes, Stats]] = {}
        self._past: dict[Prefixes, Stats] = {}
        self._done: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), ())

    def __repr__(self) -> str:
        return f"<StatsAggregator of {len(self._open) + len(self._done)} iterators>"

    def take(self, source: str, stats: Stats, prefix: str = "", counter_prefix: str = "") -> None:
        """Replace an iterator's report.

        Parameters
        ----------
        source : str
            The iterator's unique name.
        stats : Stats
            Its statistics since it was made.
        prefix, counter_prefix : str
            The prefixes in its `StatsOptions`: datasets with different ones are kept apart.
        """
        with self._lock:
            if source not in self._done:
                self._open[source] = (prefix, counter_prefix or prefix), stats

    def done(self, source: str) -> None:
        """Keep only the sums of an iterator that is closed; later reports of it are ignored.

        Parameters
        ----------
        source : str
            The iterator's name.
        """
        with self._lock:
            told = self._open.pop(source, None)
            if told is not None:
                self._done.add(source)
                prefixes, stats = told
                past = self._past.get(prefixes)
                self._past[prefixes] = added([ended(stats), *([] if past is None else [past])])

    def summary(self) -> Summary:
        """Return the sum of the reports so far."""
        with self._lock:
            told = [*self._past.items(), *self._open.values()]
            open_, done = len(self._open), len(self._done)
        datasets: dict[str, list[Stats]] = {}
        counters: dict[str, int] = {}
        for (prefix, counter_prefix), stats in told:
            datasets.setdefault(prefix, []).append(stats)
            for tag, count in stats.counters.items():
                name = named(counter_prefix, tag)
                counters[name] = counters.get(name, 0) + count
        sums = {prefix: added(parts) for prefix, parts in datasets.items()}
        return Summary(open_ + done, open_, sums, counters)

    def get_summary(self) -> Summary:
        """Return `summary`, under tf.data's name."""
        return self.summary()

    def to_prometheus(self) -> str:
        """Return the summary as text that Prometheus reads; `experimental.serve_metrics` serves it.

        Raises
        ------
        ModuleNotFoundError
            prometheus_client is not installed: ``pip install prometheus_client``.
        """
        return text_of(self.summary())
