"""The elements that `cache` keeps, and those it does not."""

from __future__ import annotations

import dataclasses
import gc
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import Dataset, Options
from tundish.errors import SnapshotCorruptError, StalledError, WorkerDiedError, WorkerTraceback
from tundish.loader.operators.cache import _STORES, CacheStore
from tundish.loader.operators.holding import item_nbytes
from tundish.loader.protocols.items import Made


class Held:
    """Something that a training holds while it asks for elements."""


def refuse(x: Any) -> Any:
    if x == 2:
        raise KeyError("two", int(x))
    return x


def trained(it: Any) -> tuple[weakref.ref[Held], list[KeyError]]:
    """Take a pass in a frame that holds something."""
    held = Held()
    errors: list[KeyError] = []
    while True:
        try:
            next(it)
        except StopIteration:
            return weakref.ref(held), errors
        except KeyError as error:
            errors.append(error)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_kept_error_does_not_hold_the_frames_it_has_passed(workers: int) -> None:
    ds = Dataset.range(4).map(refuse).cache()
    for _ in range(3):
        with ds.iterator(workers=workers) as it:
            held, errors = trained(it)
        (error,) = errors
        assert error.args == ("two", 2)
        assert any("map#1, element 2" in note for note in error.__notes__)
        del error, errors
        gc.collect()
        assert held() is None


@pytest.mark.parametrize("read", [False, True])
def test_an_error_in_a_kept_window_does_not_hold_the_cache_itself(read: bool) -> None:
    ds = Dataset.range(4).map(refuse).window(2).cache()
    with ds.iterator(workers=0) as it:
        found = [trained(window.iterator(workers=0))[1] if read else [] for window in it]
    assert [error.args for errors in found for error in errors] == [("two", 2)] * read
    node = weakref.ref(ds._node)
    assert ds._node in _STORES
    del ds, it, found
    gc.collect()
    assert node() is None


def test_a_kept_error_tells_where_it_was_raised() -> None:
    ds = Dataset.range(4).map(refuse).cache()
    for _ in range(2):
        with ds.iterator(workers=0) as it:
            trained(it)
    with ds.iterator(workers=0) as it:
        _, (error,) = trained(it)
    assert isinstance(error.__cause__, WorkerTraceback)
    assert "in refuse" in str(error.__cause__)
    assert str(error.__cause__).count("in trained") == 0  # whoever asked for it


class OddError(Exception):
    """An error that cannot be copied by way of a pickle."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)
        self.held = lambda: second


def odd(x: Any) -> Any:
    raise OddError(1, 2)


def test_an_error_that_cannot_be_copied_is_raised_all_the_same() -> None:
    ds = Dataset.range(1).map(odd).cache()
    for _ in range(2):
        with ds.iterator(workers=0) as it, pytest.raises(OddError):
            next(it)


class Counted:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x


class Numbers:
    """A generator function that counts what it yields."""

    def __init__(self, counted: Counted) -> None:
        self.counted = counted

    def __call__(self) -> Any:
        for x in range(5):
            yield self.counted(x)


def close_after_one(ds: Dataset) -> None:
    it = iter(ds)
    next(it)
    it.close()


def abandon(ds: Dataset) -> Any:
    it = iter(ds)
    next(it)
    return it  # neither closed nor read any further


def two_at_once(ds: Dataset) -> Any:
    first, second = iter(ds), iter(ds)
    next(first)
    next(second)
    next(second)
    return first, second


def restore_in_the_middle(ds: Dataset) -> None:
    it = iter(ds)
    next(it)
    state = it.state_dict()
    again = iter(ds)
    again.load_state_dict(state)
    next(again)


PARTIAL: dict[str, Callable[[Dataset], Any]] = {
    "take": lambda ds: list(ds.take(2)),
    "closed": close_after_one,
    "abandoned": abandon,
    "two at once": two_at_once,
    "restored": restore_in_the_middle,
    "spec": lambda ds: ds.map(abs).element_spec,
}


@pytest.mark.parametrize("source", ["map", "generator"])
@pytest.mark.parametrize("partial", PARTIAL)
def test_the_first_full_pass_completes_it(partial: str, source: str) -> None:
    counted = Counted()
    if source == "map":
        ds = Dataset.range(5).map(counted).cache()
    else:
        ds = Dataset.from_generator(Numbers(counted)).cache()
    held = PARTIAL[partial](ds)
    first = [int(x) for x in ds]
    counted.calls = 0

    assert first == [int(x) for x in ds] == list(range(5))
    assert counted.calls == 0
    del held


def test_a_pass_that_pauses_while_others_complete_it_gives_the_rest() -> None:
    counted = Counted()
    ds = Dataset.range(5).map(counted).cache()
    slow = iter(ds)
    next(slow)
    list(ds)

    assert [int(x) for x in slow] == [1, 2, 3, 4]
    counted.calls = 0
    assert [int(x) for x in ds] == list(range(5))
    assert counted.calls == 0


def test_a_snapshot_upstream_that_is_completed_meanwhile_changes_nothing(tmp_path: Path) -> None:
    counted = Counted()
    ds = Dataset.range(5).snapshot(tmp_path).map(counted).cache()
    list(ds)
    counted.calls = 0

    assert [int(x) for x in ds] == list(range(5))
    assert counted.calls == 0


def test_exactly_all_of_a_known_number_completes_it_as_in_tfdata() -> None:
    counted = Counted()
    ds = Dataset.range(5).map(counted).cache()
    list(ds.take(5))
    counted.calls = 0

    assert len(list(ds)) == 5
    assert counted.calls == 0


def test_a_number_that_does_not_hold_completes_nothing() -> None:
    """A batch that failed leaves one more to come than was said."""
    ds = Dataset.range(4).map(fails_first).batch(2).cache()

    def seen(ds: Dataset) -> list[Any]:
        found: list[Any] = []
        with ds.iterator(workers=0) as it:
            while True:
                try:
                    found.append(next(it).tolist())
                except StopIteration:
                    return found
                except LookupError:
                    found.append("error")

    assert seen(ds.take(2)) == ["error", [1, 2]]
    assert seen(ds) == seen(ds) == ["error", [1, 2], [3]]


def fails_first(x: Any) -> Any:
    if x == 0:
        raise LookupError("the first")
    return x


class Large(Counted):
    """Makes elements of which three fit into the budget."""

    def __call__(self, x: Any) -> Any:
        return np.full(1 << 17, super().__call__(x))


def little_room(counted: Counted, count: int) -> Dataset:
    options = Options(workers=1, executor="thread", memory_budget=4 << 20)
    return Dataset.range(count).map(counted).cache().with_options(options)


def test_passes_that_fill_at_once_keep_within_the_limit() -> None:
    """Where there is room for one, the one that is read stays."""
    counted = Large()
    ds = little_room(counted, 3)
    with iter(ds) as left:
        next(left), next(left)
        assert len(list(ds)) == 3
        counted.calls = 0

        assert len(list(ds)) == 3
        assert counted.calls == 0


def test_what_a_pass_that_is_gone_had_kept_takes_no_room() -> None:
    counted = Large()
    ds = little_room(counted, 3)
    for _ in range(3):
        with iter(ds) as gone:
            next(gone), next(gone)
    assert len(list(ds)) == 3
    counted.calls = 0

    assert len(list(ds)) == 3
    assert counted.calls == 0


def test_more_than_there_is_room_for_is_reported_once_and_computed_anew() -> None:
    counted = Large()
    ds = little_room(counted, 6)
    with pytest.warns(RuntimeWarning, match="4 elements use up its 4,194,304 bytes") as told:
        assert [len(list(ds)) for _ in range(3)] == [6, 6, 6]

    assert counted.calls >= 18
    assert len(told) == 1


def drawn(x: Any, rng: Any) -> int:
    return int(rng.integers(1 << 30))


def five_of(iterator: Any) -> tuple[list[Any], Any]:
    """Return five elements, and the state then."""
    with iterator as it:
        return [next(it) for _ in range(5)], it.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_another_dataset_of_the_same_cache_resumes_elsewhere(workers: int) -> None:
    """Elements that another object has drawn, with other seeds, are not given to this one."""

    def data() -> Dataset[Any]:
        return Dataset.range(40).shuffle(40).cache()

    base = data()
    list(base)
    with pytest.warns(RuntimeWarning, match="drawn with other seeds"):
        first, state = five_of(base.batch(4).iterator(workers=workers))
    with data().batch(4).iterator(workers=0) as it:  # as in another process
        it.load_state_dict(state)
        rest = list(it)
    assert sorted(np.concatenate([*first, *rest]).tolist()) == list(range(40))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_cache_in_inner_datasets_draws_for_each(workers: int) -> None:
    kept = Dataset.range(3).map(drawn, seed=1)
    want = list(Dataset.range(3).flat_map(lambda _: kept))
    assert len(set(want)) == 9
    cached = kept.cache()
    ds = Dataset.range(3).flat_map(lambda _: cached)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert list(ds.iterator(workers=workers)) == want
    if not workers:  # with some, all are open before one is complete
        assert "drawn with other seeds" in str(warned[0].message)


def test_a_cache_after_other_operators_that_draw_keeps_what_is_drawn_there() -> None:
    cached = Dataset.range(3).map(drawn, seed=1).cache()
    both = Dataset.range(2).map(drawn, seed=1).concatenate(cached)
    want = list(both.iterator())
    cached = Dataset.range(3).map(drawn, seed=1).cache()
    both = Dataset.range(2).map(drawn, seed=1).concatenate(cached)
    list(cached)
    with pytest.warns(RuntimeWarning, match="drawn with other seeds"):
        assert list(both.iterator()) == want


def test_objects_that_elements_share_are_counted_once() -> None:
    table = np.zeros(1 << 20)
    kept = Dataset.range(50).map(lambda _: {"part": Shared(table)}).cache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(kept.with_options(Options(memory_budget=12 << 20)).iterator(workers=0))
    filling = CacheStore(1 << 30).begin()
    assert filling is not None
    many = Made(0, np.array([str(k) for k in range(200_000)], object))
    assert item_nbytes(many, filling.seen) > 200_000 * 50
    others = Made(0, [Shared(bytes(100)) for _ in range(50_000)])
    assert item_nbytes(others, filling.seen) > 50_000 * 100


@pytest.mark.parametrize(
    "error", [WorkerDiedError("element 1"), StalledError("element 1"), MemoryError()]
)
def test_an_error_that_another_pass_may_not_meet_is_not_kept(error: Any) -> None:
    calls = []

    def unlucky(i: int) -> int:
        calls.append(i)
        if len(calls) == 2:
            raise error
        return i

    ds = Dataset.range(3).map(unlucky).cache()
    with pytest.warns(RuntimeWarning, match="nothing is kept of this pass"):
        assert len(given(ds)) == 3
    assert [int(x) for x in ds] == [0, 1, 2]
    assert [int(x) for x in ds] == [0, 1, 2]
    assert len(calls) == 6


def test_an_error_that_every_pass_meets_is_kept() -> None:
    calls = []

    def broken(i: int) -> int:
        calls.append(i)
        raise SnapshotCorruptError("a.arrow", "a batch")

    ds = Dataset.range(2).map(broken).cache()
    assert len(given(ds)) == len(given(ds)) == 2
    assert calls == [0, 1]


def given(ds: Dataset) -> list[Any]:
    """Return the elements and errors of a pass without workers."""
    found: list[Any] = []
    with ds.iterator(workers=0) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - whatever it is
                found.append(error)


def test_an_element_that_cannot_be_kept_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, None, 100, 100, 100, 100])

    def size(item: Made, seen: set[int]) -> int:
        found = next(sizes)
        if found is None:
            raise ZeroDivisionError
        return found

    monkeypatch.setattr("tundish.loader.operators.cache.item_nbytes", size)
    ds = Dataset.range(3).cache()
    given(ds)
    assert [int(x) for x in ds] == [0, 1, 2]


class Sizes(tuple[int, ...]):
    """A tuple of a class of its own, as torch.Size: it is a leaf."""

    __slots__ = ()


class Unsized:
    """An object that cannot say how large it is."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __sizeof__(self) -> int:
        raise RuntimeError("it has no size")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [Sizes, Unsized])
def test_objects_that_are_not_as_others_are_kept(kind: Any, workers: int) -> None:
    def made(i: int) -> Any:
        return {"x": kind((int(i), 5)), "n": i}

    ds = Dataset.range(3).map(made).cache().repeat(2).enumerate()
    with ds.iterator(workers=workers) as it:
        found = [(int(k), list(getattr(x["x"], "x", x["x"]))) for k, x in it]
    assert found == [(k, [k % 3, 5]) for k in range(6)]


class Shared:
    def __init__(self, table: Any) -> None:
        self.table = table


def test_iterators_of_one_dataset_share_what_draws() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(x)
        return x

    ds = Dataset.range(5).map(counted).shuffle(5).cache().shuffle(5)
    passes = [list(ds.iterator(iteration=k, workers=0)) for k in range(3)]
    assert len(calls) == 5
    assert sorted(passes[0]) == sorted(passes[2]) == list(range(5))


@dataclasses.dataclass
class Holder:
    data: bytes


LARGE: dict[str, Callable[[Dataset[Any]], Dataset[Any]]] = {
    "arrays": lambda ds: ds.map(lambda x: np.full(1 << 16, x)),
    "texts in batches": lambda ds: ds.map(lambda x: str(int(x)) * (1 << 19)).batch(2),
    "objects": lambda ds: ds.map(lambda x: Holder(bytes(1 << 19))),
    "windows": lambda ds: ds.map(lambda x: np.full(1 << 16, x)).window(2),
    "counters": lambda ds: ds.map(lambda x: Counter({"x": bytes(1 << 19)})),
}


@pytest.mark.parametrize("kind", LARGE)
def test_the_limit_counts_all_that_an_element_holds(kind: str) -> None:
    """Sixteen times half a MB are beyond 4 MB, and twice are not."""
    large = LARGE[kind](Dataset.range(16)).cache().with_options(Options(memory_budget=4 << 20))
    with pytest.warns(RuntimeWarning, match="use up its 4,194,304 bytes"):
        list(large.iterator(workers=1))
    small = LARGE[kind](Dataset.range(2)).cache().with_options(Options(memory_budget=4 << 20))
    list(small.iterator(workers=1))
