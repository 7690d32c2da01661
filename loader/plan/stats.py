"""What is measured of a dataset that is iterated: `StatsOptions`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tundish.loader.plan.checks import check_optional_flag
from tundish.loader.plan.settings import Settings, checked
from tundish.loader.watch.aggregator import StatsAggregator


def check_text(name: str, value: Any) -> str:
    """A str."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__} ({value!r})")
    return value


def _aggregator(name: str, value: Any) -> StatsAggregator:
    if not isinstance(value, StatsAggregator):
        what = f"{type(value).__name__} ({value!r})"
        raise TypeError(f"{name} must be a td.StatsAggregator, not {what}")
    return value


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(value).__name__} ({value!r})")
    path = os.fspath(value)
    if not isinstance(path, str) or not path:
        raise ValueError(f"{name} must be the path of a file, not {path!r}")
    return path


@dataclass(kw_only=True, repr=False)
class StatsOptions(Settings):
    """What is measured while a dataset is iterated, and who is told: ``Options.stats``.

    Parameters
    ----------
    enabled : bool, optional
        False measures nothing; counts that are known anyway stay. Default: True.
    aggregator : StatsAggregator, optional
        Who is told what every iterator of this dataset measures.
    prefix : str, optional
        Stands before every name in the aggregator: ``prefix::name``. It keeps apart datasets that
        report to one aggregator, such as those for training and for validation.
    counter_prefix : str, optional
        The same of counters (`Dataset.bytes_produced_stats`), in the place of `prefix`.
    latency_all_edges : bool, optional
        True: as if ``latency_stats("record_latency_<name>")`` stood behind every operator, of which
        `name` is the name: ``record_latency_map#2``. Default: False.
    trace : path, optional
        Write a line to this file for whatever happens to a task; ``tundish trace`` reads it.

    Examples
    --------
    >>> options = StatsOptions(latency_all_edges=True)
    >>> options.prefix = "train"
    >>> options
    StatsOptions(prefix='train', latency_all_edges=True)
    """

    enabled: bool | None = field(default=None, metadata=checked(check_optional_flag))
    aggregator: StatsAggregator | None = field(default=None, metadata=checked(_aggregator))
    prefix: str | None = field(default=None, metadata=checked(check_text))
    counter_prefix: str | None = field(default=None, metadata=checked(check_text))
    latency_all_edges: bool | None = field(default=None, metadata=checked(check_optional_flag))
    trace: str | None = field(default=None, metadata=checked(_path))
