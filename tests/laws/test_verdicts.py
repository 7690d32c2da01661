"""A verdict names the costly function, wherever it stands, or says that it does not know.

The costly function sleeps: a busy machine makes no call shorter, and the calls take next to no CPU time.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.laws.costly import PLACES, Slow

from tundish import Dataset
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch.prediction import BatchedCall, KeepAfter, Move
from tundish.testing.registry import FIRST, OTHERS, REGISTRY, Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tundish.loader.watch.prediction import Prediction
    from tundish.loader.watch.verdict import Verdict
    from tundish.loader.watch.view import PlanView

CALL_S = 0.003
"""The duration of a costly call, for each process that makes such calls."""
CALLS = 40
"""The least number of costly calls of a case of the registry."""
MOST = 100
"""The number of elements of a case that are asked for: some never end."""
UNSEEN = ("was seen in no operator", "No operator was seen")
"""What a verdict says that does not know."""


@dataclass(frozen=True)
class Run:
    """A pipeline that was run to its end."""

    verdict: Verdict
    plan: PlanView
    slept_s: float

    @property
    def busy(self) -> dict[str, float]:
        """The seconds of each operator, over all stages that name it."""
        found: dict[str, float] = {}
        for stage in self.verdict.stats.stages:
            for node in stage.nodes:
                found[node.name] = found.get(node.name, 0.0) + node.busy_s
        return found


def ran(dataset: Dataset, workers: int, path: Path, seconds: float, limit: int = 10_000) -> Run:
    """Run a pipeline whose costly calls take so many seconds each; elements that fail count."""
    with dataset.iterator(workers=workers) as iterator:
        for _ in range(limit):
            try:
                next(iterator)
            except StopIteration:
                break
            except Exception:  # noqa: BLE001 - an element's
                continue
        verdict = iterator.explain()
        return Run(verdict, view_of(iterator._engine.context), calls_in(path) * seconds)


def fresh(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def calls_in(path: Path) -> int:
    return path.stat().st_size


def assert_told(run: Run, costly: set[str]) -> None:
    """Assert that the time is seen at the costly operators, and that the verdict names one of them."""
    verdict, busy = run.verdict, run.busy
    told = {name: round(seconds, 4) for name, seconds in busy.items()}
    text = str(verdict)

    seen_s = sum(busy.get(name, 0.0) for name in costly)
    # Workers also make elements that are not wanted in the end, and tell nothing of those, nor yet of the last tasks.
    # Without workers, a pause of the machine between two sampled calls takes its share from the calls.
    known_s = min(run.slept_s, sum(busy.values()))
    if known_s > 0.1 * run.slept_s or not verdict.stats.workers:
        assert known_s > 0.25 * run.slept_s or verdict.stats.workers, told
        assert seen_s >= 0.7 * known_s, told
    assert verdict.limit not in {"consumer", "coordinator"}, text
    if verdict.limit != "unknown" and not any(words in text for words in UNSEEN):
        # To open files may in fact take longer.
        longer = {name for name, seconds in busy.items() if seconds > seen_s}
        assert verdict.name in costly | longer, (costly, text)
        assert verdict.name in text, text


def assert_all_told(run: Run, costly: set[str]) -> None:
    """Assert also that no time is missing, and that no predicted rate is out of reach."""
    assert_told(run, costly)
    stats, costs = run.verdict.stats, run.verdict.costs
    known_s = sum(run.busy.values())
    delivered = stats.elements + stats.errors
    assert known_s <= 1.01 * sum(stage.busy_s for stage in stats.stages), run.busy
    if not stats.workers:
        # Workers report the times of their last tasks too late, and a few long tasks look like a start.
        assert run.verdict.name in costly, str(run.verdict)
        assert known_s >= 0.5 * run.slept_s, (run.busy, run.slept_s)
        assert delivered * sum(costs.nodes.values()) >= 0.45 * run.slept_s, costs
    if stats.workers and known_s < 0.5 * run.slept_s:
        return  # what workers have not told yet cannot be predicted from
    for each in run.verdict.predictions:
        most = most_of(each, run, costly)
        assert most is None or each.then <= 2 * most, (str(each), most)


def most_of(prediction: Prediction, run: Run, costly: set[str]) -> float | None:
    """Return the highest rate that a change can give; None if it spares costly calls."""
    stats, hint = run.verdict.stats, prediction.hint
    once = (stats.elements + stats.errors) / run.slept_s
    spares = (
        (isinstance(hint, Move) and hint.name not in costly)
        or (isinstance(hint, BatchedCall) and hint.name in costly)
        or (
            isinstance(hint, KeepAfter)
            and any(n.name in costly for n in run.plan.below(hint.after))
        )
    )
    if spares:
        return None
    workers, first = stats.workers, prediction.what.split()[0]
    if prediction.what == "no workers":
        workers = 1
    elif prediction.what == "one more worker":
        workers += 1
    elif first.isdigit():
        workers = int(first)
    return once * max(1, workers)


# -- at every place of an operator -------------------------------------------------------------

TELLING = (
    "flat_map, before", "flat_map", "flat_map, within", "flat_map, after", "interleave, before", "interleave, within",
    "group_by_window", "window, within", "zip, second", "concatenate, second", "map", "filter, few", "map_batches",
    "scan", "group_by_reducer", "batch_by_cost", "from_generator", "from_source, several",
)  # fmt: skip
"""The places that are always tried with workers, too: one of each kind."""
ELSEWHERE = {"load", "snapshot"}
"""Operators that read or write files: the time is the files'."""
OPENING = {"flat_map", "interleave", "group_by_window"}
"""Operators in whose datasets the costly function is called, too."""


def with_workers(names: Any, telling: Any) -> list[Any]:
    """Return tests without and with workers; those with workers that are not telling only before a release."""
    found = [pytest.param(name, 0) for name in names]
    for name in names:
        marks = [] if name in telling else [pytest.mark.thorough]
        found.append(pytest.param(name, 2, marks=marks))
    return found


def test_each_operator_with_a_function_is_among_the_places() -> None:
    placed = {place.partition(",")[0] for place in PLACES} | ELSEWHERE
    for name in REGISTRY:
        method: Callable[..., Any] = getattr(Dataset, name)
        hints = [str(each.annotation) for each in inspect.signature(method).parameters.values()]
        if any("Callable" in hint for hint in hints):
            assert name in placed, name


@pytest.mark.parametrize(("place", "workers"), with_workers(PLACES, TELLING))
def test_the_costly_function_is_named_at_every_place(
    place: str, workers: int, tmp_path: Path
) -> None:
    path, seconds = fresh(tmp_path / "calls"), CALL_S * max(1, workers)
    name, make = PLACES[place]
    run = ran(make(lambda then=None: Slow(path, seconds, then)), workers, path, seconds)

    assert name in {node.name for node in run.plan.nodes}, run.plan
    assert_all_told(run, {name})


# -- before and after every operator -----------------------------------------------------------


class Costly:
    """The class methods of `Dataset`, with a costly function behind each source, also within functions."""

    def __init__(self, slow: Slow) -> None:
        self._slow = slow

    def __getattr__(self, name: str) -> Any:
        method = getattr(Dataset, name)
        if name in {"zip", "sample_from_datasets", "choose_from_datasets"}:
            return method
        return lambda *args, **kwargs: method(*args, **kwargs).map(self._slow)

    def __getstate__(self) -> dict[str, Any]:
        return {"_slow": self._slow}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def before(case: Case, slow: Slow) -> Dataset:
    dataset: Dataset = case.pipeline(Costly(slow))
    return dataset


def after(case: Case, slow: Slow) -> Dataset:
    return case.build().map(slow)


def assert_told_by(
    case: Case, make: Callable[[Case, Slow], Dataset], workers: int, path: Path
) -> None:
    """Assert that the costly function of a case is named, if it is called often enough."""
    ran(make(case, Slow(path, 0.0)), 0, fresh(path), 0.0, MOST)
    once = calls_in(path)
    if once < 4:
        return
    seconds = CALL_S * max(1, workers)
    dataset = make(case, Slow(fresh(path), seconds))
    run = ran(dataset.repeat(-(-CALLS // once)), workers, path, seconds, MOST)
    if calls_in(path) >= CALLS / 2:  # else what was kept was not called again
        opening = OPENING if make is before else set()
        costly = {n.name for n in run.plan.nodes if n.function == "Slow" or n.op in opening}
        assert_told(run, costly)


CASES = with_workers(FIRST, ())
# Functions that raise KeyboardInterrupt and the like would end the loop that reads.
STAYING = [case for case in OTHERS if "quits" not in case.name]
OTHER_CASES = [
    pytest.param(*each.values, marks=pytest.mark.thorough)
    for each in with_workers(STAYING, STAYING)
]
MAKERS = pytest.mark.parametrize("make", [before, after])


@pytest.mark.parametrize(
    ("case", "workers"), CASES + OTHER_CASES, ids=lambda case: getattr(case, "name", case)
)
@MAKERS
def test_a_costly_function_before_or_after_any_operator_is_named(
    case: Case, workers: int, make: Callable[[Case, Slow], Dataset], tmp_path: Path
) -> None:
    assert_told_by(case, make, workers, tmp_path / "calls")
