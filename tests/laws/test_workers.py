"""Law 1: workers don't show."""

from __future__ import annotations

import numpy as np
import pytest
from tests.laws import functions
from tests.laws.sampling import some

from tundish import Dataset, Options
from tundish.errors import SpecError
from tundish.testing import assert_workers_do_not_show, collect
from tundish.testing.functions import Draw, Fail, Pause
from tundish.testing.registry import CASES, FIRST, OTHERS, Case


@pytest.mark.parametrize("case", OTHERS[::4], ids=lambda c: c.name)
def test_two_workers_do_not_show(case: Case) -> None:
    assert_workers_do_not_show(case.build, workers=(0, 2), limit=case.limit)


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.name)
def test_neither_one_nor_three_workers_show(case: Case) -> None:
    """`test_operators.py` has two, and `make thorough` more."""
    assert_workers_do_not_show(case.build, (0, 1, 3), limit=case.limit)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_no_number_of_workers_shows_in_any_case(case: Case) -> None:
    assert_workers_do_not_show(case.build, limit=case.limit)


@pytest.mark.parametrize("case", [*FIRST, *some(12)], ids=lambda c: c.name)
def test_threads_do_not_show(case: Case) -> None:
    options = Options(executor="thread")
    assert_workers_do_not_show(lambda: case.build().with_options(options), (0, 2), limit=case.limit)


def test_without_order_an_epoch_is_the_same_multiset() -> None:
    ds = Dataset.range(60).map(Draw(1), seed=1).map(Pause(1)).map(Fail(1, 10))
    free = ds.with_options(Options(deterministic=False))
    with ds.iterator(workers=0) as one, free.iterator(workers=3) as other:
        expected, found = collect(one), collect(other)

    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_a_second_iteration_differs_but_not_by_workers() -> None:
    ds = Dataset.range(50).shuffle(None, seed=1).batch(7)
    runs = [
        [[int(x) for x in batch] for batch in ds.iterator(iteration=i, workers=w)]
        for i in (0, 1)
        for w in (0, 2)
    ]

    assert runs[0] == runs[1]
    assert runs[2] == runs[3]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("batched", [False, True])
def test_objects_whose_attributes_are_their_own_affair(batched: bool) -> None:
    ds = Dataset.range(6).map(functions.strange).bytes_produced_stats("a")
    assert_workers_do_not_show(ds.batch(2) if batched else ds, (0, 2))
    with ds.iterator(workers=0) as iterator:
        assert not any(outcome.error for outcome in collect(iterator))


@pytest.mark.parametrize("batched", [False, True])
def test_arrays_of_derived_classes_are_plain_ones(batched: bool) -> None:
    ds = Dataset.range(6).map(functions.derived)
    ds = ds.batch(2) if batched else ds
    assert_workers_do_not_show(ds, (0, 2))
    with ds.iterator(workers=0) as iterator:
        found = list(iterator)

    assert {type(array) for element in found for array in element} == {np.ndarray}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mask_is_not_lost(workers: int) -> None:
    ds = Dataset.range(6).map(functions.masked)
    assert_workers_do_not_show(ds, (0, 2))
    with ds.iterator(workers=workers) as iterator:
        assert next(iterator).tolist() == [0, 0, 0], "it has a mask, and nothing is masked"
        with pytest.raises(SpecError, match=r"1 of 3 values .* filled"):
            next(iterator)


@pytest.mark.parametrize(
    "impure", [functions.counted, functions.shows_its_process], ids=lambda f: f.__name__
)
def test_what_depends_on_workers_is_found(impure: object) -> None:
    ds: Dataset = Dataset.range(40).map(impure)  # type: ignore[arg-type]  # any function will do

    with pytest.raises(AssertionError, match="first differ at position"):
        assert_workers_do_not_show(ds, workers=(0, 2))
