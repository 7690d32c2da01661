"""Where the measurements of several iterators come together: `StatsAggregator`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.adding import added, ended
from tundish.loader.watch.exposition import text_of
from tundish.loader.watch.summary import Summary, named

if TYPE_CHECKING:
    from tundish.loader.watch.stats import Stats

Prefixes = tuple[str, str]
"""The prefix of a dataset, and that of its counters."""


class StatsAggregator:
    """Adds up what iterators measure: over epochs, datasets and threads.

    Give it to datasets as ``Options.stats.aggregator``; every iterator made of them tells it how
    it stands about twice a second while it is asked for elements, and when it ends or is closed.

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
        self._lock = threading.RLock()  # a signal's handler may ask while it is told
        self._open: dict[str, tuple[Prefixes, Stats]] = {}
        self._past: dict[Prefixes, Stats] = {}
        self._done: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), ())

    def __repr__(self) -> str:
        return f"<StatsAggregator of {len(self._open) + len(self._done)} iterators>"

    def take(self, source: str, stats: Stats, prefix: str = "", counter_prefix: str = "") -> None:
        """Take what an iterator has measured so far, in the place of what it told before.

        Parameters
        ----------
        source : str
            The iterator's own name.
        stats : Stats
            All since it was made.
        prefix, counter_prefix : str
            Those of its `StatsOptions`: datasets with different ones are kept apart.
        """
        with self._lock:
            if source not in self._done:
                self._open[source] = (prefix, counter_prefix or prefix), stats

    def done(self, source: str) -> None:
        """Keep no more than the sums of an iterator that is closed; what it tells later is left out.

        Parameters
        ----------
        source : str
            Its name.
        """
        with self._lock:
            told = self._open.pop(source, None)
            if told is not None:
                self._done.add(source)
                prefixes, stats = told
                past = self._past.get(prefixes)
                self._past[prefixes] = added([ended(stats), *([] if past is None else [past])])

    def summary(self) -> Summary:
        """What was told so far, added up."""
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
        """The same as `summary`: tf.data's name."""
        return self.summary()

    def to_prometheus(self) -> str:
        """The summary as text that Prometheus reads; `experimental.serve_metrics` serves it.

        Raises
        ------
        ModuleNotFoundError
            prometheus_client is not installed: ``pip install 'tundish[prometheus]'``.
        """
        return text_of(self.summary())


_EVERYWHERE: list[StatsAggregator] = []


def aggregators_of(own: StatsAggregator | None) -> tuple[StatsAggregator, ...]:
    """Who is told of an iterator: its own aggregator, and those that take of all of this process."""
    return (*(() if own is None else (own,)), *(each for each in _EVERYWHERE if each is not own))


def take_of_all(aggregator: StatsAggregator) -> None:
    """Have every iterator that is made from now on tell an aggregator, too."""
    _EVERYWHERE.append(aggregator)


def take_no_more(aggregator: StatsAggregator) -> None:
    """End `take_of_all`."""
    _EVERYWHERE[:] = [each for each in _EVERYWHERE if each is not aggregator]
