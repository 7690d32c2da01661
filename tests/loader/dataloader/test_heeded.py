"""No parameter of a DataLoader is ignored in silence, whatever the dataset: it acts, or it is refused."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.loader.dataloader import datasets

import tundish as td
from tundish.errors import ChangedGlobalsError, StalledError

LIMIT = 3
"""A global that a test changes at run time."""
INHERITED: list[int] = []
"""A global whose contents a forked worker has, and no other."""
PARAMETERS = set(inspect.signature(td.DataLoader.__init__).parameters) - {"self", "dataset"}


class Sample(datasets.Numbers):
    """Sample i is what a function says of i."""

    def __init__(self, count: int, function: Callable[[Any], Any]) -> None:
        super().__init__(count)
        self.function = function

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return self.function(index)


def mapped(count: int, function: Callable[[Any], Any]) -> Any:
    return Sample(count, function)


def ours(count: int, function: Callable[[Any], Any]) -> Any:
    return td.Dataset.range(count).map(function)


MAKERS = {"map": mapped, "ours": ours}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
Make = Callable[[int, Callable[[Any], Any]], Any]


def same(x: Any) -> Any:
    return int(x)


def below_limit(x: Any) -> int:
    return int(int(x) < LIMIT)


def inherited(x: Any) -> int:
    return len(INHERITED)


class Until:
    """Waits at one element until there is a file."""

    def __init__(self, at: int, go: Path) -> None:
        self.at, self.go = at, go

    def __call__(self, x: Any) -> int:
        while int(x) == self.at and not self.go.exists():
            time.sleep(0.002)
        return int(x)


def flat(loader: Any) -> list[int]:
    return [int(x) for batch in loader for x in batch]


def batch_size(make: Make) -> None:
    assert [len(batch) for batch in td.DataLoader(make(5, same), batch_size=2)] == [2, 2, 1]
    assert [int(x) for x in td.DataLoader(make(3, same), batch_size=None)] == [0, 1, 2]


def order(name: str, value: Any, expected: list[int]) -> Callable[[Make], None]:
    def check(make: Make) -> None:
        td.set_seed(0)
        if make is ours:
            with pytest.raises(ValueError, match=f"{name}.*|an iterable dataset has its own order"):
                td.DataLoader(make(6, same), **{name: value})
        else:
            assert sorted(flat(td.DataLoader(make(6, same), **{name: value}))) == expected

    return check


def num_workers(make: Make) -> None:
    pids = set(flat(td.DataLoader(make(6, lambda _: os.getpid()), num_workers=2)))
    assert os.getpid() not in pids


def collate_fn(make: Make) -> None:
    assert list(td.DataLoader(make(4, same), 2, collate_fn=sum)) == [1, 5]


def pin_memory(make: Make) -> None:
    assert "numpy arrays are not pinned" in str(td.DataLoader.__doc__)
    assert flat(td.DataLoader(make(4, same), 2, pin_memory=True)) == [0, 1, 2, 3]


def pin_memory_device(make: Make) -> None:
    assert flat(td.DataLoader(make(4, same), 2, pin_memory_device="cuda")) == [0, 1, 2, 3]


def drop_last(make: Make) -> None:
    assert flat(td.DataLoader(make(5, same), 2, drop_last=True)) == [0, 1, 2, 3]


def timeout(make: Make) -> None:
    with pytest.raises(AssertionError, match="timeout needs num_workers > 0"):
        iter(td.DataLoader(make(4, same), 2, timeout=1))


def refused_for_ours(name: str, value: Any) -> Callable[[Make], None]:
    def check(make: Make) -> None:
        if make is ours:
            with pytest.raises(ValueError, match=f"takes no {name}: "):
                td.DataLoader(make(4, same), num_workers=1, **{name: value})
        else:  # what each does is held by other tests
            td.DataLoader(make(4, same), num_workers=1, **{name: value})

    return check


def multiprocessing_context(make: Make) -> None:
    INHERITED[:] = [1, 2]
    try:
        for context in ("fork", multiprocessing.get_context("fork")):
            loader = td.DataLoader(
                make(2, inherited), num_workers=1, multiprocessing_context=context
            )
            assert flat(loader) == [2, 2]
    finally:
        INHERITED.clear()


def prefetch_factor(make: Make) -> None:
    loader = td.DataLoader(make(400, same), 1, num_workers=1, prefetch_factor=60)
    it = iter(loader)
    next(it)
    if make is ours:
        assert it._source._engine.context.root.prefetched == 60  # type: ignore[union-attr]
    assert flat(it) == list(range(1, 400))


def persistent_workers(make: Make) -> None:
    loader = td.DataLoader(make(4, same), num_workers=1, persistent_workers=True)
    assert flat(loader) == flat(loader) == [0, 1, 2, 3]
    assert "`persistent_workers` has no effect" in str(td.DataLoader.__doc__)


def in_order(make: Make) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as home:
        go = Path(home, "go")
        loader = td.DataLoader(make(40, Until(0, go)), 1, num_workers=2, in_order=False)
        it = iter(loader)
        had = [int(next(it)[0])]
        assert had != [0], "it came, though the first one waits"
        go.touch()
        assert sorted(had + flat(it)) == list(range(40))


def changed_globals(make: Make) -> None:
    module: Any = sys.modules[__name__]
    module.LIMIT = 5
    try:
        with pytest.raises(ChangedGlobalsError, match="LIMIT"):
            flat(td.DataLoader(make(8, below_limit), num_workers=1, globals="error"))
        left = td.DataLoader(make(8, below_limit), num_workers=1, globals="ignore")
        assert sum(flat(left)) == 3
    finally:
        module.LIMIT = 3


ROWS: dict[str, Callable[[Make], None]] = {
    "batch_size": batch_size,
    "shuffle": order("shuffle", True, list(range(6))),
    "sampler": order("sampler", [1, 4], [1, 4]),
    "batch_sampler": order("batch_sampler", [[1, 4], [2]], [1, 2, 4]),
    "num_workers": num_workers,
    "collate_fn": collate_fn,
    "pin_memory": pin_memory,
    "drop_last": drop_last,
    "timeout": timeout,
    "worker_init_fn": refused_for_ours("worker_init_fn", same),
    "multiprocessing_context": multiprocessing_context,
    "generator": refused_for_ours("generator", td.TorchGenerator(0)),
    "prefetch_factor": prefetch_factor,
    "persistent_workers": persistent_workers,
    "pin_memory_device": pin_memory_device,
    "in_order": in_order,
    "rng_compat": refused_for_ours("rng_compat", "torch"),
    "globals": changed_globals,
}


def test_every_parameter_has_a_row() -> None:
    assert set(ROWS) == PARAMETERS


@each
@pytest.mark.parametrize("name", ROWS)
def test_it_is_heeded_or_refused(name: str, make: Make) -> None:
    ROWS[name](make)


@each
@pytest.mark.parametrize("collate", [None, list], ids=["batched", "collated"])
@pytest.mark.parametrize("at", [0, 2, 3])
def test_a_timeout_loses_nothing(make: Make, collate: Any, at: int, tmp_path: Path) -> None:
    """Neither in this iterator, nor in one that goes on from the state of that moment."""
    go = tmp_path / "go"

    def loader() -> td.DataLoader:
        data = make(8, Until(at, go))
        return td.DataLoader(data, 2, num_workers=1, timeout=0.05, collate_fn=collate)

    first = loader()
    it = iter(first)
    late: list[StalledError] = []
    had: list[int] = []
    states: list[tuple[list[int], dict[str, Any]]] = []
    while len(had) < 8:
        try:
            had += [int(x) for x in next(it)]
        except StalledError as error:
            late.append(error)
            if not go.exists():
                states = [(list(had), first.state_dict())]
                if len(late) > 20:  # most of them not while workers start
                    go.touch()
    assert had == list(range(8))
    assert all(isinstance(error, RuntimeError) for error in late), "as torch's"
    assert {str(error).partition(", waiting for")[0] for error in late} == {
        "DataLoader timed out after 0.05 seconds"
    }
    ((before, state),) = states
    again = loader()
    again.timeout = 60
    again.load_state_dict(state)
    assert before + flat(again) == had
    with pytest.raises(StopIteration):
        next(it)


def test_a_dataset_with_workers_of_its_own_has_the_timeout(tmp_path: Path) -> None:
    data = td.Dataset.range(8).map(Until(4, tmp_path / "go"), num_parallel_calls=1)
    it = iter(td.DataLoader(data, 2, timeout=0.05))
    had: list[int] = []
    while len(had) < 8:
        try:
            had += next(it).tolist()
        except StalledError:  # a task may have more than the element that waits
            (tmp_path / "go").touch()
    assert had == list(range(8))
