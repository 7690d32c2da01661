"""Conformance 16 to 18 and 22 to 25: the order of samples."""

from __future__ import annotations

import random
import time
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest
from tests.torch.datasets import Late, Logged, Numbers, noted
from tests.torch.faces import OURS, THEIRS, Face, epoch, numbers

from tundish.loader.dataloader.wanted import BatchStage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")

PAUSES = (0.004, 0.0, 0.009, 0.001, 0.0, 0.006, 0.002)
CONFIGURATIONS = 100


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_16_workers_do_not_change_the_order(face: Face, workers: int) -> None:
    loader = face(Numbers(40, PAUSES), batch_size=3, num_workers=workers)

    assert epoch(loader) == [list(range(40))[at : at + 3] for at in range(0, 40, 3)]


def test_17_as_they_come(face: Face, tmp_path: Path) -> None:
    late = Late(12, str(tmp_path), at=0, pause=0.5)
    loader = face(late, batch_size=2, num_workers=2, in_order=False)
    found = epoch(loader)

    assert sorted(found) == [[at, at + 1] for at in range(0, 12, 2)]
    assert found.index([0, 1]) >= 2, "it was overtaken"


def test_17_in_order_waits(face: Face, tmp_path: Path) -> None:
    late = Late(12, str(tmp_path), at=0, pause=0.3)

    assert numbers(face(late, batch_size=2, num_workers=2)) == list(range(12))


@pytest.mark.parametrize(("workers", "factor"), [(1, None), (2, 3)])
def test_18_no_more_is_fetched_than_asked_for(
    face: Face, workers: int, factor: int | None, tmp_path: Path
) -> None:
    loader = face(Logged(60, tmp_path), batch_size=2, num_workers=workers, prefetch_factor=factor)
    window = (factor or 2) * workers
    iterator = iter(loader)
    for taken in range(4):
        if taken:
            next(iterator)
        time.sleep(0.15)  # it comes to rest
        assert len(noted(tmp_path)) <= 2 * (window + taken)
    assert len(noted(tmp_path)) > 2 * taken, "something is fetched ahead"
    del iterator


def shuffled(
    loader_of: Face, seed: int, epochs: int, options: dict[str, Any], *, own: bool
) -> list[list[Any]]:
    """Some epochs of a shuffled loader, from the global generator or one of its own."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if own else None
    loader = loader_of(Numbers(23), shuffle=True, generator=generator, **options)
    return [epoch(loader) for _ in range(epochs)]


@pytest.mark.parametrize("own", [False, True], ids=["22_global", "23_own"])
@pytest.mark.parametrize("workers", [0, 2])
def test_22_and_23_the_order_is_torchs(workers: int, *, own: bool) -> None:
    options = {"batch_size": 4, "num_workers": workers}
    ours = shuffled(OURS, 5, 3, options, own=own)

    assert ours == shuffled(THEIRS, 5, 3, options, own=own)
    assert ours[0] != ours[1] != ours[2]
    assert ours != shuffled(OURS, 6, 3, options, own=own)


def test_22_the_order_stays_torchs_with_workers_that_stay() -> None:
    options = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}

    assert shuffled(OURS, 5, 3, options, own=False) == shuffled(THEIRS, 5, 3, options, own=False)


def test_22_numbers_drawn_elsewhere_are_torchs_too() -> None:
    def drawn(loader_of: Face) -> list[float]:
        torch.manual_seed(3)
        found = []
        for options in ({}, {"shuffle": True}, {"num_workers": 1}):
            iterator = iter(loader_of(Numbers(8), batch_size=2, **options))
            found.append(float(torch.rand(())))
            next(iterator)
            found.append(float(torch.rand(())))
            list(iterator)
            found.append(float(torch.rand(())))
        return found

    assert drawn(OURS) == drawn(THEIRS)


class Lazy(torch.utils.data.Sampler):  # type: ignore[misc, name-defined]
    """Draws each index only when it is asked for it."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(40):
            yield int(torch.randint(23, ()))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_22_a_sampler_is_asked_when_torch_asks_it(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(loader_of: Face) -> list[Any]:
        torch.manual_seed(3)
        found = []
        for batch in loader_of(Numbers(23), sampler=Lazy(), num_workers=workers):
            torch.rand(())  # as a training step draws
            found += batch.tolist()
        return found

    quick = cycle([False, True, True, False, True])  # as slow as the machine may be meanwhile
    monkeypatch.setattr(BatchStage, "quick", property(lambda _: next(quick)))

    assert drawn(OURS) == drawn(THEIRS)


@pytest.mark.parametrize("workers", [0, 2])
def test_23_the_order_on_numpy_is_torchs(workers: int) -> None:
    from tests.torch.faces import NUMPY

    def orders(face: Face) -> list[list[Any]]:
        generator = face.generator(11)
        loader = face(Numbers(23), 4, shuffle=True, generator=generator, num_workers=workers)
        return [epoch(loader) for _ in range(3)]

    assert orders(NUMPY) == orders(THEIRS)


@pytest.mark.parametrize("seed", range(5))
def test_22_the_order_is_torchs_however_it_is_configured(seed: int) -> None:
    """A fifth of the random configurations each."""
    draw = random.Random(seed)
    for _ in range(CONFIGURATIONS // 5):
        size = draw.choice([1, 2, 7, 30, 257])
        options = {
            "batch_size": draw.choice([None, 1, 3, 8]),
            "shuffle": draw.choice([True, True, False]),
        }
        if options["batch_size"] is not None:
            options["drop_last"] = draw.choice([True, False])
        workers, epochs = draw.choice([0, 0, 0, 0, 1, 2, 3]), draw.randint(1, 3)
        number, own = draw.randrange(2**63), draw.choice([True, False])

        def orders(face: Face) -> Any:
            torch.manual_seed(number)  # noqa: B023 (called at once)
            generator = torch.Generator().manual_seed(number) if own else None  # noqa: B023
            loader = face(Numbers(size), num_workers=workers, generator=generator, **options)  # noqa: B023
            return [epoch(loader) for _ in range(epochs)], float(torch.rand(()))  # noqa: B023

        assert orders(OURS) == orders(THEIRS), (size, options, workers, epochs, number, own)


@pytest.mark.parametrize("drop_last", [False, True])
def test_24_ranks_see_what_torch_shows_them(face: Face, *, drop_last: bool) -> None:
    from torch.utils.data import DistributedSampler as Theirs

    if face.torch:
        kind = Theirs
    else:
        from tundish.loader.dataloader.distributed import DistributedSampler as kind  # noqa: N813
    for size, ranks in ((1, 3), (10, 3), (12, 4), (103, 4)):
        for rank in range(ranks):
            for shuffle in (True, False):
                theirs = Theirs(
                    Numbers(size), ranks, rank, shuffle=shuffle, seed=5, drop_last=drop_last
                )
                sampler = kind(
                    Numbers(size), ranks, rank, shuffle=shuffle, seed=5, drop_last=drop_last
                )
                loader = face(Numbers(size), batch_size=None, sampler=sampler)
                assert len(loader) == len(theirs)
                for turn in (0, 3):
                    theirs.set_epoch(turn)
                    sampler.set_epoch(turn)
                    assert epoch(loader) == list(theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_25_torchs_samplers_are_taken_as_they_are(torch_face: Face, workers: int) -> None:
    from torch.utils import data

    def samplers() -> list[Any]:
        def generator() -> Any:
            return torch.Generator().manual_seed(2)

        return [
            data.WeightedRandomSampler([0.1, 0.9, 3.0], 20, generator=generator()),
            data.SubsetRandomSampler([5, 7, 9, 11], generator=generator()),
            data.RandomSampler(range(30), replacement=True, num_samples=50, generator=generator()),
            data.RandomSampler(range(30), num_samples=50, generator=generator()),
            *([torch.tensor([4, 2, 0])] if torch_face.ours or not workers else []),
        ]

    for sampler, same in zip(samplers(), samplers(), strict=True):
        loader = torch_face(Numbers(30), 4, sampler=sampler, num_workers=workers)
        assert numbers(loader) == [int(key) for key in same]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, drop_last=True)
    assert epoch(torch_face(Numbers(5), batch_sampler=batches)) == [[0, 1], [2, 3]]


class Endless:
    """Gives the order of another sampler again and again, as samplers that keep workers alive do."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("kind", ["random", "subset", "weighted"])
@pytest.mark.parametrize("workers", [0, 2])
def test_25_each_pass_of_an_endless_sampler_is_torchs(
    workers: int, kind: str, *, lists: bool
) -> None:
    from torch.utils import data

    def drawn(loader_of: Face) -> list[Any]:
        sampler: Any = data.RandomSampler(range(5))
        if kind == "subset":
            sampler = data.SubsetRandomSampler(range(5))
        if kind == "weighted":
            sampler = data.WeightedRandomSampler([0.1, 0.9, 3.0], 5)
        options = {"batch_size": 4, "sampler": Endless(sampler)}
        if lists:
            options = {"batch_sampler": Endless(data.BatchSampler(sampler, 4, drop_last=False))}
        torch.manual_seed(3)
        found = []
        for batch in islice(loader_of(Numbers(5), num_workers=workers, **options), 9):
            torch.rand(())
            found += batch.tolist()
        return found

    assert drawn(OURS) == drawn(THEIRS)
