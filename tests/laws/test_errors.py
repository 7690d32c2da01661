"""Law 3: errors tell, and iteration goes on after them."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.laws import functions
from tests.outcomes import outcomes

from tundish import Dataset
from tundish.errors import SpecError, TransformError, WorkerTraceback
from tundish.loader.run.parallelengine import ParallelEngine
from tundish.testing import collect

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def plain(found: list[Any]) -> list[Any]:
    return [type(x) if isinstance(x, Exception) else x for x in found]


@WORKERS
def test_an_error_stands_in_its_element_s_place(workers: int) -> None:
    found = outcomes(Dataset.range(7).map(functions.fails_at_three), workers)

    assert plain(found) == [0, 1, 2, LookupError, 4, 5, 6]
    assert found[3].args == ("no three", 3)


@WORKERS
def test_it_says_where_it_happened(workers: int) -> None:
    ds = Dataset.range(7).map(functions.pure).map(functions.fails_at_three)
    error = outcomes(ds, workers)[1]

    note = "\n".join(error.__notes__)
    assert "map" in note
    assert "element 1" in note
    if workers:
        assert "worker" in note
        assert isinstance(error.__cause__, WorkerTraceback)
        assert "fails_at_three" in str(error.__cause__)


@WORKERS
def test_a_batch_gives_up_what_it_had_and_says_what(workers: int) -> None:
    found = outcomes(Dataset.range(9).map(functions.fails_at_three).batch(2), workers)

    assert plain(found) == [[0, 1], LookupError, [4, 5], [6, 7], [8]]
    assert "2" in "\n".join(found[1].__notes__)


@WORKERS
def test_skip_leaves_out_only_the_bad_one(workers: int) -> None:
    ds = Dataset.range(9).map(functions.fails_at_three, on_error="skip").batch(2)

    assert plain(outcomes(ds, workers)) == [[0, 1], [2, 4], [5, 6], [7, 8]]


@WORKERS
def test_nothing_ends_silently(workers: int) -> None:
    found = outcomes(Dataset.range(6).map(functions.stop_iteration).batch(2), workers)

    assert plain(found) == [[0, 1], RuntimeError, [4, 5]]
    assert isinstance(found[1].__cause__, StopIteration | WorkerTraceback)


@WORKERS
def test_nothing_is_broadcast_into_a_batch(workers: int) -> None:
    found = outcomes(Dataset.range(6).map(functions.widens_at_three).batch(4), workers)

    assert plain(found) == [SpecError, [[1.0, 1.0], [1.0, 1.0]]]
    assert "(1,)" in str(found[0])
    assert "(2,)" in str(found[0])


@WORKERS
def test_nothing_is_cast_into_a_batch(workers: int) -> None:
    found = outcomes(Dataset.range(6).map(functions.casts_at_three).batch(4), workers)

    assert plain(found) == [SpecError, [4, 5]]
    assert "float64" in str(found[0])
    assert "int64" in str(found[0])


def test_an_error_that_cannot_cross_is_told_of() -> None:
    found = outcomes(Dataset.range(5).map(functions.raises_unpicklable), 2)

    assert plain(found) == [0, 1, 2, TransformError, 4]
    assert "HoldsALockError" in str(found[3])
    assert "locked" in str(found[3])


@WORKERS
def test_an_error_of_a_difficult_class_arrives_as_itself(workers: int) -> None:
    found = outcomes(Dataset.range(5).map(functions.raises_other_arguments), workers)

    assert plain(found) == [0, 1, 2, functions.OtherArgumentsError, 4]
    assert str(found[3]) == "1 and 2"


def test_an_element_that_cannot_cross_is_that_element_s_error() -> None:
    found = outcomes(Dataset.range(5).map(functions.returns_unpicklable), 2)

    assert plain(found)[:3] + plain(found)[4:] == [0, 1, 2, 4]
    assert isinstance(found[3], Exception)
    assert "lock" in str(found[3])


@pytest.mark.parametrize("size", [1, 3, 8])
@WORKERS
def test_errors_pass_every_operator_that_chooses_and_orders(workers: int, size: int) -> None:
    ds = (
        Dataset.range(20)
        .map(functions.fails_at_three)
        .shuffle(size, seed=1)
        .skip(1)
        .take(18)
        .shard(2, 1)
        .enumerate()
        .prefetch(2)
    )
    kept = Dataset.range(20).shuffle(size, seed=1).skip(1).take(18).shard(2, 1)
    expected = [LookupError if x == 3 else x for x in map(int, kept)]

    found = plain(outcomes(ds, workers))
    assert [x if isinstance(x, type) else int(x[1]) for x in found] == expected
    assert [int(x[0]) for x in found if not isinstance(x, type)] == [
        i for i, x in enumerate(expected) if x is not LookupError
    ]


@pytest.mark.parametrize("size", [1, 5])
def test_an_error_behind_an_element_loses_nothing(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker can be started any more, say: what was about to be given comes again."""
    dataset = Dataset.range(40).map(abs)
    dataset = dataset.batch(size) if size > 1 else dataset
    with dataset.iterator(workers=0) as iterator:
        expected = collect(iterator)
    look, turns = ParallelEngine._look, iter(range(1000))

    def broken(self: ParallelEngine, element: Any) -> None:
        look(self, element)
        if next(turns) in (0, 3):
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ParallelEngine, "_look", broken)
    with dataset.iterator(workers=2) as iterator:
        found = collect(iterator)
        counted = iterator.stats.elements

    assert [outcome for outcome in found if not outcome.error] == expected
    assert counted == len(expected)
    assert len(found) == len(expected) + 2
