"""Conformance 19 to 21 and 26 to 28: the workers, as the user's functions see them."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.torch.datasets import (
    Failing,
    Here,
    Info,
    Late,
    Numbers,
    Random,
    Seeds,
    fail_to_start,
    noted,
)
from tests.torch.faces import OURS, THEIRS, Face, epoch, numbers

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")


def test_19_worker_info(face: Face) -> None:
    loader = face(Info(8, face.info), batch_size=None, num_workers=2, generator=face.generator(4))
    found = epoch(loader)
    first = int(
        torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(4))
    )

    assert {worker for worker, *_ in found} <= {0, 1}
    for worker, count, seed, own, process in found:
        assert count == 2
        assert seed == (first + worker) % 2**62
        assert own, "the dataset of the worker"
        assert process != os.getpid()
    assert epoch(face(Info(1, face.info), batch_size=None)) == [[-1, -1, -1, -1, os.getpid()]]


def test_19_tundish_knows_it_too(our_face: Face) -> None:
    import tundish

    found = epoch(our_face(Info(4, "tundish"), batch_size=None, num_workers=1))

    assert {(worker, count, own) for worker, count, _, own, _ in found} == {(0, 1, 1)}
    assert tundish.get_worker_info() is None


def test_20_worker_init_fn(face: Face, tmp_path: Path) -> None:
    loader = face(
        Numbers(12), batch_size=2, num_workers=3, worker_init_fn=Seeds(str(tmp_path), face.torch)
    )

    assert numbers(loader) == list(range(12))
    assert sorted(text.split(",")[0] for text, _ in noted(tmp_path)) == ["0", "1", "2"]
    assert len({process for _, process in noted(tmp_path)}) == 3
    assert os.getpid() not in {process for _, process in noted(tmp_path)}


def test_20_worker_init_fn_that_fails(face: Face) -> None:
    loader = face(Numbers(4), num_workers=1, worker_init_fn=fail_to_start)

    with pytest.raises(LookupError, match="worker 0 does not like it here"):
        iter(loader) if face.ours else next(iter(loader))


def test_20_worker_init_fn_is_not_for_the_caller(face: Face) -> None:
    assert numbers(face(Numbers(3), worker_init_fn=fail_to_start)) == [0, 1, 2]


def seeds_of(base: int, worker: int, *, in_torch: bool) -> str:
    """Return what `Seeds` notes in a worker that is seeded as torch seeds it."""
    drawn = [
        random.Random(base + worker).getrandbits(32),
        int(np.random.RandomState(states(base, worker)).randint(2**31)),
    ]
    return ",".join(map(str, [worker, *drawn, *([base + worker] if in_torch else [])]))


def states(base: int, worker: int) -> Any:
    return np.random.SeedSequence([worker, base]).generate_state(4)


def test_21_seeds(face: Face, tmp_path: Path) -> None:
    base = int(
        torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(8))
    )
    loader = face(
        Numbers(6),
        num_workers=2,
        generator=face.generator(8),
        worker_init_fn=Seeds(str(tmp_path), face.torch),
    )
    list(loader)

    wanted = [seeds_of(base, worker, in_torch=face.torch) for worker in (0, 1)]
    assert sorted(text for text, _ in noted(tmp_path)) == wanted


def test_21_torchs_streams_when_asked_for() -> None:
    def drawn(face: Face, **options: Any) -> list[Any]:
        torch.manual_seed(5)
        return epoch(face(Random(12, torch=True), batch_size=2, num_workers=2, **options))

    assert drawn(OURS, rng_compat="torch") == drawn(THEIRS)
    assert drawn(OURS) != drawn(THEIRS), "not without asking"


def test_21_streams_do_not_show_the_workers(our_face: Face) -> None:
    def drawn(workers: int) -> list[Any]:
        generator = our_face.generator(5)
        dataset = Random(12, torch=our_face.torch)
        loader = our_face(dataset, batch_size=2, num_workers=workers, generator=generator)
        return [epoch(loader) for _ in range(2)]

    first = drawn(0)
    assert first == drawn(1) == drawn(2) == drawn(3)
    assert first[0] != first[1], "another epoch draws other numbers"
    values = {value for batch in first[0] for sample in batch for value in sample[1:]}
    assert len(values) == 12 * (3 if our_face.torch else 2), "no sample draws another's"


@pytest.mark.parametrize("workers", [0, 2])
def test_21_the_callers_generators_are_left_alone(our_face: Face, workers: int) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 (the global one is meant)
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    dataset = Random(6, torch=our_face.torch)
    for _ in our_face(dataset, batch_size=2, num_workers=workers, generator=our_face.generator(1)):
        assert random.getstate() == before[0]
        assert str(np.random.get_state()) == str(before[1])  # noqa: NPY002


def test_26_workers_that_stay(face: Face, tmp_path: Path) -> None:
    loader = face(
        Here(12),
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=Seeds(str(tmp_path), face.torch),
    )
    iterator = iter(loader)
    epochs = [epoch(iterator), epoch(loader), epoch(loader)]
    processes = [{process for _, made in found for process in made} for found in epochs]

    assert [numbers for numbers, _ in epochs[0]] == [numbers for numbers, _ in epochs[2]]
    assert len(noted(tmp_path)) == 2, "started once"
    started = {process for _, process in noted(tmp_path)}
    assert all(each <= started for each in processes)
    assert iter(loader) is iterator, "as torch, which begins it again"


def test_26_without_it_they_do_not(face: Face) -> None:
    loader = face(Here(4), batch_size=4, num_workers=1)

    assert epoch(loader)[0][1] != epoch(loader)[0][1]


@pytest.mark.parametrize("persistent", [False, True])
def test_27_breaking_off_and_beginning_again(face: Face, *, persistent: bool) -> None:
    loader = face(Numbers(30), batch_size=2, num_workers=2, persistent_workers=persistent)
    for _ in range(3):
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]

    assert numbers(loader) == list(range(30))


def test_27_what_was_late_does_not_come_back(face: Face, tmp_path: Path) -> None:
    loader = face(Late(8, str(tmp_path), at=5, pause=0.4), num_workers=2, persistent_workers=True)
    next(iter(loader))

    assert numbers(loader) == list(range(8))


@pytest.mark.parametrize("workers", [0, 2])
def test_28_two_at_a_time(face: Face, workers: int) -> None:
    loader = face(Numbers(3), num_workers=workers)
    pairs = [(a.item(), b.item()) for a in loader for b in loader]

    assert pairs == [(a, b) for a in range(3) for b in range(3)]
    one, other = iter(loader), iter(loader)
    assert next(one).item() == 0
    assert [batch.item() for batch in other] == [0, 1, 2]
    assert [batch.item() for batch in one] == [1, 2]


def test_28_an_iterator_is_its_own_iterator(face: Face) -> None:
    iterator = iter(face(Numbers(3)))

    assert iter(iterator) is iterator
    assert len(list(iterator)) == 3
    assert list(iterator) == [], "and stays at its end"


def test_28_errors_of_one_are_not_the_others(face: Face) -> None:
    loader = face(Failing(4, at=1), num_workers=1)
    one, other = iter(loader), iter(loader)
    next(one), next(other)

    for iterator in (one, other):
        with pytest.raises(ValueError, match="seven"):
            next(iterator)
    assert next(one).item() == next(other).item() == 2
