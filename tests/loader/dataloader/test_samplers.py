"""The samplers without torch: orders recorded from torch 2.13, and our own additions.

`tests/torch/test_order_parity.py` compares with torch itself.
"""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError
from tundish.loader.dataloader.distributed import DistributedSampler, Uneven
from tundish.loader.dataloader.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

WEIGHTS = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]

# After torch.manual_seed(3): two epochs of a sampler without a generator of its own.
RECORDED: list[tuple[Sampler[int], list[list[int]]]] = [
    (RandomSampler(range(6)), [[1, 4, 5, 2, 0, 3], [2, 4, 0, 1, 3, 5]]),
    (
        RandomSampler(range(6), False, 15),
        [
            [1, 4, 5, 2, 0, 3, 2, 3, 4, 0, 5, 1, 4, 2, 1],
            [2, 4, 0, 1, 3, 5, 4, 0, 1, 5, 3, 2, 0, 5, 4],
        ],
    ),
    (
        RandomSampler(range(6), True, 35),
        [
            [int(x) for x in "10352240134003324524345353144515133"],
            [int(x) for x in "21414424230324330530015525015230302"],
        ],
    ),
    (SubsetRandomSampler([5, 3, 9, 7]), [[9, 7, 3, 5], [7, 9, 3, 5]]),
    (WeightedRandomSampler(WEIGHTS, 8), [[1, 3, 4, 1, 4, 4, 2, 4], [4, 4, 2, 4, 4, 3, 5, 1]]),
    (WeightedRandomSampler(WEIGHTS, 5, False), [[3, 0, 1, 4, 5], [4, 1, 2, 5, 3]]),
]
NAMES = [f"{type(sampler).__name__}-{len(epochs[0])}" for sampler, epochs in RECORDED]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    td.set_seed(3)
    yield
    td.set_seed(None)


@pytest.mark.parametrize(("sampler", "epochs"), RECORDED, ids=NAMES)
def test_recorded_orders(sampler: Any, epochs: list[list[int]]) -> None:
    given = [list(sampler) for _ in epochs]

    assert given == epochs
    assert len(sampler) == len(epochs[0])
    assert {type(index) for index in given[0]} == {int}


@pytest.mark.parametrize(("sampler", "epochs"), RECORDED, ids=NAMES)
def test_the_default_generator_is_drawn_from_at_the_first_next(
    sampler: Sampler[int], epochs: list[list[int]]
) -> None:
    before = default_generator().state_dict()
    iterator = iter(sampler)

    assert default_generator().state_dict() == before
    assert next(iterator) == epochs[0][0]
    assert default_generator().state_dict() != before


def test_a_random_sampler_takes_one_number_of_the_default_an_epoch() -> None:
    other = TorchGenerator(3)
    sampler = RandomSampler(range(100), num_samples=250)
    for _ in range(3):
        list(sampler)
        other.int64()

    assert default_generator().state_dict() == other.state_dict()


def test_a_random_sampler_ends_with_a_permutation_it_may_not_need() -> None:
    own, other = TorchGenerator(1), TorchGenerator(1)
    order = list(RandomSampler(range(9), num_samples=18, generator=own))
    expected = [*other.randperm(9).tolist(), *other.randperm(9).tolist()]
    other.randperm(9)

    assert order == expected
    assert own.state_dict() == other.state_dict()


def test_a_random_sampler_sees_data_grow() -> None:
    data = [0]
    sampler = RandomSampler(data)
    data += [0] * 9

    assert len(sampler) == sampler.num_samples == 10
    assert sorted(sampler) == list(range(10))
    assert len(RandomSampler(data, num_samples=4)) == 4


def test_a_long_order_is_kept_as_an_array() -> None:
    """A list of a million Python ints would be 40 MB."""
    sampler = RandomSampler(range(10**6))
    shared = DistributedSampler(range(10**6), 2, 0)
    tracemalloc.start()
    for each in (sampler, shared):
        iterator = iter(each)
        for _ in itertools.islice(iterator, 10_000):
            pass
        del iterator
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 30e6


def test_sequential() -> None:
    data = [1, 2, 3]
    sampler = SequentialSampler(data)
    data.append(4)

    assert list(sampler) == [0, 1, 2, 3]
    assert len(sampler) == 4
    assert sampler.data_source is data


def test_the_base() -> None:
    with pytest.raises(NotImplementedError):
        iter(Sampler())
    with pytest.raises(TypeError):
        len(Sampler())  # type: ignore[arg-type] # that is the point
    assert Sampler[int] is not None


def test_a_subset_gives_its_items_as_they_are() -> None:
    items = ["a", ("b", 1), 3.5]
    sampler: SubsetRandomSampler = SubsetRandomSampler(items)  # type: ignore[arg-type] # any keys

    assert sorted(map(str, sampler)) == sorted(map(str, items))
    assert sampler.indices is items


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches(n: int, drop_last: bool) -> None:
    sampler = BatchSampler(range(n), 4, drop_last)
    whole = [list(range(at, min(at + 4, n))) for at in range(0, n, 4)]
    expected = [batch for batch in whole if len(batch) == 4 or not drop_last]

    assert list(sampler) == expected
    assert len(sampler) == len(expected)


def test_a_batch_is_drawn_when_it_is_asked_for() -> None:
    drawn: list[int] = []

    def keys() -> Iterator[int]:
        for key in range(5):
            drawn.append(key)
            yield key

    batches = iter(BatchSampler(keys(), 2, False))
    assert not drawn
    assert next(batches) == [0, 1]
    assert drawn == [0, 1]
    with pytest.raises(TypeError):
        len(BatchSampler(keys(), 2, False))


def test_arguments_are_checked_and_named() -> None:
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "num_samples=0", lambda: RandomSampler([])),
        (ValueError, "num_samples=2.0", lambda: RandomSampler([1], num_samples=2.0)),  # type: ignore[arg-type]
        (TypeError, "replacement=1", lambda: RandomSampler([1], 1)),  # type: ignore[arg-type]
        (ValueError, "num_samples=True", lambda: WeightedRandomSampler([1.0], True)),
        (ValueError, r"\(1, 1\)", lambda: WeightedRandomSampler([[1.0]], 1)),  # type: ignore[list-item]
        (ValueError, "replacement", lambda: WeightedRandomSampler([1.0], 1, 1)),  # type: ignore[arg-type]
        (ValueError, "batch_size=0", lambda: BatchSampler([1], 0, False)),
        (ValueError, "drop_last", lambda: BatchSampler([1], 1, 0)),  # type: ignore[arg-type]
        (ValueError, "Invalid rank 3", lambda: DistributedSampler([1], 3, 3)),
        (ValueError, "Invalid rank -1", lambda: DistributedSampler([1], 3, -1)),
        (ValueError, "uneven", lambda: DistributedSampler([1], 1, 0, uneven="fill")),  # type: ignore[arg-type]
        (
            ValueError,
            "drop_last",
            lambda: DistributedSampler([1], 1, 0, drop_last=True, uneven="mask"),
        ),
        (ValueError, "below 0", lambda: DistributedSampler([1], 1, 0).share(-1)),
        (TypeError, "generator", lambda: list(RandomSampler([1], generator=5))),
    ]
    for kind, words, make in wrong:
        with pytest.raises(kind, match=words):
            make()


# -- DistributedSampler ----------------------------------------------------------------------------


def shares(n: int, world: int, **arguments: Any) -> list[list[int]]:
    return [list(DistributedSampler(range(n), world, rank, **arguments)) for rank in range(world)]


def test_recorded_shares() -> None:
    assert shares(7, 3, seed=5) == [[1, 2, 3], [0, 6, 1], [4, 5, 0]]
    assert shares(7, 3, seed=5, drop_last=True) == [[1, 2], [0, 6], [4, 5]]
    assert shares(2, 5, seed=4) == [[0], [1], [0], [1], [0]]
    assert shares(2, 5, seed=4, drop_last=True) == [[]] * 5


def test_the_epoch_is_added_to_the_seed() -> None:
    sampler = DistributedSampler(range(50), 2, 1, seed=4)
    first = list(sampler)
    sampler.set_epoch(3)

    assert sampler.epoch == 3
    assert list(sampler) == list(DistributedSampler(range(50), 2, 1, seed=7)) != first
    assert sampler.order(0)[1::2].tolist() == first
    assert sampler.order().tolist() == TorchGenerator(7).randperm(50).tolist()


def test_the_order_is_of_the_epoch_at_iter() -> None:
    sampler = DistributedSampler(range(50), 2, 1)
    expected = list(sampler)
    iterator = iter(sampler)
    sampler.set_epoch(3)

    assert list(iterator) == expected


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_mask_counts_every_sample_once(shuffle: bool) -> None:
    for n, world in itertools.product((0, 1, 2, 5, 12), (1, 2, 3, 7)):
        real: list[int] = []
        for rank in range(world):
            sampler = DistributedSampler(range(n), world, rank, shuffle, uneven="mask")
            indices, valid = np.array(list(sampler), np.int64), sampler.valid()
            real += indices[valid].tolist()

            assert len(valid) == len(indices) == len(sampler) == -(-n // world)
            assert valid.dtype == np.bool_
        assert sorted(real) == list(range(n))


def test_uneven() -> None:
    """Two of its words are torch's rules; "error" lets even counts pass."""
    assert shares(7, 2, uneven="pad") == shares(7, 2, uneven="mask") == shares(7, 2)
    assert shares(7, 2, uneven="drop") == shares(7, 2, drop_last=True)
    assert shares(8, 2, uneven="error") == shares(8, 2)
    with pytest.raises(SpecError, match="7 samples cannot be divided evenly among 2"):
        shares(7, 2, uneven="error")
    assert DistributedSampler(range(7), 2, 0).uneven == "pad"
    assert DistributedSampler(range(7), 2, 0, drop_last=True).uneven == "drop"
    assert DistributedSampler(range(7), 2, 0, uneven="drop").drop_last


WORLDS = [(1, 3), (2, 3), (4, 3), (3, 1), (3, 5), (4, 4)]


@pytest.mark.parametrize("uneven", ["pad", "mask", "drop"])
@pytest.mark.parametrize(("before", "after"), WORLDS)
def test_another_world_goes_on(before: int, after: int, uneven: Uneven) -> None:
    """The samples that some processes had and others then have are the epoch, each sample once."""
    for n, steps in itertools.product((1, 11, 24), range(12)):
        start = before * steps
        had = [
            index
            for rank in range(before)
            for index in list(DistributedSampler(range(n), before, rank, seed=6))[:steps]
        ]
        rest: list[int] = []
        lengths = set()
        for rank in range(after):
            sampler = DistributedSampler(range(n), after, rank, seed=6, uneven=uneven)
            indices, valid = sampler.share(start)
            rest += indices[valid].tolist()
            lengths.add(len(indices))
            assert uneven != "drop" or valid.all()

            if start >= n:
                assert not len(indices)
        order = DistributedSampler(range(n), 1, 0, seed=6).order().tolist()
        left = max(0, n - start)

        assert len(lengths) == 1
        assert len(set(rest)) == len(rest) == (left - left % after if uneven == "drop" else left)
        assert set(rest) <= set(order[start:])
        if start <= n:
            assert sorted(had) == sorted(order[:start])


def test_the_same_world_goes_on_as_if_nothing_had_been() -> None:
    """The padding too is the one of the whole epoch."""
    for n, world in itertools.product((2, 11, 24), (1, 3, 4)):
        for rank in range(world):
            sampler = DistributedSampler(range(n), world, rank)
            whole = list(sampler)
            for step in range(len(whole) + 1):
                indices, valid = sampler.share(world * step)
                assert indices.tolist() == whole[step:]
                assert valid.tolist() == sampler.valid().tolist()[step:]


def test_a_rest_that_cannot_be_dealt_evenly_is_an_error_too() -> None:
    sampler = DistributedSampler(range(12), 3, 0, uneven="error")

    assert len(sampler.share(6)[0]) == 2
    assert [len(part) for part in sampler.share(13)] == [0, 0]
    with pytest.raises(SpecError, match="8 samples"):
        sampler.share(4)


@pytest.mark.parametrize(
    ("uneven", "size"),
    [("pad", 9), ("pad", 0), ("mask", 9), ("drop", 7), ("error", 9), ("error", 7)],
)
def test_data_that_changes_its_length_is_noticed(uneven: Uneven, size: int) -> None:
    data = [0] * 8
    sampler = DistributedSampler(data, 4, 1, uneven=uneven)
    data[:] = [0] * size
    with pytest.raises(AssertionError, match=f"{size} samples now"):
        iter(sampler)


@pytest.fixture
def unlaunched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that no launcher of distributed runs has started."""
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    for variable in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def test_rank_and_world_of_the_environment(unlaunched: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"num_replicas is not given.*no WORLD_SIZE"):
        DistributedSampler(range(9))
    with pytest.raises(ValueError, match=r"rank is not given.*no RANK"):
        DistributedSampler(range(9), 3)
    unlaunched.setenv("WORLD_SIZE", "3")
    unlaunched.setenv("RANK", "two")
    with pytest.raises(ValueError, match="RANK in the environment is not an integer: 'two'"):
        DistributedSampler(range(9))
    unlaunched.setenv("RANK", "2")
    found = DistributedSampler(range(9))
    given = DistributedSampler(range(9), 5, 0)

    assert (found.num_replicas, found.rank) == (3, 2)
    assert (given.num_replicas, given.rank) == (5, 0)


@pytest.mark.parametrize("initialized", [False, True])
def test_rank_and_world_of_torch_distributed(
    unlaunched: pytest.MonkeyPatch, initialized: bool
) -> None:
    """torch.distributed comes first where it is initialised; where it is not, it is not asked."""
    distributed: Any = ModuleType("torch.distributed")
    distributed.is_available = lambda: True
    distributed.is_initialized = lambda: initialized
    distributed.get_world_size = lambda: 4
    distributed.get_rank = lambda: 1
    unlaunched.setitem(sys.modules, "torch.distributed", distributed)
    unlaunched.setenv("WORLD_SIZE", "3")
    unlaunched.setenv("RANK", "2")
    found = DistributedSampler(range(9))

    assert (found.num_replicas, found.rank) == ((4, 1) if initialized else (3, 2))
