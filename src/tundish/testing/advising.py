"""The law that advice is harmless: every change of the plan that a verdict may offer keeps the results."""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.loader.dataset import Dataset
from tundish.loader.operators.flat_map import FlatMap
from tundish.loader.operators.interleaving import Interleave
from tundish.loader.plan.node import INFINITE_CARDINALITY, walk
from tundish.loader.run.iterator import Iterator
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.histogram import Durations
from tundish.loader.watch.prediction import Hint, KeepAfter, Move
from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats
from tundish.loader.watch.verdict import explain
from tundish.testing.compare import collect, difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tundish.loader.protocols.operator import Operator
    from tundish.loader.watch.verdict import Verdict
    from tundish.loader.watch.view import PlanNode, PlanView
    from tundish.testing.compare import Outcome

__all__ = ["applied", "assert_advice_is_harmless", "check_text", "hints_for", "tempting"]

_EPOCHS = 3
_LIMIT = 2000
_COUNT = 100_000  # elements delivered
_DEAR_S, _CHEAP_S = 100.0, 5e-6
_BROKEN = re.compile(
    r"  | [,.;:)]|[(,;:] ?[,.;:)]|\b0 n?s\b|\bnan\b|\binf\b|without ?[,.]|\band [,.]|\bNone\b"
)
_TELLING = 5  # elements: fewer may come in the same order twice by chance


def assert_advice_is_harmless(
    make: Callable[[], Dataset], *, assumed: bool = False
) -> tuple[Hint, ...]:
    """Check that no change that a verdict may offer alters what a pipeline delivers.

    Several epochs are compared: the same elements, in the same order unless the change says that it gives
    another one, and epochs that differ wherever they differed before.

    Parameters
    ----------
    make : callable
        Makes the pipeline anew.
    assumed : bool
        Whether what changes assume of functions is true, besides that they give the same in each epoch; else
        such changes are left out.

    Returns
    -------
    tuple
        The changes that were made.

    Raises
    ------
    AssertionError
        A change shows.
    """
    if make().cardinality() == INFINITE_CARDINALITY:
        return ()
    whole = _epochs(make())
    if len(whole[0]) == _LIMIT:
        return ()
    hints = [h for h in hints_for(make()) if assumed or isinstance(h, KeepAfter) or not h.assumes]
    done = []
    for hint in hints:
        if isinstance(hint, KeepAfter) and not _is_true(make(), hint):
            continue
        # Another order gives other batches downstream: what reaches them is the same.
        one = _until(make(), hint) if hint.reorders else make()
        before = _epochs(one) if hint.reorders else whole
        with tempfile.TemporaryDirectory() as folder:
            _compare(before, _epochs(applied(one, hint, folder)), hint)
        done.append(hint)
    return tuple(done)


def _is_true(dataset: Dataset, hint: KeepAfter) -> bool:
    """Return True if functions that make datasets make the same ones in each epoch, as a change assumes."""
    kept = _until(dataset, replace(hint, shuffle=""))
    if not any(isinstance(node, (FlatMap, Interleave)) for node in walk(kept._node)):  # noqa: SLF001
        return True
    first, *others = _epochs(kept)
    return all(_multiset(first) == _multiset(other) for other in others)


def hints_for(dataset: Dataset) -> tuple[Hint, ...]:
    """Return all changes that a verdict on a plan may offer, whatever is measured."""
    with dataset.iterator(workers=0) as it:
        plan = view_of(it._engine.context)  # noqa: SLF001 - as an iterator's `explain`
    found: dict[Hint, None] = {}
    for stats in tempting(plan):
        verdict = explain(stats, plan)
        check_text(verdict)
        found |= dict.fromkeys(each.hint for each in verdict.predictions if each.hint is not None)
    return tuple(found)


def check_text(verdict: Verdict) -> None:
    """Check that a verdict consists of complete sentences, with finite numbers of reasonable size.

    Raises
    ------
    AssertionError
        It is not; with the text.
    """
    for text in (
        *verdict.lines,
        *(part for p in verdict.predictions for part in (p.change, p.basis)),
    ):
        fault = _BROKEN.search(text)
        assert fault is None, f"{fault.group()!r} in {text!r}"
        assert text.strip() == text, repr(text)
        assert text, str(verdict)
    for each in verdict.predictions:
        assert 0 <= each.now < math.inf, each
        assert 0 <= each.then < math.inf, each
        assert 0 < each.spread < math.inf, each


def tempting(plan: PlanView) -> Iterable[Stats]:
    """Yield measurements that make each operator in turn seem worth any change, with and without workers."""
    chain = plan.chain()
    for workers in (0, 2):  # nothing was seen to take any time: all of it is the library's own
        yield _where(plan, "", 0.0, workers)
    for dear in chain:
        for each_s, workers in ((_DEAR_S, 2), (_CHEAP_S, 2), (_DEAR_S, 0)):
            yield _where(plan, dear.name, each_s, workers)


def _where(plan: PlanView, dear: str, each_s: float, workers: int) -> Stats:
    """Return measurements of a run in which one operator takes nearly all the time."""
    nodes = tuple(
        _node(plan, each, each_s / (1 if each.name == dear else 1000)) for each in plan.chain()
    )
    last, busy_s = nodes[-1], sum(node.busy_s for node in nodes)
    tasks = Durations()
    if busy_s:
        tasks.add(busy_s / _COUNT, _COUNT)
    made = {"tasks": _COUNT, "rows": last.elements + last.dropped} if workers else {}
    stage = StageStats(
        last.name, nodes, "workers" if workers else "consumer", last.elements, last.dropped,
        busy_s=busy_s, cpu_s=busy_s, time=tasks.frozen(), **made,
    )  # fmt: skip
    wall_s = busy_s / max(1, workers) or 1.0
    pool = tuple(WorkerStats(k, 9 + k, 1, 1, wall_s, wall_s, wall_s) for k in range(workers))
    return Stats(
        workers=workers, elements=_COUNT, nbytes=_COUNT, wall_s=wall_s, waited_s=wall_s if busy_s else 0.0,
        own_s=0.0 if busy_s else wall_s, budget_bytes=1 << 30,
        cpu_s=0.0 if workers else busy_s, cores=8, watched=True, stages=(stage,), pool=pool,
    )  # fmt: skip


def _node(plan: PlanView, node: PlanNode, each_s: float) -> NodeStats:
    count, times = _COUNT * (plan.rows_above(node.name) or 2), Durations()
    if each_s:
        times.add(each_s, 100)
    dropped = count if node.op == "filter" else 0
    return NodeStats(node.name, count, dropped, 0, times.frozen(), each_s * count, calls=True)


def applied(dataset: Dataset, hint: Hint, folder: str) -> Dataset:
    """Apply a change to a dataset.

    Parameters
    ----------
    dataset : Dataset
        The pipeline.
    hint : Hint
        A change that a verdict on it has offered.
    folder : str
        The folder of a snapshot that has to be complete.
    """
    base, steps = _steps(dataset)
    names = [step.name for step in steps]
    if isinstance(hint, Move):
        moved = steps.pop(names.index(hint.name))
        steps.insert([step.name for step in steps].index(hint.before), moved)
    elif isinstance(hint, KeepAfter):
        kept = [_Step("cache", None, lambda up: up.cache())]
        if hint.complete:
            kept = [_Step("snapshot", None, lambda up: _written(up, folder))]
        if hint.shuffle:
            kept.append(steps.pop(names.index(hint.shuffle)))
        at = 1 + next((k for k, step in enumerate(steps) if step.name == hint.after), -1)
        steps[at:at] = kept
    else:
        at = names.index(hint.name)
        function: Any = steps[at].node.function  # of a map
        steps[at] = _Step(hint.name, None, lambda up: up.map_batches(function, hint.rows))
    return _joined(base, steps)


def _written(up: Dataset, folder: str) -> Dataset:
    """Write a complete snapshot of a dataset."""
    with up.snapshot(folder).iterator(workers=0) as it:
        collect(it, limit=_LIMIT)
    return up.snapshot(folder)


def _until(dataset: Dataset, hint: Hint) -> Dataset:
    """Return the dataset up to the last of the operators that a change concerns."""
    base, steps = _steps(dataset)
    about = {hint.after, hint.shuffle} if isinstance(hint, KeepAfter) else {hint.name}
    last = max((k for k, step in enumerate(steps) if step.name in about), default=-1)
    return _joined(base, steps[: last + 1])


def _steps(dataset: Dataset) -> tuple[Operator, list[_Step]]:
    """Return the source, or the last operator that joins several inputs, and the operators after it."""
    with dataset.iterator(workers=0) as it:
        context = it._engine.context  # noqa: SLF001 - it names the operators
        nodes = [context.root]
        while hasattr(nodes[-1], "up"):
            nodes.append(nodes[-1].up)
        base, *rest = nodes[::-1]
        return base, [_Step(context.label(node), node, _again(node)) for node in rest]


def _joined(base: Operator, steps: list[_Step]) -> Dataset:
    made = Dataset._of(base)  # noqa: SLF001 - plans are changed here
    for step in steps:
        made = step.take(made)
    return made


class _Step:
    """An operator that can be applied to another dataset."""

    def __init__(self, name: str, node: Any, take: Callable[[Dataset], Dataset]) -> None:
        self.name, self.node, self.take = name, node, take


def _again(node: Operator) -> Callable[[Dataset], Dataset]:
    return lambda up: Dataset._of(replace(node, up=up._node))  # type: ignore[call-arg]  # noqa: SLF001


def _epochs(dataset: Dataset) -> list[list[Outcome]]:
    found = []
    for epoch in range(_EPOCHS):
        with Iterator(dataset._node, iteration=epoch, workers=0, base_seed=7) as it:  # noqa: SLF001
            found.append(collect(it, limit=_LIMIT))
    return found


def _compare(before: list[list[Outcome]], after: list[list[Outcome]], hint: Hint) -> None:
    if isinstance(hint, KeepAfter) and hint.complete:
        before, after = [*map(_any_error, before)], [*map(_any_error, after)]
    for epoch, (one, other) in enumerate(zip(before, after, strict=True)):
        if hint.reorders:
            lost, added = _multiset(one) - _multiset(other), _multiset(other) - _multiset(one)
            assert not lost, (
                f"{hint}: epoch {epoch} lacks {list(lost)[:3]}, and has {list(added)[:3]}"
            )
            assert not added, f"{hint}: epoch {epoch} has {list(added)[:3]} more"
        else:
            told = difference(one, other, ("as it was", f"{hint}, epoch {epoch}"))
            assert told is None, told
    for first in range(_EPOCHS - 1):
        differed = before[first] != before[first + 1] and len(before[first]) >= _TELLING
        assert not differed or after[first] != after[first + 1], f"{hint}: epochs became alike"


def _any_error(outcomes: list[Outcome]) -> list[Outcome]:
    """Replace errors by `TransformError`, as a snapshot may."""
    return [replace(each, error="any", digest="") if each.error else each for each in outcomes]


def _multiset(outcomes: list[Outcome]) -> Counter[tuple[str | None, str]]:
    return Counter((each.error, each.digest) for each in outcomes)
