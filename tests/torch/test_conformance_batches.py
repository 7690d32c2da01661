"""Conformance 5 to 8: which samples a batch is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.torch.datasets import Bulk, Listed, Mapped, NotBulk, Numbers
from tests.torch.faces import Face, epoch, numbers

if TYPE_CHECKING:
    from typing import Any

WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
def test_05_no_batches(face: Face, workers: int) -> None:
    samples = [np.arange(3), 7, "seven", (np.float32(2), "two"), {"a": np.ones(2), "b": None}]
    found = list(face(Listed(samples), batch_size=None, num_workers=workers))

    kind = type(found[0])
    assert kind.__name__ == ("Tensor" if face.torch else "ndarray")
    assert found[0].tolist() == [0, 1, 2]
    assert found[1:3] == [7, "seven"], "as they are"
    assert isinstance(found[3], list), "a tuple becomes a list"
    assert found[3][1] == "two"
    assert isinstance(found[4]["a"], kind)
    assert found[4]["b"] is None


@WORKERS
def test_05_no_batches_of_an_iterable(face: Face, workers: int) -> None:
    found = list(face(face.counting(5), batch_size=None, num_workers=min(workers, 1)))

    assert found == [0, 1, 2, 3, 4]
    assert all(type(each) is int for each in found)


@WORKERS
def test_06_many_at_a_time(face: Face, workers: int) -> None:
    assert epoch(face(Bulk(5), batch_size=2, num_workers=workers)) == [[0, -1], [-2, -3], [-4]]
    assert numbers(face(NotBulk(3), batch_size=2, num_workers=workers)) == [0, 1, 2]
    assert epoch(face(Bulk(3), batch_size=None, num_workers=workers)) == [0, 1, 2], "no batches"


@WORKERS
def test_07_keys_of_any_kind(face: Face, workers: int) -> None:
    dataset = Mapped(one=1, two=2, three=3)
    keys = ["three", "one", "two"]

    assert epoch(face(dataset, sampler=keys, batch_size=2, num_workers=workers)) == [[3, 1], [2]]
    assert epoch(face(dataset, sampler=keys, batch_size=None, num_workers=workers)) == [3, 1, 2]


@WORKERS
def test_08_batches_of_any_size(face: Face, workers: int) -> None:
    batches: list[Any] = [[0], (3, 2, 1), [4, 4], range(5, 9)]
    loader = face(Numbers(10), batch_sampler=batches, num_workers=workers)

    assert epoch(loader) == [[0], [3, 2, 1], [4, 4], [5, 6, 7, 8]]
    assert len(loader) == 4
    assert epoch(loader)[0] == [0], "a second epoch"


@WORKERS
def test_08_a_batch_of_many_keys(face: Face, workers: int) -> None:
    loader = face(range(60_000), batch_size=30_000, shuffle=True, num_workers=workers)
    first, second = epoch(loader)

    assert sorted(first + second) == list(range(60_000))


@WORKERS
def test_08_long_keys(face: Face, workers: int) -> None:
    keys = [letter * 300_000 for letter in "abc"]
    dataset = Mapped(dict.fromkeys(keys, 1))

    assert numbers(face(dataset, batch_size=2, sampler=keys, num_workers=workers)) == [1, 1, 1]


@WORKERS
def test_08_the_last_batch(face: Face, workers: int) -> None:
    assert epoch(face(Numbers(5), batch_size=2, num_workers=workers))[-1] == [4]
    assert epoch(face(Numbers(5), 2, drop_last=True, num_workers=workers))[-1] == [2, 3]
    assert epoch(face(Numbers(0), batch_size=2, num_workers=workers)) == []


@WORKERS
def test_08_a_sampler_without_length(face: Face, workers: int) -> None:
    found = numbers(face(Numbers(9), sampler=iter([3, 1, 2]), batch_size=2, num_workers=workers))

    assert found == [3, 1, 2]
