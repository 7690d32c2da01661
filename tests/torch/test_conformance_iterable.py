"""Conformance 29 and 30: datasets that are iterated, one replica in each worker."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from tests.torch.faces import Face, epoch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("sizes", "workers", "size", "batches"),
    [
        ((5,), 0, 2, [[0, 1], [2, 3], [4]]),
        ((5,), 1, 2, [[0, 1], [2, 3], [4]]),
        ((3,), 2, 2, [[0, 1], [0, 1], [2], [2]]),
        ((1, 5), 2, 2, [[0], [0, 1], [2, 3], [4]]),
        ((0, 4, 7), 3, 3, [[0, 1, 2], [0, 1, 2], [3], [3, 4, 5], [6]]),
        ((0,), 2, 2, []),
        ((2, 1, 3), 3, None, [0, 0, 0, 1, 1, 2]),
    ],
)
def test_29_replicas_take_turns(
    face: Face, sizes: tuple[int, ...], workers: int, size: int | None, batches: list[Any]
) -> None:
    loader = face(face.counting(*sizes), batch_size=size, num_workers=workers)

    assert epoch(loader) == batches
    assert epoch(loader) == batches, "a second epoch"


@pytest.mark.parametrize("persistent", [False, True])
def test_29_each_worker_has_its_own(face: Face, *, persistent: bool) -> None:
    dataset = face.counting(3, 2, marked=True)
    loader = face(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)
    wanted = [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2]]

    assert epoch(loader) == wanted
    assert epoch(loader) == wanted


def test_29_more_than_its_length_is_warned_of(face: Face) -> None:
    loader = face(face.counting(3), batch_size=None, num_workers=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader)) == 6, "nobody asked for its length"
        assert len(loader) == 3
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)

    for _ in range(3):
        with pytest.warns(UserWarning, match="but [0-9]+ samples have been fetched"):
            next(iterator)
    assert list(iterator) == []


@pytest.mark.parametrize(
    ("sizes", "workers", "batches"),
    [
        ((5,), 0, [[0, 1], [2, 3]]),
        ((5,), 1, [[0, 1], [2, 3]]),
        ((3,), 2, [[0, 1], [0, 1]]),
        ((1, 5), 2, [[0, 1], [2, 3]]),
    ],
)
def test_30_each_worker_drops_its_last(
    face: Face, sizes: tuple[int, ...], workers: int, batches: list[Any]
) -> None:
    loader = face(face.counting(*sizes), batch_size=2, num_workers=workers, drop_last=True)

    assert epoch(loader) == batches


def test_29_without_order(face: Face) -> None:
    loader = face(face.counting(4, 6, marked=True), batch_size=None, num_workers=2, in_order=False)
    found = epoch(loader)

    for worker, size in enumerate((4, 6)):
        own = [number for made_by, number in found if made_by == worker]
        assert own == list(range(size)), "each worker's are in order"


@pytest.mark.parametrize("workers", [0, 2])
def test_29_what_it_raises_comes_out(face: Face, workers: int) -> None:
    iterator = iter(face(broken(face), batch_size=None, num_workers=workers))

    with pytest.raises(ZeroDivisionError):
        list(iterator)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_29_what_is_behind_an_error_comes(face: Face, workers: int) -> None:
    dataset = face.counting(5, kind="Surviving")
    iterator = iter(face(dataset, batch_size=None, num_workers=workers))
    found = []
    for _ in range(2 * 5):
        try:
            found.append(next(iterator, "end"))
        except ValueError:
            found.append("error")

    wanted = [0, "error", 2, 3, 4]
    each = [number for number in wanted for _ in range(max(workers, 1))]
    assert found == [*each, *["end"] * 10][:10]


def broken(face: Face) -> Any:
    """An iterable dataset whose second number raises."""

    def numbers(self: Any) -> Iterator[int]:
        yield 1
        yield 1 // 0

    kind = type(face.counting(1))
    dataset = type("Broken", (kind,), {"__iter__": numbers})
    return dataset((2,), face.info)
