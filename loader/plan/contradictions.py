"""Options that contradict each other, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tundish.loader.plan.node import AUTOTUNE


@dataclass(frozen=True)
class Contradiction:
    """A rule about several options, by their names in `Settings.given`."""

    names: tuple[str, ...]
    clash: Callable[..., bool]
    """Called with their values if all of them are set."""
    why: str
    remedy: str


_BELOW = "the smaller bound is above the larger"
_ALONE = "ds.iterator(workers=0) and TUNDISH_WORKERS=0 run any dataset in this process"

CONTRADICTIONS = (
    Contradiction(
        ("workers", "deadline"),
        lambda workers, _: workers == 0,
        "a function that runs in this process cannot be ended",
        f"leave out one of them ({_ALONE}, whatever its deadline)",
    ),
    Contradiction(
        ("executor", "deadline"),
        lambda executor, _: executor == "thread",
        "a thread cannot be ended",
        "leave out deadline, or use executor='process'",
    ),
    Contradiction(
        ("executor", "start"),
        lambda executor, _: executor == "thread",
        "it says how processes start",
        "leave out start, or use executor='process'",
    ),
    Contradiction(
        ("executor", "max_deaths"),
        lambda executor, _: executor == "thread",
        "a thread does not die alone, but with this process",
        "leave out max_deaths, or use executor='process'",
    ),
    Contradiction(
        ("max_intra_op_parallelism", "threading.max_intra_op_parallelism"),
        lambda ours, theirs: theirs not in {0, ours},
        "they are two names of one setting",
        "set one of them",
    ),
    Contradiction(
        ("executor", "workers", "threading.private_threadpool_size"),
        lambda executor, workers, size: executor == "thread" and 0 < workers != size > 0,
        "with threads, both say how many",
        "set one of them",
    ),
    Contradiction(
        ("workers", "autotune.enabled"),
        lambda workers, enabled: enabled and workers != AUTOTUNE,
        "a fixed number of workers is not tuned",
        "leave out one of them, or set workers=td.AUTOTUNE",
    ),
    Contradiction(
        ("autotune.initial_parallelism", "autotune.min_parallelism"),
        lambda initial, least: initial < least,
        "the tuner would begin below its minimum",
        "raise the first, or leave it out",
    ),
    Contradiction(
        ("autotune.min_parallelism", "autotune.cpu_budget"),
        lambda least, most: least > most,
        _BELOW,
        "lower the first, or raise the second",
    ),
    Contradiction(
        ("autotune.min_parallelism", "threading.private_threadpool_size"),
        lambda least, most: least > most > 0,
        _BELOW,
        "lower the first, or raise the second",
    ),
    *(
        Contradiction(
            ("stats.enabled", f"stats.{name}"),
            lambda enabled, asked: not enabled and bool(asked),
            "there would be no measurements to report",
            "leave out one of them",
        )
        for name in ("aggregator", "trace", "latency_all_edges")
    ),
)


def check_together(given: Mapping[str, Any]) -> None:
    """Raise if options contradict each other.

    Parameters
    ----------
    given : mapping
        The options that are set, from `Settings.given`.

    Raises
    ------
    ValueError
        Two options contradict each other: with their names, values, the reason, and what to do.
    """
    for rule in CONTRADICTIONS:
        if not all(name in given for name in rule.names):
            continue
        values = [given[name] for name in rule.names]
        if rule.clash(*values):
            told = [f"{name}={value!r}" for name, value in zip(rule.names, values, strict=True)]
            *first, last = told
            raise ValueError(
                f"Options: {', '.join(first)} and {last} contradict each other: {rule.why}; "
                f"{rule.remedy}"
            )
