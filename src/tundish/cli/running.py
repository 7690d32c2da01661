"""Running a dataset for a while, for its verdict."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.verdict import Verdict, explain
from tundish.loader.watch.wording import count_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator as Elements

    from tundish.loader.dataset import Dataset
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.watch.stats import Stats

_WARM_UP = 0.2
"""The part of the time in which workers start, modules are imported and windows fill; left out if the rest is long enough."""


class _TimeIsUp(BaseException):
    """Raised within the current element when the time is up."""


@dataclass(frozen=True)
class Ran:
    """The result of a run.

    Attributes
    ----------
    verdict : Verdict
        The verdict on the run.
    notes : tuple of str
        Further remarks: that it ended, that elements failed, that it was interrupted.
    interrupted : bool
        True if somebody pressed Ctrl-C.
    failed : bool
        True if all elements failed, so that the verdict is meaningless.
    """

    verdict: Verdict
    notes: tuple[str, ...]
    interrupted: bool
    failed: bool = False


class _Tally:
    """Counts of a run."""

    def __init__(self) -> None:
        self.elements = self.failed = 0
        self.first_error: Exception | None = None
        self.warm: Stats | None = None
        self.ended = self.interrupted = self.cut = False


def run_for(dataset: Dataset, seconds: float) -> Ran:
    """Run a dataset for a number of seconds; return the verdict.

    Parameters
    ----------
    dataset : Dataset
        One that ends begins again: what is run is ``dataset.repeat()``.
    seconds : float
        How long. An element that is being made then is given up (in the main thread of a system
        that has interval timers; else it is waited for).

    Returns
    -------
    Ran
        Elements that fail are counted, and the run goes on after them.
    """
    tally = _Tally()
    start = time.perf_counter()
    with iter(dataset.repeat()) as it:
        _run(it, seconds, tally)
        stats = it.stats
        view = view_of(it._engine.context)  # noqa: SLF001 - the command looks inside, as `inspect` does
    verdict = explain(stats, view, tally.warm)
    if verdict.limit == "unknown":
        verdict = explain(stats, view)
    took = time.perf_counter() - start
    failed = tally.failed > 0 == tally.elements
    notes = [*_notes(tally, dataset, took), *(() if failed else _begun_again(verdict))]
    return Ran(verdict, tuple(notes), tally.interrupted, failed)


def _run(it: Iterator, seconds: float, tally: _Tally) -> None:
    end = time.perf_counter() + seconds
    warm = end - (1 - _WARM_UP) * seconds
    with _alarm(seconds):
        try:
            while (now := time.perf_counter()) < end:
                if tally.warm is None and now > warm and tally.elements:
                    tally.warm = it.stats
                try:
                    next(it)
                    tally.elements += 1
                except StopIteration:
                    tally.ended = True
                    return
                except Exception as error:  # noqa: BLE001 - the element's own
                    tally.failed += 1
                    tally.first_error = tally.first_error or error
        except _TimeIsUp:
            tally.cut = True
        except KeyboardInterrupt:
            tally.interrupted = True


@contextlib.contextmanager
def _alarm(seconds: float) -> Elements[None]:
    """Interrupt the block when the time is up, with a little grace."""
    here = threading.current_thread() is threading.main_thread()
    if sys.platform == "win32" or not here:
        yield
        return

    def ring(*_: Any) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 1.02 * seconds + 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _notes(tally: _Tally, dataset: Dataset, took: float) -> Elements[str]:
    if tally.interrupted:
        yield f"interrupted after {seconds_text(took)}"
    if tally.ended:
        yield "the dataset is empty: it has no elements to run"
        return
    if tally.cut:
        yield "the element that was being made when the time was up has been given up"
    if not tally.elements and not tally.failed:
        yield "nothing came in that time: workers were starting, or an element takes longer; run it longer"
    count = dataset._node.cardinality  # noqa: SLF001 - as above
    given = tally.elements + tally.failed
    if 0 < count < given:
        epochs = count_text(-(-given // count), "epoch")
        yield f"it has {count_text(count, 'element')}, and began again at its end: {epochs}"
    if tally.failed:
        error = tally.first_error
        yield f"the first that failed: {type(error).__name__}: {error}"


def _begun_again(verdict: Verdict) -> Elements[str]:
    """Yield remarks on operators that are in a verdict and not in the plan."""
    last = verdict.plan.nodes[-1].name if verdict.plan.nodes else ""
    if last.startswith("repeat#") and any(last in line for line in verdict.lines):
        yield f"{last} is not yours: a finite dataset starts again at its end"
