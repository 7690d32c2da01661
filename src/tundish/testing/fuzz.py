"""Random pipelines under the laws: ``python -m tundish.testing.fuzz --seed 1 --cases 100``.

Each case is an expression over all operators and sources, nested up to six deep, over elements of
every kind. It is run in process and compared with the reference `Model`, run with workers (or
threads, or little memory) and compared with the first run, continued from states taken at random
steps, and now and then its workers are killed, or passes of it are left early before others. A case that fails is shortened as long as it
fails, and printed as an expression and as the command that runs it again.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.options import Options
from tundish.shm.budget import usable_cores
from tundish.testing import poison
from tundish.testing.compare import collect, difference, one_more
from tundish.testing.drawing import pipeline
from tundish.testing.expressions import Pipeline, Step
from tundish.testing.faults import check_faults
from tundish.testing.folders import standing
from tundish.testing.laws import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)
from tundish.testing.measured import check_measured
from tundish.testing.model import Model
from tundish.testing.passes import PASSES, assert_passes_do_not_show, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tundish.loader.dataset import Dataset

    Check = Callable[[Pipeline, random.Random, Sequence[int]], None]

__all__ = ["Pipeline", "check", "main", "pipeline"]

PATIENCE = 60
"""Seconds a case may take: it needs a few, on a busy machine some more."""


def _unmeasured() -> Options:
    options = Options()
    options.stats.enabled = False
    return options


OPTIONS = (
    *[Options()] * 6,
    *[Options(executor="thread")] * 2,
    *[Options(memory_budget=32 << 20)] * 2,
    Options(start="fork"),
    Options(deadline=PATIENCE),
    Options(slack=True),
    _unmeasured(),
)
"""The settings with which a case may run; one of them is drawn."""

# -- checking


def check(made: Pipeline, rng: random.Random, workers: Sequence[int]) -> None:
    """Check one pipeline against the reference and by laws 1 and 2.

    Parameters
    ----------
    made : Pipeline
        The pipeline.
    rng : random.Random
        For the choice of workers, of steps and of an iteration.
    workers : sequence of int
        Numbers of workers to choose two from.

    Raises
    ------
    AssertionError
        A law is broken.
    """
    iteration = rng.choice((0, 0, 1, 3))
    expected = made.build(Model).outcomes(iteration)
    dataset = made.build()
    with dataset.iterator(iteration=iteration, workers=0) as iterator:
        found = collect(iterator, limit=one_more(expected), exact=False)
    told = difference(expected, found, ("reference", "in process"))
    assert told is None, f"iteration {iteration}, in process: {told}"
    count = dataset.cardinality()
    # A failed batch moves the later ones, an endless repetition may be of nothing, and assert_cardinality may assert
    # a wrong number.
    told_wrongly = r"batch\w*\((?!\))|\.repeat\(\)|\.assert_cardinality"
    exact = count >= 0 and not re.search(told_wrongly, str(made))
    assert not exact or count == len(found), f"{count} elements were announced, {len(found)} came"
    chosen = rng.sample(list(workers), min(2, len(workers)))
    options = rng.choice(OPTIONS)

    taken = (
        rng.choice((0, 0, rng.randrange(len(found) + 1), None)) if "folder()" in str(made) else 0
    )

    def build() -> Dataset:
        configured: Dataset = made.build().with_options(options)
        return configured if taken == 0 else standing(configured, taken)

    seed, counts = rng.randrange(2**32), (0, *chosen)
    assert_workers_do_not_show(build, counts, iteration=iteration)
    assert_resumes_anywhere(build, counts, iteration=iteration, steps=4, seed=seed)
    # Of few elements none is left when it strikes, and threads cannot be killed.
    elements = sum(not outcome.error for outcome in found)
    if elements >= 8 and max(chosen) and options.executor != "thread" and rng.random() < 0.25:
        slow = Step(".map(Pause(1))")  # below and above, so that workers have something to lose
        slowed = Pipeline(slow.after(made.source), made.steps).then(slow)
        assert_survives_kills(
            slowed.build().with_options(options), 2, workers=max(chosen), seed=seed
        )
    if rng.random() < 0.3:
        check_passes(made, rng)


def check_passes(made: Pipeline, rng: random.Random, workers: Sequence[int] = ()) -> None:
    """Check that passes of a pipeline do not affect later ones, and that its cache completes.

    Parameters
    ----------
    made : Pipeline
        The pipeline.
    rng : random.Random
        For the choice of passes.
    workers : sequence of int
        Not used: what is counted is counted in this process.

    Raises
    ------
    AssertionError
        A pass shows, or the cache computes in the second full pass.
    """
    del workers
    kinds = rng.sample(list(PASSES), 2)
    assert_passes_do_not_show(made.build, passes=kinds)
    cached = made.then(Step(".map(Count())")).then(Step(".cache()"))
    assert_passes_do_not_show(cached.build, passes=kinds, computed=calls)


class _TooLong(BaseException):  # no error of a pipeline: that would be an outcome
    """The time limit has passed."""


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    began = time.monotonic()

    def give_up(*_: object) -> None:
        # Beside other programs a pipeline that is whole takes longer; one that hangs never ends.
        crowd = os.getloadavg()[0] / usable_cores()
        if time.monotonic() - began >= seconds * crowd:
            raise _TooLong
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _problem(made: Pipeline, seed: str, workers: Sequence[int], test: Check) -> str | None:
    """Return the problem of a pipeline, or None."""
    try:
        with _patience(PATIENCE):
            test(made, random.Random(seed), workers)  # noqa: S311 - a test's choices
            if poison.wanted():
                poison.assert_clean(files=True)
    except AssertionError as problem:
        return str(problem)
    except _TooLong:
        return f"it took longer than {PATIENCE} s:\n{traceback.format_exc(limit=-5)}"
    except Exception:  # noqa: BLE001 - any other way to fail is a failure too
        return traceback.format_exc(limit=-3)
    return None


def _shortened(
    made: Pipeline, seed: str, workers: Sequence[int], test: Check, end: float
) -> Pipeline:
    """Return the pipeline with as few steps as still fail, as far as time permits."""
    for shorter in made.shorter():
        if time.monotonic() > end:
            break
        try:
            shorter.build()
        except Exception:  # noqa: BLE001, S112 - no pipeline any more
            continue
        if _problem(shorter, seed, workers, test):
            return _shortened(shorter, seed, workers, test, end)
    return made


def main(arguments: Sequence[str] | None = None, write: Callable[[str], Any] = print) -> int:
    """Run the fuzzer; return 0 if nothing failed.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line's.
    write : callable
        The function that writes a line.

    Examples
    --------
    >>> main(["--seed", "1", "--cases", "1", "--workers", "0"])
    1 passed, 0 failed
    0
    """
    parser = argparse.ArgumentParser(prog="python -m tundish.testing.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--only", type=int, metavar="CASE", help="run this case alone")
    parser.add_argument("--workers", default="1,2,3,5", help="numbers to choose from")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--measured", action="store_true", help="does measuring show?")
    kind.add_argument("--passes", action="store_true", help="do passes show in later ones?")
    kind.add_argument("--faults", action="store_true", help="is a damaged file told?")
    parser.add_argument(
        "--poison", action="store_true", help="does memory show that nobody has written?"
    )
    parser.add_argument("--verbose", action="store_true", help="print each case before it runs")
    given = parser.parse_args(arguments)
    if (given.poison or poison.wanted()) and not poison.active():  # only an exec makes it so
        again = sys.argv[1:] if arguments is None else arguments
        return poison.run(["-m", "tundish.testing.fuzz", *again])
    if poison.wanted():
        poison.install()
    workers = [int(count) for count in given.workers.split(",")]
    end = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    kinds = (
        (given.measured, check_measured),
        (given.passes, check_passes),
        (given.faults, check_faults),
    )
    test = next((chosen for wanted, chosen in kinds if wanted), check)
    passed = failed = 0
    for number in range(given.cases) if given.only is None else [given.only]:
        if time.monotonic() > end:
            break
        seed = f"{given.seed}/{number}"
        made = pipeline(random.Random(seed))  # noqa: S311 - a test's choices
        if given.verbose:
            write(f"case {number}: {made}")
        problem = _problem(made, seed, workers, test)
        passed, failed = passed + (problem is None), failed + (problem is not None)
        if problem:
            # Now, since shortening the case takes time.
            write(f"case {number} FAILED: {problem}\n  {made}")
            small = _shortened(made, seed, workers, test, time.monotonic() + 3 * PATIENCE)
            write(
                f"shortened to\n  {small}\n  {_problem(small, seed, workers, test)}\n"
                f"again: python -m tundish.testing.fuzz --seed {given.seed} --only {number}"
                f" --workers {given.workers}"
                f"{' --measured' * given.measured}{' --passes' * given.passes}"
                f"{' --faults' * given.faults}{' --poison' * poison.wanted()}"
            )
    write(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
