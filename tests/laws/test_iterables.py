"""A loader makes of an iterable what Python's ``for`` does, whatever its shape and its place."""

from __future__ import annotations

import copy
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tundish import DataLoader, Dataset, RandomSampler, TorchGenerator
from tundish.prefetching import Prefetcher
from tundish.testing.iterables import SHAPES, Raised, Shape, Watched, batches, pulled

NUMBERS = [0, 1, 2, 3, 4]
LISTS = [[0, 1], [2, 3], [4]]
TUPLES = [(0, 1), (2, 3), (4,)]
ODD = [
    each for each in SHAPES if each.name in ("resetting", "bare", "anew", "stumbling", "refusing")
]
BATCHES = [shape for shape in SHAPES if shape.takes != "numbers"]


class Stream:
    """An iterable dataset that hands on what another iterable gives."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        return iter(self.source)


class Pairs:
    """Lists of two items of another iterable."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        pair: list[Any] = []
        for item in self.source:
            pair.append(item)
            if len(pair) == 2:
                yield pair
                pair = []
        if pair:
            yield pair


class Echo:
    """Every sample is its key."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, key: Any) -> Any:
        return key


def plain(outcome: Any) -> Any:
    """Arrays and tuples as lists."""
    if isinstance(outcome, (list, tuple)):
        return [plain(item) for item in outcome]
    return outcome.tolist() if isinstance(outcome, (np.ndarray, np.generic)) else outcome


def as_it_is(samples: Any) -> Any:
    return samples


def passes(iterable: Any, count: int = 2) -> list[Any]:
    """So many passes over one object."""
    return [plain(pulled(iterable)) for _ in range(count)]


def loader(dataset: Any = None, **options: Any) -> DataLoader:
    return DataLoader(Echo() if dataset is None else dataset, collate_fn=as_it_is, **options)


def batches_of(shape: Shape) -> Any:
    return shape.make(TUPLES if shape.takes == "hashable" else LISTS)


def each(shapes: Iterable[Shape]) -> Callable[..., Any]:
    return pytest.mark.parametrize("shape", list(shapes), ids=str)


@each(SHAPES)
@pytest.mark.parametrize("size", [2, None])
def test_as_a_dataset(shape: Shape, size: int | None) -> None:
    found = passes(loader(Stream(shape.make(NUMBERS)), batch_size=size))
    source = shape.make(NUMBERS)

    assert found == [plain(batches(pulled(source, 40), size)[:20]) for _ in range(2)]


@each(shape for shape in SHAPES if not hasattr(shape.make(NUMBERS), "__getitem__"))
def test_as_a_dataset_that_nothing_is_put_round(shape: Shape) -> None:
    found = passes(loader(shape.make(NUMBERS), batch_size=None))

    assert found == passes(shape.make(NUMBERS))


@each(SHAPES)
def test_as_a_sampler(shape: Shape) -> None:
    found = passes(loader(sampler=shape.make(NUMBERS), batch_size=2))

    assert found == passes(Pairs(shape.make(NUMBERS)))


@each(SHAPES)
def test_as_a_sampler_of_single_samples(shape: Shape) -> None:
    found = passes(loader(sampler=shape.make(NUMBERS), batch_size=None))

    assert found == passes(shape.make(NUMBERS))


@each(BATCHES)
def test_as_a_batch_sampler(shape: Shape) -> None:
    found = passes(loader(batch_sampler=batches_of(shape)))

    assert found == passes(batches_of(shape))


@each(SHAPES)
def test_as_a_batch(shape: Shape) -> None:
    if shape.name in ("endless", "cycle"):
        pytest.skip("a batch ends")
    found = passes(loader(batch_sampler=[shape.make(NUMBERS), [3]]), 1)
    single = pulled(shape.make(NUMBERS))
    broken = next((each for each in single if isinstance(each, Raised)), None)

    assert found == [[plain(single) if broken is None else broken, [3]]]


@each(SHAPES)
def test_in_the_place_of_a_sampler_within(shape: Shape) -> None:
    changed = loader(batch_size=2)
    batch_sampler: Any = changed.batch_sampler
    batch_sampler.sampler = shape.make(NUMBERS)

    assert passes(changed) == passes(Pairs(shape.make(NUMBERS)))


@each(ODD)
def test_as_a_batch_sampler_with_workers(shape: Shape) -> None:
    found = passes(loader(batch_sampler=batches_of(shape), num_workers=1))

    assert found == passes(batches_of(shape))


@each(ODD)
@pytest.mark.parametrize("persistent", [False, True])
def test_as_a_dataset_in_workers(shape: Shape, *, persistent: bool) -> None:
    workers = 2 - persistent
    source = shape.make(NUMBERS)
    made = loader(Stream(source), batch_size=2, num_workers=workers, persistent_workers=persistent)
    wanted = []
    for _ in range(2):
        replica = source if persistent else copy.deepcopy(source)
        one = batches(pulled(replica, 40), 2)
        wanted.append(plain([batch for batch in one for _ in range(workers)][:20]))

    assert passes(made) == wanted


def test_as_a_dataset_out_of_order() -> None:
    shape = next(shape for shape in SHAPES if shape.name == "resetting")
    made = loader(Stream(shape.make(NUMBERS)), num_workers=2, in_order=False)
    twice = [[item] for item in NUMBERS for _ in range(2)]

    assert sorted(map(str, passes(made, 1)[0])) == sorted(map(str, twice))


@each(SHAPES)
def test_as_a_generator_of_a_dataset(shape: Shape) -> None:
    source = shape.make(NUMBERS)
    found = passes(Dataset.from_generator(lambda: source))
    wanted = passes(shape.make(NUMBERS))
    # What a generator raises ends its pass.
    ends = [next((n for n, x in enumerate(one) if isinstance(x, Raised)), 20) for one in wanted]

    assert found == [one[: end + 1] for one, end in zip(wanted, ends, strict=True)]


@each(SHAPES)
def test_as_the_source_of_a_prefetcher(shape: Shape) -> None:
    found = (
        pulled(Prefetcher(shape.make(NUMBERS), 2))
        if shape.name not in ("refusing", "mistaken")
        else None
    )

    assert found is None or plain(found) == passes(shape.make(NUMBERS), 1)[0]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("place", ["sampler", "batch_sampler"])
def test_nothing_else_is_asked(place: str, workers: int) -> None:
    watched = Watched(NUMBERS if place == "sampler" else LISTS)
    made = loader(**{place: watched}, num_workers=workers)
    watched.asked.clear()
    for _ in range(2):
        pulled(made)

    pulls = 2 * (len(watched.items) + 1)
    assert watched.asked == {"iter": 2, "next": pulls}


def test_nothing_else_is_asked_of_a_dataset() -> None:
    watched = Watched(NUMBERS)
    made = loader(watched, batch_size=2)
    for _ in range(2):
        pulled(made)

    assert watched.asked == {"iter": 2, "next": 12}


def test_what_has_ended_is_not_asked_again() -> None:
    for size in (2, None):
        watched = Watched(NUMBERS)
        iterator = iter(loader(watched, batch_size=size))
        pulled(iterator)
        assert list(itertools.islice(iterator, 3)) == []
        assert watched.asked["next"] == 6


class Stopping:
    """``__iter__`` raises StopIteration."""

    def __iter__(self) -> Any:
        raise StopIteration


@pytest.mark.parametrize("place", ["dataset", "sampler", "batch_sampler"])
def test_no_stop_iteration_ends_a_pass_before_it_has_begun(place: str) -> None:
    given: dict[str, Any] = {place: Stopping()}
    made = loader(**given)

    assert pulled(made) == ["RuntimeError"]


class Bucketing:
    """Batches out of two buckets that it keeps, and makes anew as a pass ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.buckets: list[list[int]] = [[], []]
        self.passes = 0

    def __iter__(self) -> Any:
        self.passes += 1
        for key in self.sampler:
            bucket = self.buckets[key % 2]
            bucket.append(key)
            if len(bucket) == 2:
                yield list(bucket)
                bucket.clear()
        left = [key for bucket in self.buckets for key in bucket]
        self.buckets = [[], []]
        yield left


def test_what_a_sampler_of_ones_own_changes_in_itself_is_kept() -> None:
    sampler = Bucketing(RandomSampler(range(5)))
    made = loader(batch_sampler=sampler)
    first = pulled(made)
    state = made.state_dict()
    iterator = iter(made)
    begun = [next(iterator)]
    half = made.state_dict()
    rest = [*begun, *iterator]
    resumed = loader(batch_sampler=Bucketing(RandomSampler(range(5))))
    resumed.load_state_dict(half)

    assert sampler.passes == 2
    assert sampler.sampler.generator is None
    assert sorted(key for batch in first for key in batch) == [0, 1, 2, 3, 4]
    assert sorted(key for batch in rest for key in batch) == [0, 1, 2, 3, 4]
    assert state["ended"]
    assert [*begun, *resumed] == rest


def test_a_generator_of_another_kind_is_the_samplers_affair() -> None:
    class Own:
        generator = np.random.default_rng(1)

        def __iter__(self) -> Any:
            return iter(self.generator.permutation(5).tolist())

    assert sorted(pulled(loader(sampler=Own(), batch_size=None))) == NUMBERS


def test_what_getitems_gives_is_handed_to_the_collate_function() -> None:
    class Table(Echo):
        def __getitems__(self, keys: list[int]) -> Any:
            return {"keys": keys}

    assert pulled(loader(Table(), batch_size=3)) == [{"keys": [0, 1, 2]}, {"keys": [3, 4]}]


def test_the_arguments_of_a_generator_may_be_an_array() -> None:
    ds = Dataset.from_generator(range, args=np.array([2, 5]))  # type: ignore[arg-type]

    assert [int(x) for x in ds] == [2, 3, 4]


class Sized(Echo):
    """Counts how often it is asked for its length."""

    asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 5


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_length_is_asked_for_once_a_pass(*, shuffle: bool) -> None:
    dataset = Sized()
    made = loader(dataset, batch_size=2, shuffle=shuffle, generator=TorchGenerator(1))
    dataset.asked = 0

    assert sorted(key for batch in pulled(made) for key in batch) == NUMBERS
    assert dataset.asked == 1


# -- threads ---------------------------------------------------------------------------------------


def taken_by_threads(iterator: Any, count: int) -> tuple[list[Any], list[BaseException]]:
    """Return what several threads get of one iterator, together."""
    found: list[Any] = []
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def take() -> None:
        together.wait()
        try:
            while True:
                found.append(next(iterator))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found, errors


class Yielding(Prefetcher):
    """Gives other threads their turn at each step."""

    def _begin(self, element: Any) -> Any:
        return _slow(element)

    def _finish(self, begun: Any) -> Any:
        return _slow(begun)


def _slow(value: Any) -> Any:
    """Give other threads their turn in the middle of a batch."""
    time.sleep(0)
    return value


def _slowly() -> Any:
    return map(_slow, range(400))


class Slow:
    """Gives other threads their turn before each item; in an iterator that may be asked by several."""

    def __iter__(self) -> Any:
        return _slowly()


@pytest.mark.parametrize("kind", ["in process", "iterable", "workers", "dataset", "prefetcher"])
def test_each_batch_goes_to_one_thread(kind: str) -> None:
    options: dict[str, Any] = {"batch_size": 2, "collate_fn": as_it_is}
    if kind == "dataset":
        iterator: Any = iter(DataLoader(Dataset.from_generator(_slowly), **options))
    elif kind == "iterable":
        iterator = iter(DataLoader(Stream(Slow()), **options))
    elif kind == "prefetcher":
        iterator = Yielding(DataLoader(range(400), **options), 3)
    else:
        sampled = DataLoader(
            range(400), sampler=Slow(), num_workers=2 * (kind == "workers"), **options
        )
        iterator = iter(sampled)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found, errors = taken_by_threads(iterator, 3)
    finally:
        sys.setswitchinterval(interval)

    assert errors == []
    found = sorted([int(key) for key in batch] for batch in found)
    assert found == [[k, k + 1] for k in range(0, 400, 2)]
