"""Conformance 40, on: datasets and samplers that have a state of their own, or iterate without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.torch.datasets import Numbers
from tests.torch.faces import Face, epoch, taken

if TYPE_CHECKING:
    from collections.abc import Iterator

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

SIZE, BATCH = 11, 2


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """Counts, and says how far it is."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < self.size:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_40_an_iterable_with_a_state(stateful: Face, workers: int, step: int) -> None:
    if not stateful.torch:
        pytest.skip("the dataset is torch's")

    def loader() -> Any:
        return stateful(Stream(5), batch_size=2, num_workers=workers)

    wanted = epoch(loader())
    before = loader()
    assert taken(before, step) == wanted[:step]
    after = loader()
    after.load_state_dict(before.state_dict())

    assert epoch(after) == wanted[step:]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_40_an_iterable_without_one(stateful: Face, workers: int, step: int) -> None:
    def loader() -> Any:
        return stateful(stateful.counting(5), batch_size=2, num_workers=workers)

    wanted = epoch(loader())
    before = loader()
    assert taken(before, step) == wanted[:step]
    after = loader()
    after.load_state_dict(before.state_dict())

    assert epoch(after) == wanted[step:]


@pytest.mark.parametrize("step", range(7))
def test_40_an_iterable_that_begins_anew_at_its_end(our_face: Face, step: int) -> None:
    """Worker 0 ends within its only batch, which is short; torchdata's lets it begin again."""

    def loader() -> Any:
        dataset = our_face.counting(1, 5, 9, kind="Resetting")
        return our_face(dataset, batch_size=3, num_workers=3)

    wanted = epoch(loader())
    assert len(wanted) == 6
    before = loader()
    assert taken(before, step) == wanted[:step]
    after = loader()
    after.load_state_dict(before.state_dict())

    if step < 6:  # behind all of them it may be the end, or the next beginning
        assert epoch(after) == wanted[step:]


class Steady(torch.utils.data.Sampler):  # type: ignore[misc, name-defined]
    """A sampler that can be continued; its own state, not its generator's, says where."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield (self.at * 4) % SIZE
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", [0, 1, 4])
def test_40_a_sampler_with_a_state(stateful: Face, workers: int, step: int) -> None:
    def loader() -> Any:
        return stateful(Numbers(SIZE), batch_size=BATCH, sampler=Steady(), num_workers=workers)

    wanted = epoch(loader())
    before = loader()
    assert taken(before, step) == wanted[:step]
    after = loader()
    after.load_state_dict(before.state_dict())

    assert epoch(after) == wanted[step:]
