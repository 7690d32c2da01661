"""The common part of the bridges to devices: elements taken ahead, the state of those the loop was given."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

import tundish as td
from tundish.prefetching import Prefetcher

SHUFFLED = td.Dataset.range(12).shuffle(4, seed=1).batch(2)


def fail_at_two(x: int) -> int:
    if x == 2:
        raise ValueError("not this one")
    return x


class Counting:
    """Counts what is taken; raises what it is told to, once, at an index."""

    def __init__(self, n: int, errors: dict[int, BaseException] | None = None) -> None:
        self.n, self.at, self.errors, self.closed = n, 0, errors or {}, False

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        error = self.errors.pop(self.at - 1, None)
        if type(error) is KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
        elif error is not None:
            raise error
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]

    def close(self) -> None:
        self.closed = True


class Loader:
    """An iterable with the state on itself, as a DataLoader has it."""

    def __init__(self) -> None:
        self.start, self.live = 0, Counting(0)

    def __iter__(self) -> Iterator[int]:
        self.live = Counting(5)
        self.live.at, self.start = self.start, 0
        return (x for x in self.live)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.live.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["at"]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_so_many_are_taken_ahead(depth: int) -> None:
    source = Counting(10)
    it = Prefetcher(source, depth)
    assert source.at == 0
    taken = [(next(it), source.at) for _ in range(3)]

    assert taken == [(k, k + 1 + depth) for k in range(3)]
    assert list(it) == list(range(3, 10))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("depth", [0, 2, 9])
def test_the_state_is_the_loop_s(depth: int, workers: int) -> None:
    with SHUFFLED.iterator(workers=0) as plain:
        whole = [x.tolist() for x in plain]
    for k in range(len(whole) + 1):
        with Prefetcher(SHUFFLED.iterator(workers=workers), depth) as it:
            seen = [next(it).tolist() for _ in range(k)]
            state = it.state_dict()
            assert it.state_dict() == state
        assert seen == whole[:k]
        with Prefetcher(SHUFFLED.iterator(workers=0), depth) as it:
            next(it)
            it.load_state_dict(state)
            assert [x.tolist() for x in it] == whole[k:]
        with SHUFFLED.iterator(workers=0) as plain:  # and without a prefetcher
            plain.load_state_dict(state)
            assert [x.tolist() for x in plain] == whole[k:]


def test_the_state_behind_the_end_says_so() -> None:
    with Prefetcher(SHUFFLED.iterator(), 2) as it:
        assert len(list(it)) == 6
        assert it.state_dict()["ended"]


def test_an_error_is_raised_at_its_place() -> None:
    ds = td.Dataset.range(5).map(fail_at_two)
    found: list[Any] = []
    state: dict[str, Any] = {}
    with Prefetcher(ds.iterator(workers=0), 3) as it:
        for _ in range(5):
            try:
                found.append(int(next(it)))
            except ValueError as error:
                found.append(str(error))
                state = it.state_dict()
        assert list(it) == []
    assert found == [0, 1, "not this one", 3, 4]
    with Prefetcher(ds.iterator(workers=0), 3) as it:
        it.load_state_dict(state)
        assert [int(x) for x in it] == [3, 4]


def test_an_interrupt_is_raised_at_once_and_loses_nothing() -> None:
    source = Counting(6, {3: KeyboardInterrupt()})
    it = Prefetcher(source, 2)
    assert next(it) == 0
    with pytest.raises(KeyboardInterrupt):
        next(it)
    assert it.state_dict() == {"at": 1}
    assert list(it) == [1, 2, 3, 4, 5]


def test_a_loader_s_state_counts_from_its_next_iterator() -> None:
    loader = Loader()
    it = Prefetcher(loader, 2)
    assert [next(it), next(it)] == [0, 1]
    state = it.state_dict()
    assert loader.live.at == 4
    assert state == {"at": 2}
    again = Prefetcher(Loader(), 2)
    again.load_state_dict(state)
    assert list(again) == [2, 3, 4]


def test_the_end_stays_the_end() -> None:
    source = Counting(1)
    it = Prefetcher(source, 2)
    assert list(it) == [0]
    source.n = 5
    assert list(it) == []


def test_a_source_without_a_state() -> None:
    it = Prefetcher([1, 2], 1)
    assert next(it) == 1
    with pytest.raises(TypeError, match="list has no state_dict"):
        it.state_dict()
    with pytest.raises(TypeError, match="list has no state_dict"):
        it.load_state_dict({})
    assert list(it) == [2]


def test_close_ends_the_source() -> None:
    source = Counting(9)
    with Prefetcher(source, 2) as it:
        next(it)
    assert source.closed
    assert list(it) == []


@pytest.mark.parametrize(("depth", "error"), [(-1, ValueError), (1.5, TypeError)])
def test_depth_is_checked(depth: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Prefetcher([], depth)
