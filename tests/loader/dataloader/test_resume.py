"""Resuming after the last batch: with other workers, other ranks, in another loader."""

from __future__ import annotations

import itertools
import json
import random
import threading
import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from tests.loader.dataloader.datasets import (
    Augmented,
    Numbers,
    OfOneFile,
    Remembering,
    Shuffling,
    Stateful,
    Stream,
)

import tundish as td
from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.dataloader.torchrandom import default_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.loader.dataloader.distributed import Uneven

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WORKERS = (0, 2, 3)
NEXT = (0, 1, 4)
COUNT = 23


def plain(workers: int, seed: int) -> td.DataLoader:
    return td.DataLoader(Augmented(COUNT), 4, num_workers=workers)


def shuffled(workers: int, seed: int) -> td.DataLoader:
    return td.DataLoader(Augmented(COUNT), 4, shuffle=True, num_workers=workers)


def generator(workers: int, seed: int) -> td.DataLoader:
    own = td.TorchGenerator(seed)
    return td.DataLoader(Augmented(COUNT), 4, shuffle=True, generator=own, num_workers=workers)


def subset(workers: int, seed: int) -> td.DataLoader:
    sampler = td.SubsetRandomSampler(list(range(0, COUNT, 2)))
    return td.DataLoader(Augmented(COUNT), 4, sampler=sampler, num_workers=workers)


def weighted(workers: int, seed: int) -> td.DataLoader:
    sampler = td.WeightedRandomSampler([1.0] * COUNT, 17)
    return td.DataLoader(Augmented(COUNT), 4, sampler=sampler, num_workers=workers)


def batch_lists(workers: int, seed: int) -> td.DataLoader:
    lists = [[1, 2], [3], [4, 5, 6], [7]]
    return td.DataLoader(Augmented(COUNT), batch_sampler=lists, num_workers=workers)


def single(workers: int, seed: int) -> td.DataLoader:
    return td.DataLoader(Augmented(COUNT), None, sampler=range(7), num_workers=workers)


class Table:
    """Gives several rows at once."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, rows: list[int]) -> dict[str, np.ndarray]:
        return {"rows": np.array(rows)}


def sliced(workers: int, seed: int) -> td.DataLoader:
    batches = td.BatchSampler(td.SequentialSampler(range(COUNT)), 4, drop_last=False)
    return td.DataLoader(Table(), None, sampler=batches, num_workers=workers)


def sliced_anew(workers: int, seed: int) -> td.DataLoader:
    batches = td.BatchSampler(td.RandomSampler(range(COUNT)), 4, drop_last=True)
    return td.DataLoader(Table(), None, sampler=batches, num_workers=workers)


def sliced_share(workers: int, seed: int) -> td.DataLoader:
    share = td.DistributedSampler(range(COUNT), 2, 1, seed=3)
    batches = td.BatchSampler(share, 3, drop_last=False)
    return td.DataLoader(Table(), None, sampler=batches, num_workers=workers)


def ranked(workers: int, seed: int) -> td.DataLoader:
    sampler = td.DistributedSampler(range(COUNT), 2, 1, seed=3)
    return td.DataLoader(Augmented(COUNT), 4, sampler=sampler, num_workers=workers)


LOADERS = [
    plain,
    shuffled,
    generator,
    subset,
    weighted,
    batch_lists,
    single,
    sliced,
    sliced_anew,
    sliced_share,
    ranked,
]


def shown(batch: Any) -> str:
    return json.dumps({key: np.asarray(value).tolist() for key, value in batch.items()})


def through_json(loader: td.DataLoader) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


@pytest.mark.parametrize("make", LOADERS)
def test_each_step_with_any_workers(make: Callable[[int, int], td.DataLoader]) -> None:
    """Two epochs; from every step of the second, the same rest with another number of workers."""
    reference: list[list[str]] | None = None
    others = itertools.cycle(NEXT)
    for workers in WORKERS:
        td.set_seed(7)
        loader = make(workers, 5)
        epochs: list[list[str]] = []
        states = []
        for _ in range(2):
            epochs.append([])
            for batch in loader:
                epochs[-1].append(shown(batch))
                states.append((len(epochs) - 1, len(epochs[-1]), through_json(loader)))
        reference = reference or epochs
        assert epochs == reference
        for epoch, done, state in states[:: 1 if workers == 0 else 3]:
            td.set_seed(1000)  # what a state does not bring along would show
            again = make(next(others), 77)
            again.load_state_dict(state)
            assert [shown(batch) for batch in again] == reference[epoch][done:]
    td.set_seed(None)


def test_the_epochs_after_it_are_the_same_too() -> None:
    """With a generator of one's own: it is in the state."""
    loader = generator(0, 5)
    epochs = [[shown(batch) for batch in loader] for _ in range(3)]
    loader = generator(0, 5)
    list(loader)
    for _ in zip(range(2), loader, strict=False):
        continue
    again = generator(2, 6)
    again.load_state_dict(through_json(loader))

    assert [[shown(batch) for batch in again] for _ in range(2)] == [epochs[1][2:], epochs[2]]


def test_several_times_in_one_epoch() -> None:
    loader = shuffled(0, 0)
    td.set_seed(3)
    whole = [shown(batch) for batch in loader]
    td.set_seed(3)
    pieces = []
    loader = shuffled(2, 0)
    for _ in whole:
        pieces.append(shown(next(iter(loader))))
        state = through_json(loader)
        loader = shuffled(len(pieces) % 3, 0)
        loader.load_state_dict(state)
    td.set_seed(None)

    assert pieces == whole


def test_at_the_end_the_next_epoch_begins() -> None:
    loader = td.DataLoader(Numbers(6), 2)
    assert len(list(loader)) == 3
    again = td.DataLoader(Numbers(6), 2, num_workers=1)
    again.load_state_dict(loader.state_dict())

    assert len(list(again)) == 3
    assert again.state_dict()["epoch"] == 1


def test_before_the_first_batch() -> None:
    loader = td.DataLoader(Numbers(6), 2)
    again = td.DataLoader(Numbers(6), 2)
    again.load_state_dict(loader.state_dict())
    again.load_state_dict({})

    assert len(list(again)) == 3
    assert again.state_dict()["epoch"] == 0


@pytest.mark.parametrize("done", [1, 3])
def test_a_start_that_fails_loses_no_position(done: int) -> None:
    """Within an epoch, and behind its end."""

    def loader(dataset: Numbers, workers: int) -> td.DataLoader:
        return td.DataLoader(dataset, 2, shuffle=True, num_workers=workers)

    td.set_seed(4)
    first = loader(Numbers(6), 0)
    batches = iter(first)
    for _ in range(done):
        next(batches)
    assert done < 3 or next(batches, None) is None
    state = through_json(first)
    rest = [batch.tolist() for batch in (batches if done < 3 else first)]

    dataset: Any = Numbers(6)
    dataset.lock = threading.Lock()
    again = loader(dataset, 1)
    again.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(TypeError, match="lock"):
            iter(again)
        assert through_json(again) == state
    del dataset.lock
    assert [batch.tolist() for batch in again] == rest
    td.set_seed(None)


def test_another_batch_size() -> None:
    loader = td.DataLoader(Numbers(12), 4)
    next(iter(loader))
    again = td.DataLoader(Numbers(12), 3)
    again.load_state_dict(loader.state_dict())

    assert [batch.tolist() for batch in again] == [[4, 5, 6], [7, 8, 9], [10, 11]]


@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("uneven", ["pad", "drop", "mask"])
def test_other_ranks_share_the_rest(before: int, uneven: Uneven) -> None:
    """Worlds of 1, 2 and 4 become 3: together they had and have everything, nothing twice."""
    count, size = 36, 3

    def loaders(world: int) -> list[td.DataLoader]:
        return [
            td.DataLoader(
                Numbers(count),
                size,
                sampler=td.DistributedSampler(range(count), world, rank, seed=9, uneven=uneven),
                num_workers=rank % 3,
            )
            for rank in range(world)
        ]

    steps = -(-count // before // size)
    for done in range(steps):
        had: list[int] = []
        state: dict[str, Any] = {}
        for loader in loaders(before):
            for _, batch in zip(range(done), loader, strict=False):
                had += (batch[0] if uneven == "mask" else batch).tolist()
            state = through_json(loader)
        rest: list[int] = []
        lengths = set()
        for loader in loaders(3):
            if done:
                loader.load_state_dict(state)
            batches = list(loader)
            lengths.add(len(batches))
            for batch in batches:
                values, valid = batch if uneven == "mask" else (batch, np.ones(len(batch), bool))
                rest += values[valid].tolist()
        assert len(lengths) == 1, "all ranks get as many batches"
        if uneven == "drop":
            assert len(set(had + rest)) == len(had + rest)
            assert len(had + rest) > count - 3
        elif uneven == "mask" or (count - len(had)) % 3 == 0:
            assert sorted(had + rest) == list(range(count))
        else:
            assert set(had + rest) == set(range(count))


def test_other_ranks_share_the_rest_of_lists() -> None:
    """A sampler of lists without batching: states count lists, and the order is of samples."""

    def loader(world: int, rank: int) -> td.DataLoader:
        share = td.DistributedSampler(range(36), world, rank, seed=9)
        return td.DataLoader(Table(), None, sampler=td.BatchSampler(share, 3, drop_last=False))

    had: list[int] = []
    state: dict[str, Any] = {}
    for each in (loader(2, rank) for rank in range(2)):
        for _, batch in zip(range(2), each, strict=False):
            had += batch["rows"].tolist()
        state = through_json(each)
    for each in (loader(3, rank) for rank in range(3)):
        each.load_state_dict(state)
        had += [row for batch in each for row in batch["rows"].tolist()]
    assert sorted(had) == list(range(36))


class Endless:
    """Gives the order of another sampler again and again, as samplers that keep workers alive do."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.begun = 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.begun += 1
            yield from iter(self.sampler)


def first(loader: td.DataLoader, steps: int) -> list[Any]:
    return [batch.tolist() for _, batch in zip(range(steps), loader, strict=False)]


@pytest.mark.parametrize("lists", [False, True])
def test_other_ranks_share_the_rest_of_the_first_of_several_passes(*, lists: bool) -> None:
    def loader(world: int, rank: int) -> td.DataLoader:
        sampler: Any = td.DistributedSampler(range(24), world, rank, seed=9)
        if lists:
            batches = Endless(td.BatchSampler(sampler, 2, drop_last=False))
            return td.DataLoader(range(24), batch_sampler=batches)
        return td.DataLoader(range(24), 2, sampler=Endless(sampler))

    had: list[Any] = []
    state: dict[str, Any] = {}
    for each in (loader(2, rank) for rank in range(2)):
        had += chain.from_iterable(first(each, 3))
        state = through_json(each)
    rest: list[Any] = []
    passes: list[Any] = []
    for rank in range(4):
        each = loader(4, rank)
        each.load_state_dict(state)
        taken = [*chain.from_iterable(first(each, 6))]
        rest += taken[:3]
        passes += taken[3:9]
    assert sorted(had + rest) == list(range(24)), "everything once"
    assert sorted(passes) == list(range(24)), "and then the whole again"


def test_a_later_pass_keeps_its_number_of_ranks() -> None:
    def loader(world: int, *, drop: bool = False) -> td.DataLoader:
        sampler = td.DistributedSampler(range(23), world, 0, drop_last=drop)
        return td.DataLoader(range(23), 1, sampler=Endless(sampler))

    for drop, pass_ in ((False, 6), (True, 5)):
        each = loader(4, drop=drop)
        whole = first(each, 3 * pass_)
        for steps, refused in ((pass_, False), (pass_ + 1, True)):
            each = loader(4, drop=drop)
            first(each, steps)
            same, other = loader(4, drop=drop), loader(2, drop=drop)
            same.load_state_dict(each.state_dict())
            assert first(same, pass_) == whole[steps : steps + pass_]
            other.load_state_dict(each.state_dict())
            if refused:
                with pytest.raises(IncompatibleCheckpointError, match="2 ranks here, 4 in the"):
                    iter(other)
            else:
                assert len(first(other, 1)) == 1


@pytest.mark.parametrize("kind", ["random", "subset", "weighted"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_later_pass_has_the_order_that_it_drew(kind: str, workers: int) -> None:
    def loader() -> td.DataLoader:
        sampler: Any = td.RandomSampler(range(5))
        if kind == "subset":
            sampler = td.SubsetRandomSampler(range(5))
        if kind == "weighted":
            sampler = td.WeightedRandomSampler([1.0] * 5, 5)
        return td.DataLoader(range(5), 4, sampler=Endless(sampler), num_workers=workers)

    td.set_seed(3)
    whole = first(loader(), 9)
    for steps in range(1, 9):
        td.set_seed(3)
        broken_off = loader()
        first(broken_off, steps)
        state, position = through_json(broken_off), default_generator().state_dict()
        td.set_seed(8)
        again = loader()
        again.load_state_dict(state)
        default_generator().load_state_dict(position)
        assert first(again, 9 - steps) == whole[steps:]
        assert getattr(again.sampler, "begun", 0) > 1, "it is asked itself, not a copy"
    td.set_seed(None)


def test_a_rest_of_a_rest() -> None:
    """4 ranks, then 3, then 2, then 3 again for the same state: still everything once."""
    count = 50

    def loader(world: int, rank: int) -> td.DataLoader:
        sampler = td.DistributedSampler(range(count), world, rank, seed=1, uneven="drop")
        return td.DataLoader(Numbers(count), 2, sampler=sampler)

    had: list[int] = []
    state: dict[str, Any] = {}
    states: dict[int, dict[str, Any]] = {}
    for world, steps in ((4, 2), (3, 2), (2, 3), (2, 1)):
        states.clear()
        for rank in range(world):
            td.set_seed(4)  # as ranks do who want one base seed
            each = loader(world, rank)
            each.load_state_dict(state)
            for _, batch in zip(range(steps), each, strict=False):
                had += batch.tolist()
            states[rank] = through_json(each)
        assert all(each == states[0] for each in states.values()), "no rank is in a state"
        state = states[0]
    for rank in range(3):
        each = loader(3, rank)
        each.load_state_dict(state)
        had += [int(i) for batch in each for i in batch]
    td.set_seed(None)

    assert sorted(had) == list(range(count))


@pytest.mark.parametrize("kind", [Stream, Stateful])
@pytest.mark.parametrize("workers", [0, 2, 3])
def test_iterables_at_each_step(kind: Any, workers: int) -> None:
    whole = [batch.tolist() for batch in td.DataLoader(kind(20), 3, num_workers=workers)]
    loader = td.DataLoader(kind(20), 3, num_workers=workers)
    for done, _ in enumerate(loader, 1):
        again = td.DataLoader(kind(20), 3, num_workers=workers)
        again.load_state_dict(through_json(loader))
        assert [batch.tolist() for batch in again] == whole[done:]


def test_a_replica_that_ends_early_leaves_nothing_in_the_state() -> None:
    whole = [int(sample) for sample in td.DataLoader(OfOneFile(40), None, num_workers=2)]
    loader = td.DataLoader(OfOneFile(40), None, num_workers=2)
    for done, _ in enumerate(loader, 1):
        state = through_json(loader)
        assert (state["batches"], state["ahead"]) == (done, [])
        if done % 13 == 0:
            again = td.DataLoader(OfOneFile(40), None, num_workers=2)
            again.load_state_dict(state)
            assert [int(sample) for sample in again] == whole[done:]


@pytest.mark.parametrize("now", [0, 3])
def test_replicas_cannot_change_their_number(now: int) -> None:
    loader = td.DataLoader(Stream(20), 3, num_workers=2)
    next(iter(loader))
    again = td.DataLoader(Stream(20), 3, num_workers=now)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(IncompatibleCheckpointError, match=r"state, 2"):
        iter(again)


@pytest.mark.parametrize("workers", [0, 2])
def test_iterables_that_draw_from_global_generators(workers: int) -> None:
    """An element is read again with the same numbers, whichever batch it is read again for."""

    def loader(seed: int) -> td.DataLoader:
        own = td.TorchGenerator(seed)
        return td.DataLoader(Shuffling(30), 4, num_workers=workers, generator=own)

    first = loader(3)
    whole = [[batch.tolist() for batch in first] for _ in range(2)]
    assert sorted(i for batch in whole[0] for i in batch) == list(range(30)), "each its own share"
    first = loader(3)
    for done, _ in enumerate(first, 1):
        again = loader(4)
        again.load_state_dict(through_json(first))
        assert [batch.tolist() for batch in again] == whole[0][done:]
        assert [batch.tolist() for batch in again] == whole[1], "and the epoch after it"


class Drawing:
    """A sampler whose order comes from a generator of the whole process, or from a seed."""

    def __init__(self, draw: Callable[[int], list[int]]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(8))


class Buckets(Drawing):
    """A batch sampler that draws, around a sampler that does not."""

    def __init__(self, draw: Callable[[int], list[int]]) -> None:
        super().__init__(draw)
        self.sampler = td.SequentialSampler(range(16))

    def __iter__(self) -> Iterator[list[int]]:  # type: ignore[override]
        keys = list(self.sampler)
        return iter([keys[2 * at : 2 * at + 2] for at in self.draw(8)])


def shuffled_by_python(count: int) -> list[int]:
    order = list(range(count))
    random.shuffle(order)
    return order


def shuffled_by_numpy(count: int) -> list[int]:
    return list(np.random.permutation(count))  # noqa: NPY002 - as users do


def shuffled_by_a_seed(count: int) -> list[int]:
    return list(np.random.default_rng(3).permutation(count))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("draw", [shuffled_by_python, shuffled_by_numpy])
@pytest.mark.parametrize("kind", [Drawing, Buckets])
def test_a_sampler_that_draws_from_the_whole_process_is_told_of(
    kind: Any, draw: Any, workers: int
) -> None:
    given = {"batch_sampler" if kind is Buckets else "sampler": kind(draw)}
    loader: Any = td.DataLoader(Numbers(16), num_workers=workers, **given)
    iterator = iter(loader)
    next(iterator)
    with pytest.warns(UserWarning, match=rf"the order of {kind.__name__}: shuffled_by_\w+ calls"):
        loader.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.state_dict()
        iterator.close()


class Hiding:
    """A sampler that makes one of ours, or holds it by a name of its own."""

    def __init__(self, *, early: bool) -> None:
        self.early, self.inner = early, td.RandomSampler(range(16))

    def __iter__(self) -> Iterator[int]:
        return iter([*self.inner]) if self.early else iter(td.RandomSampler(range(16)))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_a_sampler_that_hides_another_is_told_of(
    workers: int, *, early: bool, batched: bool
) -> None:
    size = 2 if batched else None
    loader = td.DataLoader(Numbers(16), size, sampler=Hiding(early=early), num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.warns(UserWarning, match="the order of Hiding: it draws from torch's generator"):
        loader.state_dict()
    iterator.close()


def test_a_sampler_with_a_seed_is_not_told_of() -> None:
    loader: Any = td.DataLoader(Numbers(16), sampler=Drawing(shuffled_by_a_seed))
    next(iter(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.state_dict()


class Holding:
    """A sampler that goes on drawing from a generator of its own, epoch by epoch."""

    def __init__(self, generator: Any, draw: Callable[[Any], Any]) -> None:
        self.source, self.draw = generator, draw

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw(self.source))


def sfc64(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def philox(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def permuted(source: Any) -> list[int]:
    order: list[int] = source.permutation(9).tolist()
    return order


def assert_every_state_continues(
    first: td.DataLoader, another: Callable[[], td.DataLoader]
) -> None:
    """Another loader gives the rest of three different epochs, and the next one, from each state of the first."""
    epochs: list[list[list[int]]] = []
    states: list[tuple[int, int, dict[str, Any]]] = []
    for epoch in range(3):
        epochs.append([])
        for batch in first:
            epochs[-1].append(batch.tolist())
            states.append((epoch, len(epochs[-1]), through_json(first)))
        states.append((epoch + 1, 0, through_json(first)))
    assert epochs[0] != epochs[1] != epochs[2]
    epochs.append([batch.tolist() for batch in first])
    for epoch, done, state in states:
        again = another()
        again.load_state_dict(state)
        assert [batch.tolist() for batch in again] == epochs[epoch][done:]
        if epoch < 3:
            assert [batch.tolist() for batch in again] == epochs[epoch + 1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (random.Random, lambda source: source.sample(range(9), 9)),
        (np.random.RandomState, permuted),
        (np.random.default_rng, permuted),
        (sfc64, permuted),
        (philox, permuted),
        (td.TorchGenerator, lambda source: source.randperm(9).tolist()),
    ],
)
def test_a_sampler_with_a_generator_of_its_own(make: Any, draw: Any, workers: int) -> None:
    def loader(seed: int, workers: int) -> td.DataLoader:
        sampler = Holding(make(seed), draw)
        return td.DataLoader(Numbers(9), 4, sampler=sampler, num_workers=workers)

    assert_every_state_continues(loader(3, workers), lambda: loader(4, 0))


class Anew:
    """A sampler that makes its generator as it begins, as torch's `DistributedSampler` does, and keeps it."""

    epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.source = np.random.default_rng((7, self.epoch))
        return iter(permuted(self.source))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_a_sampler_that_makes_its_generator_as_it_begins() -> None:
    sampler = Anew()
    first = td.DataLoader(Numbers(9), 4, sampler=sampler)
    list(first)
    sampler.set_epoch(1)
    it = iter(first)
    next(it)
    state, rest = through_json(first), [batch.tolist() for batch in it]

    again = td.DataLoader(Numbers(9), 4, sampler=Anew())
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == rest


class Late:
    """A sampler that makes its generator as it is first asked, and draws from it further in each epoch."""

    def __init__(self, make: Callable[[], Any], draw: Callable[[Any], Any], name: str) -> None:
        self.make, self.draw, self.name = make, draw, name
        if name == "generator":
            self.generator = None

    def __iter__(self) -> Iterator[int]:
        if getattr(self, self.name, None) is None:
            setattr(self, self.name, self.make())
        return iter(self.draw(getattr(self, self.name)))


@pytest.mark.parametrize("name", ["generator", "source"])
@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (random.Random, lambda source: source.sample(range(9), 9)),
        (np.random.RandomState, permuted),
        (np.random.default_rng, permuted),
        (philox, permuted),
        (td.TorchGenerator, lambda source: source.randperm(9).tolist()),
    ],
)
def test_a_sampler_that_makes_its_generator_once(make: Any, draw: Any, name: str) -> None:
    def loader() -> td.DataLoader:
        return td.DataLoader(Numbers(9), 4, sampler=Late(lambda: make(3), draw, name))

    assert_every_state_continues(loader(), loader)


def test_a_generator_of_another_kind_is_refused() -> None:
    first = td.DataLoader(Numbers(9), 4, sampler=Holding(random.Random(1), lambda source: source.sample(range(9), 9)))  # fmt: skip
    list(first)

    again = td.DataLoader(Numbers(9), 4, sampler=Holding(np.random.default_rng(1), permuted))
    again.load_state_dict(through_json(first))
    with pytest.raises(IncompatibleCheckpointError, match="another generator of the sampler"):
        list(again)


def test_a_sampler_with_a_state() -> None:
    def loader(workers: int) -> tuple[td.DataLoader, Remembering]:
        sampler = Remembering(20)
        return td.DataLoader(Numbers(20), 3, sampler=sampler, num_workers=workers), sampler

    first, _ = loader(2)
    for _ in zip(range(2), first, strict=False):
        continue
    again, sampler = loader(0)
    again.load_state_dict(through_json(first))
    rest = [int(i) for batch in again for i in batch]

    assert rest == list(range(6, 20))
    assert sampler.begun_at == 6, "by its state, not by asking it again"


def test_a_dataset_of_ours() -> None:
    dataset = td.Dataset.range(20).shuffle(None, seed=1).map(np.sqrt)
    whole = [batch.tolist() for batch in td.DataLoader(dataset, 3)]
    loader = td.DataLoader(dataset, 3, num_workers=2)
    for done, _ in enumerate(loader, 1):
        again = td.DataLoader(dataset, 3)
        again.load_state_dict(through_json(loader))
        assert [batch.tolist() for batch in again] == whole[done:]


def test_leaving_a_loop_over_a_dataset_of_ours_ends_its_workers() -> None:
    dataset = td.Dataset.range(1000).map(np.sqrt)
    loader = td.DataLoader(dataset, 3, num_workers=2)
    batches = iter(loader)
    next(batches)
    workers = [psutil.Process(pid) for pid in batches.worker_pids()]
    del batches
    _, alive = psutil.wait_procs(workers, 2.0)
    assert (len(workers), alive) == (2, [])

    again = td.DataLoader(dataset, 3)
    again.load_state_dict(through_json(loader))
    assert next(iter(again)).tolist() == np.sqrt([3, 4, 5]).tolist()


def test_batches_that_overtook_are_not_given_again() -> None:
    loader = td.DataLoader(Numbers(40), 2, num_workers=2, in_order=False)
    iterator = iter(loader)
    had = [int(i) for _ in range(5) for i in next(iterator)]
    again = td.DataLoader(Numbers(40), 2, num_workers=3, in_order=False)
    again.load_state_dict(through_json(loader))

    assert sorted(had + [int(i) for batch in again for i in batch]) == list(range(40))


def test_what_is_none_of_ours() -> None:
    loader = td.DataLoader(Numbers(4))
    with pytest.raises(CheckpointError, match="not a state of a"):
        loader.load_state_dict({"_num_yielded": 3})


def test_another_seed_of_the_sampler() -> None:
    def loader(seed: int) -> td.DataLoader:
        return td.DataLoader(
            Numbers(8), 2, sampler=td.DistributedSampler(range(8), 2, 0, seed=seed)
        )

    first, again = loader(1), loader(2)
    next(iter(first))
    again.load_state_dict(first.state_dict())
    with pytest.raises(IncompatibleCheckpointError, match=r"'seed': 2.*'seed': 1"):
        iter(again)


def test_a_dataset_of_another_length() -> None:
    loader = td.DataLoader(Numbers(8), 2)
    next(iter(loader))
    again = td.DataLoader(Numbers(9), 2)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(IncompatibleCheckpointError, match="'samples': 9"):
        iter(again)


def test_another_sampler() -> None:
    loader = td.DataLoader(Numbers(8), 2, shuffle=True)
    next(iter(loader))
    again = td.DataLoader(Numbers(8), 2)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(IncompatibleCheckpointError, match="sampler"):
        iter(again)
