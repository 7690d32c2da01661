"""The laws can fail: engines that are wrong in one way each, and the law that notices.

`Mutant` is a dataset whose iterators do one thing wrong; what they deliver comes from the real
ones. Real impure functions are in the tests of each law.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import pytest
from tests.laws.functions import pure

from tundish import Dataset
from tundish.testing import (
    assert_caller_left_alone,
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)
from tundish.testing.functions import Draw, Pause


class Mutant:
    """A dataset that wraps its iterators."""

    def __init__(self, dataset: Dataset, wrong: type[Right]) -> None:
        self.dataset = dataset
        self.wrong = wrong
        self._node = dataset._node

    def iterator(self, *, iteration: int = 0, workers: int = 0) -> Right:
        return self.wrong(self.dataset.iterator(iteration=iteration, workers=workers), workers)

    def with_options(self, options: Any) -> Mutant:
        return Mutant(self.dataset.with_options(options), self.wrong)


def mutant(dataset: Dataset, wrong: type[Right]) -> Any:
    """One that passes for a dataset."""
    return Mutant(dataset, wrong)


class Right:
    """An iterator with nothing wrong."""

    def __init__(self, iterator: Any, workers: int) -> None:
        self.iterator = iterator
        self.workers = workers
        self.delivered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.iterator.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        element = next(self.iterator)
        self.delivered += 1
        return element

    def state_dict(self) -> Any:
        return self.iterator.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.iterator.load_state_dict(state)

    def worker_pids(self) -> list[int]:
        pids: list[int] = self.iterator.worker_pids()
        return pids


class Swaps(Right):
    """An engine whose fourth and fifth elements change places with workers."""

    def __init__(self, iterator: Any, workers: int) -> None:
        super().__init__(iterator, workers)
        self.late: list[Any] = []

    def __next__(self) -> Any:
        if self.workers and self.delivered == 3:
            self.late.append(super().__next__())
            return super().__next__()
        return self.late.pop() if self.late else super().__next__()


class Drops(Right):
    """An engine that loses the last element with workers."""

    def __next__(self) -> Any:
        element = super().__next__()
        if self.workers and self.delivered == 12:
            raise StopIteration
        return element


class CountsConsumed(Right):
    """The state is that of the element ahead: what was read, not what was delivered."""

    def __init__(self, iterator: Any, workers: int) -> None:
        super().__init__(iterator, workers)
        self.ahead: list[Any] = []

    def __next__(self) -> Any:
        while len(self.ahead) < 2:
            try:
                self.ahead.append(super().__next__())
            except StopIteration:
                break
        if not self.ahead:
            raise StopIteration
        return self.ahead.pop(0)


class Moves(Right):
    """Taking a state takes an element, too."""

    def state_dict(self) -> Any:
        next(self.iterator, None)
        return self.iterator.state_dict()


class KeepsData(Right):
    """The state holds what was delivered."""

    def __init__(self, iterator: Any, workers: int) -> None:
        super().__init__(iterator, workers)
        self.data: list[str] = []

    def __next__(self) -> Any:
        element = super().__next__()
        self.data.append(f"{element!r:>2000}")
        return element

    def state_dict(self) -> Any:
        return {**self.iterator.state_dict(), "data": list(self.data)}


class IsNoJson(Right):
    """The state holds a tuple, which JSON makes a list."""

    def state_dict(self) -> Any:
        return {**self.iterator.state_dict(), "extra": (1, 2)}


class NamesWorkers(Right):
    """The state says how many workers there were."""

    def state_dict(self) -> Any:
        return {**self.iterator.state_dict(), "workers": self.workers}


class ReadsOneOff(Right):
    """A state is read one element off."""

    def load_state_dict(self, state: Any) -> None:
        self.iterator.load_state_dict(state)
        next(self.iterator, None)


class LosesCounts(Right):
    """An engine that loses at a restore what was counted before."""

    def __init__(self, iterator: Any, workers: int) -> None:
        super().__init__(iterator, workers)
        self.loaded: dict[str, Any] = {}

    def load_state_dict(self, state: Any) -> None:
        self.loaded = state
        self.iterator.load_state_dict({k: v for k, v in state.items() if k != "counts"})

    def state_dict(self) -> Any:
        count = self.delivered or self.loaded.get("counts", {}).get("delivered", 0)
        return {**self.iterator.state_dict(), "counts": {"delivered": count}}


class ShowsThatItWasRestored(Right):
    """States taken after a restore differ, though what is delivered does not."""

    restored = False

    def load_state_dict(self, state: Any) -> None:
        self.restored = "on" in state
        self.iterator.load_state_dict({k: v for k, v in state.items() if k != "on"})

    def state_dict(self) -> Any:
        return {**self.iterator.state_dict(), "on": bool(self.restored and self.delivered)}


class StandsStill(Right):
    """An engine that never gets past an error: it comes at every `next` from then on."""

    def __next__(self) -> Any:
        if self.delivered == 2:
            raise SystemExit(3)
        return super().__next__()


class RaisesTwice(Right):
    """An error comes once more in the same place."""

    raised = 0

    def __next__(self) -> Any:
        if self.delivered == 2 and self.raised < 2:
            self.raised += 1
            raise SystemExit(3)
        return super().__next__()


class ForgetsTheDead(Right):
    """An engine that never makes again what a killed worker held."""

    def __next__(self) -> Any:
        element = super().__next__()
        if self.iterator.stats.restarts and not self.delivered % 3:
            return super().__next__()
        return element


class LeavesAThread(Right):
    """A thread is left in the caller's process."""

    stop = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self.stop.wait, daemon=True).start()
        return self


PLAN = Dataset.range(40).map(pure).map(Draw(1), seed=1).batch(3)
LAW_1 = partial(assert_workers_do_not_show, workers=(0, 2))
LAW_2 = partial(assert_resumes_anywhere, workers=(0,))
LAW_2_OTHERS = partial(assert_resumes_anywhere, workers=(0, 1), steps=3)
LAW_4 = partial(assert_survives_kills, kills=2)
LAW_9 = partial(assert_caller_left_alone, workers=0)


@pytest.mark.parametrize(
    ("wrong", "law", "told"),
    [
        (Swaps, LAW_1, "first differ at position 3"),
        (Drops, LAW_1, "the end"),
        (CountsConsumed, LAW_2, "first differ"),
        (Moves, LAW_2, "changes it"),
        (KeepsData, LAW_2, "bytes"),
        (IsNoJson, LAW_2, "JSON"),
        (NamesWorkers, LAW_2_OTHERS, "shows that it is 1 workers"),
        (ReadsOneOff, LAW_2, "reads back otherwise"),
        (LosesCounts, LAW_2, "has counted"),
        (ShowsThatItWasRestored, LAW_2, "its state after step"),
        (StandsStill, LAW_1, "no progress: builtins.SystemExit"),
        (RaisesTwice, LAW_2, "step 3: no progress"),
    ],
)
def test_a_mutant_is_caught(wrong: type[Right], law: Callable[[Any], None], told: str) -> None:
    law(mutant(PLAN, Right))
    with pytest.raises(AssertionError, match=told):
        law(mutant(PLAN, wrong))


def test_a_mutant_that_loses_what_the_dead_held_is_caught() -> None:
    ds = Dataset.range(90).map(Pause(1)).batch(3)
    LAW_4(mutant(ds, Right))
    with pytest.raises(AssertionError, match="killed"):
        LAW_4(mutant(ds, ForgetsTheDead))


def test_a_thread_left_behind_is_caught() -> None:
    LAW_9(mutant(PLAN, Right))
    try:
        with pytest.raises(AssertionError, match="thread"):
            LAW_9(mutant(PLAN, LeavesAThread))
    finally:
        LeavesAThread.stop.set()


def test_a_run_without_workers_to_kill_is_no_proof() -> None:
    with pytest.raises(AssertionError, match="before any worker could be killed"):
        assert_survives_kills(PLAN, workers=0)
