"""The promises of this library as functions, for pipelines of your own.

Each runs the pipeline several times and raises an `AssertionError` that says where two runs first
differ. The pipeline's functions must be deterministic in their arguments and `rng`; what else
they lean on (module state set at run time, BLAS threads) is what these functions find.
"""

from __future__ import annotations

import json
import math
import random
import threading
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from tundish.loader.operators.batching import Batch
from tundish.loader.operators.costing import BatchByCost
from tundish.loader.operators.gathering import SizedGathering
from tundish.loader.operators.grouping import Groups
from tundish.loader.operators.interleaving import Interleave
from tundish.loader.operators.packing import Pack
from tundish.loader.operators.rebatch import Rebatch
from tundish.loader.operators.resampling import RejectionResample
from tundish.loader.operators.shuffle import Shuffle
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.operators.windows import Window
from tundish.loader.plan.node import walk
from tundish.loader.plan.options import Options
from tundish.testing.compare import LIMIT, Outcome, collect, difference, one_more
from tundish.testing.elsewhere import collect_elsewhere
from tundish.testing.killing import Hunted, positions
from tundish.testing.surroundings import Resources, other_random_states, surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tundish.loader.dataset import Dataset
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.iterator import Iterator

    Made: TypeAlias = Dataset | Callable[[], Dataset]

__all__ = [
    "assert_caller_left_alone",
    "assert_resumes_anywhere",
    "assert_survives_kills",
    "assert_workers_do_not_show",
]


def assert_workers_do_not_show(
    dataset: Made,
    workers: Sequence[int] = (0, 1, 2, 3, 5),
    *,
    iteration: int = 0,
    limit: int = LIMIT,
) -> None:
    """Check that a pipeline gives the same with any number of workers.

    Elements, their order, batch boundaries, errors and every bit are compared, random
    augmentation included. Seeds that were not given are drawn once and used in every run.

    Parameters
    ----------
    dataset : Dataset or callable
        The pipeline, or a function that makes it anew for each run, so that what one run kept
        (`cache`) does not serve another.
    workers : sequence of int
        Numbers of workers to run it with; the first is what the others are compared with, and
        should be 0: in process.
    iteration : int
        Which iteration of the dataset: augmentation and shuffles differ from one to the next.
    limit : int
        The largest number of elements to compare; set it for a pipeline that never ends.

    Raises
    ------
    AssertionError
        Two runs differ.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.testing import assert_workers_do_not_show
    >>> assert_workers_do_not_show(td.Dataset.range(100).map(abs).batch(8), workers=(0, 2))
    """
    start = _start(dataset, iteration)
    expected: list[Outcome] | None = None
    for count in workers:
        with _started(dataset, start, count) as iterator:
            found = collect(iterator, limit=limit)
        if expected is None:
            expected, limit = found, one_more(found, limit)
        _check(expected, found, (_named(workers[0]), _named(count)))


def assert_resumes_anywhere(
    dataset: Made,
    workers: Sequence[int] = (0, 2),
    *,
    steps: int | None = None,
    fresh_process: bool = False,
    seed: int = 0,
    iteration: int = 0,
    limit: int = LIMIT,
) -> None:
    """Check that a pipeline can be stopped after any element and continued elsewhere.

    After every step the state is taken: it must be JSON and small, the same with any number of
    workers, and taking it must change nothing. A new iterator that is given the state must
    deliver exactly the rest, and say the same of itself along the way as the one it continues.

    Parameters
    ----------
    dataset : Dataset or callable
        The pipeline, or a function that makes it anew for each run, so that what one run kept
        (`cache`) does not serve another.
    workers : sequence of int
        Numbers of workers: the state is taken with each, and continued with each in turn.
    steps : int, optional
        Continue from this many steps, drawn at random, the first and the last among them. None:
        from every step, which takes time quadratic in the number of elements.
    fresh_process : bool, default False
        Continue in new Python processes. Slow: combine it with `steps`. The pipeline's functions
        must be importable there, or belong to ``__main__``.
    seed : int
        The seed by which steps are drawn.
    iteration : int
        Which iteration of the dataset: augmentation and shuffles differ from one to the next.
    limit : int
        The largest number of elements to look at; set it for a pipeline that never ends.

    Raises
    ------
    AssertionError
        A state is not JSON, too large, changed by a round trip, or differs by workers; taking it
        changed what came after; or a continued run differs.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.testing import assert_resumes_anywhere
    >>> assert_resumes_anywhere(td.Dataset.range(10).shuffle(4, seed=1).batch(3))
    """
    start = _start(dataset, iteration)
    with _started(dataset, start, workers[0]) as iterator:
        expected = collect(iterator, limit=limit)
    limit = one_more(expected, limit)
    states: dict[int, list[dict[str, Any]]] = {}
    allowed = _allowance(_built(dataset))
    for count in dict.fromkeys(workers):
        with _started(dataset, start, count) as iterator:
            states[count], found = _walk(iterator, allowed, limit)
        _check(expected, found, ("without taking states", f"taking states, {_named(count)}"))
        for step, (one, other) in enumerate(zip(states[workers[0]], states[count], strict=True)):
            told = _changes(one, other)
            assert one == other, f"step {step}: the state shows that it is {_named(count)}:{told}"
    rng = random.Random(seed)  # noqa: S311 - a test's choice
    for turn, step in enumerate(_steps(len(expected), steps, rng)):
        count, state = workers[turn % len(workers)], states[workers[0]][step]
        where = f"continued after step {step}, {_named(count)}"
        reached: dict[int, dict[str, Any]] = {}
        if fresh_process:
            rest, last = collect_elsewhere(_built(dataset), state, count, limit - step)
        else:
            with _started(dataset, state, count) as iterator:
                again = _json(iterator.state_dict())
                told = _changes(state, again)
                assert again == state, f"step {step}: a loaded state reads back otherwise:{told}"
                between = rng.randint(step, len(expected))
                rest = collect(iterator, limit=between - step)
                reached[between] = _json(iterator.state_dict())
                rest += collect(iterator, limit=limit - between)
                last = _json(iterator.state_dict())
        _check(expected[step:], rest, (f"the rest after step {step}", where))
        totals = [dict(_counts(end)) for end in (states[workers[0]][-1], last)]
        assert totals[0] == totals[1], f"{where}, it has counted {totals[1]}, not {totals[0]}"
        for at, found_there in {**reached, -1: last}.items():
            told = _changes(states[workers[0]][at], found_there)
            when = "at the end" if at < 0 else f"after step {at}"
            assert not told, f"{where}, its state {when} is another:{told}"


def assert_survives_kills(
    dataset: Made, kills: int = 3, *, workers: int = 2, seed: int = 0, limit: int = LIMIT
) -> None:
    """Check that a pipeline delivers the same though its workers are killed while it runs.

    At random steps a random worker is sent SIGKILL, at once or some milliseconds later. After
    closing, no process, thread, file descriptor or named shared memory may be left over.

    Parameters
    ----------
    dataset : Dataset or callable
        The pipeline, or a function that makes it; of some tens of elements, or it ends before it was hit.
    kills : int
        How many workers to kill. The usual limit of deaths on one element is lifted.
    workers : int
        The number of workers that run it.
    seed : int
        The seed of the choices.
    limit : int
        The largest number of elements to look at.

    Raises
    ------
    AssertionError
        The run with deaths differs, something leaked, or no worker could be killed.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.testing import assert_survives_kills
    >>> assert_survives_kills(td.Dataset.range(200).map(abs).batch(4), kills=2)
    """
    endless = Options(max_deaths=0).closed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # whatever it has set
        dataset = _built(dataset).with_options(endless)
    start = _start(dataset)
    with _started(dataset, start, 0) as iterator:
        expected = collect(iterator, limit=limit)
    limit = one_more(expected, limit)
    nodes = walk(dataset._node)  # noqa: SLF001 - the laws look inside
    folders = [node.path for node in nodes if isinstance(node, Snapshot) and node.path]
    # What a process starts once and keeps is started now; of a snapshot what writes, and what reads that.
    for most in (limit, limit) if folders else (1,):
        with _started(dataset, start, workers) as iterator:
            collect(iterator, limit=most)
    before = Resources(folders)
    rng = random.Random(seed)  # noqa: S311 - a test's choice
    with _started(dataset, start, workers) as iterator:
        hunted = Hunted(iterator, positions(len(expected), kills, rng), rng)
        found = collect(hunted, limit=limit)
        hunted.rest()
    assert hunted.killed or not kills, "the run was over before any worker could be killed"
    _check(expected, found, ("in process", f"{_named(workers)}, {hunted.killed} killed"))
    before.assert_back()


def assert_caller_left_alone(dataset: Made, workers: int = 2, *, limit: int = LIMIT) -> None:
    """Check that a run changes nothing in the process that asked for it.

    The global random states of `random` and `numpy`, the environment, the working directory, the
    signal handlers, the import path and the dataset are compared before and after, and the
    threads during the run as well.

    Parameters
    ----------
    dataset : Dataset or callable
        The pipeline, or a function that makes it anew for each run, so that what one run kept
        (`cache`) does not serve another.
    workers : int
        The number of workers that run it.
    limit : int
        The largest number of elements to look at.

    Raises
    ------
    AssertionError
        Something changed; the message names it.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.testing import assert_caller_left_alone
    >>> assert_caller_left_alone(td.Dataset.range(10).shuffle(None, seed=1).map(abs))
    """
    dataset = _built(dataset)
    with other_random_states():
        before = surroundings(dataset)
        with dataset.iterator(workers=workers) as iterator:
            collect(iterator, limit=1)
            during = threading.active_count()
            collect(iterator, limit=limit)
        after = surroundings(dataset)
    changed = [name for name, value in before.items() if value != after[name]]
    assert not changed, f"a run changed the caller's {', '.join(changed)}"
    assert during <= before["threads"], "a run started a thread in the caller's process"


# -- starting and continuing


def _built(dataset: Made) -> Dataset:
    return dataset() if callable(dataset) else dataset


def _start(dataset: Made, iteration: int = 0) -> dict[str, Any] | None:
    """Return the state to start from, or None if all new iterators start alike.

    Seeds that were not given differ from iterator to iterator; they are in the state.
    """
    with (
        _built(dataset).iterator(workers=0, iteration=iteration) as one,
        _built(dataset).iterator(workers=0) as other,
    ):
        state = _json(one.state_dict())
        return None if state == _json(other.state_dict()) else state


def _started(dataset: Made, state: dict[str, Any] | None, workers: int) -> Iterator:
    iterator = _built(dataset).iterator(workers=workers)
    if state is not None:
        iterator.load_state_dict(state)
    return iterator


def _walk(
    iterator: Iterator, allowed: int, limit: int
) -> tuple[list[dict[str, Any]], list[Outcome]]:
    """Run to the end, and take the state before every step, before the end and after it."""
    states: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    while True:
        state = iterator.state_dict()
        states.append(_json(state))
        size = len(json.dumps(state))
        step = len(outcomes)
        assert states[-1] == state, f"step {step}: a round trip through JSON changes the state"
        assert step == 0 or states[-2] != state, (
            f"step {step}: no progress, the state is the one before {outcomes[-1]}"
        )
        assert iterator.state_dict() == state, f"step {step}: taking the state changes it"
        assert size <= allowed, f"step {step}: the state has {size} bytes, allowed are {allowed}"
        made = collect(iterator, limit=1) if step < limit else []
        outcomes += made
        if not made:
            states.append(_json(iterator.state_dict()))
            return states, outcomes


def _counts(state: Any) -> Iterable[tuple[str, int]]:
    """Yield the counts, of skipped elements for instance, anywhere in a state."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from value.items() if key == "counts" else _counts(value)


def _changes(one: Any, other: Any, path: str = "") -> str:
    """Return the differences of two states, a line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys([*one, *other])
        return "".join(_changes(one.get(k), other.get(k), f"{path}/{k}") for k in keys)
    return "" if one == other else f"\n  {path}: {one} and {other}"


def _json(state: dict[str, Any]) -> dict[str, Any]:
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise AssertionError(f"a state is not JSON: {problem}") from problem
    return dict(back)


_KEYS = 16  # how many groups there are taken to be at once


def _allowance(dataset: Dataset) -> int:
    """Return the permitted size of a state: 4 KB a node, and 16 bytes a level of each buffered element's path."""
    nodes = list(walk(dataset._node))  # noqa: SLF001 - the laws look inside
    size = 4096 * len(nodes)
    for node in nodes:
        below = list(walk(node))
        buffered = 0
        if isinstance(node, Shuffle):
            buffered = node.cardinality if node.window == -2 else node.window or 0
        elif isinstance(node, Interleave):
            buffered = node.cycle
        elif isinstance(node, Window):
            buffered = node.span
        elif isinstance(node, Groups):
            buffered = _KEYS
        elif isinstance(node, Pack):
            buffered = node.open_rows + 1
        held = math.prod(map(_rows_of, below))
        size += 16 * len(below) * held * buffered
        if isinstance(node, RejectionResample):
            size += 16 * len(node.target)  # how often each class has come
    return size


def _rows_of(node: Operator) -> int:
    """Return the largest number of elements in one element of a node."""
    if isinstance(node, (Batch, SizedGathering, Window)):
        return node.size
    if isinstance(node, Groups):
        return node.size or _KEYS
    if isinstance(node, Rebatch):
        return max(node.sizes)
    if isinstance(node, Pack):  # of one token each
        return node.length
    if isinstance(node, BatchByCost):  # nobody knows how many are cheap enough
        return node.max_elements or 64
    return 1


def _steps(count: int, steps: int | None, rng: random.Random) -> list[int]:
    if steps is None or steps > count:
        return list(range(count + 1))
    return sorted({0, count, *rng.sample(range(count + 1), max(0, steps - 2))})


def _named(workers: int) -> str:
    return f"{workers} workers" if workers else "in process"


def _check(expected: list[Outcome], found: list[Outcome], names: tuple[str, str]) -> None:
    told = difference(expected, found, names)
    assert told is None, told
