"""Prepared loaders are copied, pickled, given up and skipped within like those of torch."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from tests.torch.datasets import Numbers  # noqa: E402 - behind the skip
from tests.torch.streams import Stream  # noqa: E402

import tundish as td  # noqa: E402
from tundish.torch import DataLoader  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def prepared(loader: Any, **options: Any) -> Any:
    """Return Accelerate's loader around another, which nothing else knows."""
    return accelerate.data_loader.prepare_data_loader(loader, **options)


def by_epochs() -> Any:
    """A loader whose order depends on the number of the epoch."""
    return DataLoader(Numbers(10), 2, sampler=td.DistributedSampler(range(10), 1, 0))


def batches(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


COPIES = pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])


@COPIES
@pytest.mark.parametrize("dispatches", [False, True])
def test_a_copy_has_a_position_of_its_own(copied: Callable[[Any], Any], dispatches: bool) -> None:
    made = prepared(by_epochs(), dispatch_batches=dispatches, put_on_device=True)
    other = copied(made)
    batches(made)
    within = iter(made)
    next(within)
    state = made.state_dict()
    rest, following = [b.tolist() for b in within], batches(made)

    other.load_state_dict(state)
    assert other.state_dict() == state
    assert batches(made) not in (rest, following), "the original goes on with its own epochs"
    assert batches(other) == rest
    assert batches(other) == following


@COPIES
def test_a_copy_skips_by_the_position_that_it_was_copied_with(
    copied: Callable[[Any], Any],
) -> None:
    made = prepared(by_epochs())
    within = iter(made)
    next(within)
    state = made.state_dict()
    rest, following = [b.tolist() for b in within], batches(made)

    again = prepared(by_epochs())
    again.load_state_dict(state)
    other = copied(again)
    for each in (again, other):
        assert batches(accelerate.skip_first_batches(each, 1)) == rest
        assert batches(each) == following


ELSEWHERE = """
import pickle, sys
import tundish.torch

with open(sys.argv[1], "rb") as file:
    loader = pickle.load(file)
    loader.load_state_dict(pickle.load(file))
print([[batch.tolist() for batch in loader] for _ in range(2)])
"""


def test_a_copy_in_another_process_keeps_its_state(tmp_path: Path) -> None:
    made = prepared(by_epochs())
    fresh = pickle.dumps(made)
    batches(made)
    within = iter(made)
    next(within)
    (tmp_path / "loader").write_bytes(fresh + pickle.dumps(made.state_dict()))
    found = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "loader")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert found.stdout.strip() == str([batches(within), batches(made)]), found.stderr


SUBCLASS = """
from tundish.torch import DataLoader

class Twos(DataLoader):
    def __init__(self, dataset, **options):
        super().__init__(dataset, batch_size=2)

loader = Twos(range(4))
import accelerate

accelerator = accelerate.Accelerator(cpu=True)
for make in (lambda: loader, lambda: DataLoader(range(4), batch_size=3)):
    prepared = accelerator.prepare(make())
    print(type(prepared.base_dataloader) is DataLoader, [batch.tolist() for batch in prepared])
"""


def test_accelerate_meets_a_class_derived_from_ours_first() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SUBCLASS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert found.stdout.splitlines() == ["True [[0, 1], [2, 3]]", "True [[0, 1, 2], [3]]"], (
        found.stderr
    )


@pytest.mark.parametrize("dispatches", [False, True])
def test_a_prepared_loader_is_freed_when_it_is_let_go(dispatches: bool) -> None:
    made = prepared(
        DataLoader(Numbers(4), 2, num_workers=1, persistent_workers=True),
        dispatch_batches=dispatches,
        put_on_device=True,
    )
    assert len(batches(made)) == 2
    gc.collect()
    gc.disable()
    try:
        inside = weakref.ref(made.base_dataloader)
        del made
        assert inside() is None, "its workers would live on"
    finally:
        gc.enable()


class Pairs:
    """A batch sampler without a length."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1], [2, 3], [4, 5]])


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_an_epoch_ends_also_where_a_batch_sampler_has_no_length(skip: int) -> None:
    whole: Any = DataLoader(Numbers(6), batch_sampler=Pairs())
    assert len(batches(whole)) == 3
    again: Any = DataLoader(Numbers(6), batch_sampler=Pairs())
    again.load_state_dict(whole.state_dict())

    skipping = accelerate.skip_first_batches(again, skip)
    assert batches(skipping) == [[0, 1], [2, 3], [4, 5]][skip:]
    assert again.state_dict()["epoch"] == (0 if skip == 3 else 1), "of the last epoch that ended"
    assert len(batches(again)) == 3


def test_a_stream_is_skipped_within_before_it_is_prepared() -> None:
    stream: Any = DataLoader(Stream(8), 2)
    skipping = accelerate.skip_first_batches(stream, 1)
    assert batches(skipping) == [[2, 3], [4, 5], [6, 7]]

    within = iter(stream)
    next(within)
    again: Any = DataLoader(Stream(8), 2)
    accelerate.skip_first_batches(again, 3)
    again.load_state_dict(stream.state_dict())
    assert batches(prepared(again)) == [[2, 3], [4, 5], [6, 7]]


def test_one_that_skips_keeps_its_position_when_it_is_prepared() -> None:
    """Its batches are those behind the skipped ones, and its state counts these."""

    def skipping() -> Any:
        return accelerate.skip_first_batches(DataLoader(Numbers(10), 2), 1)

    whole = skipping()
    within = iter(whole)
    next(within)
    again = skipping()
    again.load_state_dict(whole.state_dict())
    assert batches(prepared(again)) == batches(within) == [[4, 5], [6, 7], [8, 9]]
