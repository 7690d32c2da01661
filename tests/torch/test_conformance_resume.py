"""Conformance 40: a loader's state, as torchdata's StatefulDataLoader has it, and further."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from tests.torch.datasets import Numbers, Random
from tests.torch.faces import Face, epoch, numbers, plain, taken

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

SIZE, BATCH = 11, 2
STEPS = range(7)  # six batches an epoch; and behind the last


def made(face: Face, workers: int, seed: int = 1, **options: Any) -> Any:
    """A shuffled loader."""
    return face(
        options.pop("dataset", Numbers(SIZE)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        generator=face.generator(seed),
        **options,
    )


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_40_every_step(stateful: Face, workers: int, step: int) -> None:
    whole = made(stateful, workers)
    first, second = epoch(whole), epoch(whole)
    loader = made(stateful, workers)
    iterator = iter(loader)
    assert [plain(next(iterator)) for _ in range(min(step, 6))] == first[:step]
    state = loader.state_dict()
    again = made(stateful, workers, seed=2)
    again.load_state_dict(state)

    assert epoch(again) == first[step:]
    if stateful.ours or workers:  # torchdata's draws its base seed from the generator it restores
        assert epoch(again) == second
    assert [plain(batch) for batch in iterator] == first[step:], "the old one goes on"


@pytest.mark.parametrize("workers", [0, 2])
def test_40_before_the_first_and_behind_the_last(stateful: Face, workers: int) -> None:
    whole = made(stateful, workers)
    first, second = epoch(whole), epoch(whole)
    loader = made(stateful, workers)
    begin = loader.state_dict()
    assert epoch(loader) == first
    end = loader.state_dict()

    again = made(stateful, workers)
    again.load_state_dict(begin)
    assert epoch(again) == first
    other = made(stateful, workers, seed=2)
    other.load_state_dict(end)
    found = epoch(other)
    assert sum(map(len, found)) == SIZE, "the next epoch, not an empty one"
    if stateful.ours or workers:
        assert found == second


@pytest.mark.parametrize("workers", [0, 2])
def test_40_again_and_again(stateful: Face, workers: int) -> None:
    wanted = epoch(made(stateful, workers))
    found: list[Any] = []
    state: dict[str, Any] = {}
    for step in (2, 1, 0, 2):
        loader = made(stateful, workers)
        loader.load_state_dict(state)
        iterator = iter(loader)
        found.extend(plain(next(iterator)) for _ in range(step))
        state = loader.state_dict()
        loader.load_state_dict(state)  # into the one that it came from
        assert epoch(loader) == wanted[len(found) :]

    assert found == wanted[:5]


def test_40_nothing_to_load_is_nothing_done(stateful: Face) -> None:
    loader = made(stateful, 0)
    loader.load_state_dict({})

    assert epoch(loader) == epoch(made(stateful, 0))


def test_40_a_load_takes_effect_at_the_next_iteration(stateful: Face) -> None:
    loader = made(stateful, 0)
    iterator = iter(loader)
    first = [plain(next(iterator)) for _ in range(2)]
    state = loader.state_dict()
    loader.load_state_dict(state)
    rest = [plain(batch) for batch in iterator]

    assert epoch(loader) == rest
    assert sorted(chain(*first, *rest)) == list(range(SIZE))


@pytest.mark.parametrize(("before", "after"), [(0, 4), (2, 0), (2, 1), (3, 4), (3, 0), (0, 1)])
@pytest.mark.parametrize("step", [0, 1, 4, 6])
def test_40_another_number_of_workers(our_face: Face, before: int, after: int, step: int) -> None:
    """Torchdata's refuses; and it draws other random numbers."""

    def loader(workers: int, seed: int) -> Any:
        return made(our_face, workers, seed, dataset=Random(SIZE, torch=our_face.torch))

    whole = loader(0, 1)
    first, second = epoch(whole), epoch(whole)
    broken_off = loader(before, 1)
    assert taken(broken_off, step) == first[:step]
    again = loader(after, 2)
    again.load_state_dict(json.loads(json.dumps(broken_off.state_dict())))

    assert epoch(again) == first[step:]
    assert epoch(again) == second


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_40_over_epochs(our_face: Face, workers: int, *, persistent: bool) -> None:
    options = {"persistent_workers": persistent and bool(workers)}
    whole = made(our_face, workers, **options)
    epochs = [epoch(whole) for _ in range(4)]
    loader = made(our_face, workers, **options)
    assert [epoch(loader) for _ in range(2)] == epochs[:2]
    taken(loader, 3)
    again = made(our_face, workers, seed=9, **options)
    again.load_state_dict(loader.state_dict())

    assert epoch(again) == epochs[2][3:]
    assert epoch(again) == epochs[3]


def test_40_a_state_is_small(our_face: Face) -> None:
    loader = our_face(range(100_000), batch_size=10, shuffle=True, generator=our_face.generator(1))
    taken(loader, 50)

    assert len(json.dumps(loader.state_dict())) < 8192


def test_40_taking_it_has_no_effect(our_face: Face) -> None:
    wanted = epoch(made(our_face, 2))
    loader = made(our_face, 2)
    found = []
    for batch in loader:
        found.append(plain(batch))
        assert loader.state_dict() == loader.state_dict()

    assert found == wanted


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_40_another_number_of_ranks(our_face: Face, ranks: int, step: int) -> None:
    from tundish import DistributedSampler

    def loader(rank: int, count: int) -> Any:
        dataset = Numbers(36)
        sampler = DistributedSampler(dataset, count, rank, seed=3)
        generator = our_face.generator(1)  # all ranks begin with the same seed
        return our_face(dataset, batch_size=3, sampler=sampler, generator=generator)

    first = [loader(rank, ranks) for rank in range(ranks)]
    seen = [taken(each, step) for each in first]
    states = [json.dumps(each.state_dict()) for each in first]
    assert len(set(states)) == 1, "no rank is in it"
    rest = []
    for rank in range(3):
        again = loader(rank, 3)
        again.load_state_dict(json.loads(states[0]))
        rest.append(numbers(again))

    found = [number for batches in seen for batch in batches for number in batch]
    assert sorted(chain(found, *rest)) == list(range(36)), "each once"
    assert len({len(numbers) for numbers in rest}) == 1, "the same for each"
