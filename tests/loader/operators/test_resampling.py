"""rejection_resample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.loader.operators.test_scanning import outcomes

import tundish as td
from tundish.errors import SpecError


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ((3, [1]), TypeError, "class_func must be callable"),
        ((int, "ab"), TypeError, "target_dist must be a sequence of numbers, not 'ab'"),
        ((int, []), ValueError, "target_dist must have one dimension"),
        ((int, 0.5), ValueError, "target_dist must have one dimension"),
        ((int, [0.5, -0.5]), ValueError, "target_dist must be finite, at least 0 and not all 0"),
        ((int, [0.0, 0.0]), ValueError, "not all 0"),
        ((int, [0.5, float("nan")]), ValueError, "must be finite"),
        ((int, [0.5, 0.5], [1]), ValueError, "must have one number for each class, not 1 and 2"),
        ((int, [0.5, 0.5], [1, 0]), ValueError, "target_dist asks for class 1"),
        ((int, [1], None, "x"), TypeError, "seed must be an int"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        td.Dataset.range(5).rejection_resample(*arguments)


def test_a_class_that_nobody_wants_may_be_missing() -> None:
    ds = td.Dataset.range(5).rejection_resample(lambda x: 0, [1, 0], [1, 0])

    assert [int(x) for _, x in ds] == [0, 1, 2, 3, 4]
    assert ds.cardinality() == td.UNKNOWN_CARDINALITY


COUNT = 20_000
INITIAL = (0.6, 0.3, 0.1)
TARGET = (0.2, 0.3, 0.5)


def classes(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).choice(3, COUNT, p=INITIAL)


def shares(ds: td.Dataset) -> np.ndarray:
    kept = np.array([int(cls) for cls, _ in ds])
    return np.bincount(kept, minlength=3) / len(kept)


@pytest.mark.parametrize("initial", [INITIAL, None])
def test_the_classes_have_the_wanted_distribution(initial: Any) -> None:
    ds = td.Dataset.from_tensor_slices(classes()).rejection_resample(int, TARGET, initial, seed=5)

    # Some 4,000 pass: a standard deviation is below 0.8 %.
    assert np.abs(shares(ds) - TARGET).max() < 0.025
    assert 0.17 < len(list(ds)) / COUNT < 0.23


def test_nothing_is_left_out_where_nothing_has_to_be() -> None:
    ds = td.Dataset.from_tensor_slices(classes()[:999]).rejection_resample(int, INITIAL, INITIAL)

    assert len(list(ds)) == 999


def test_pairs_of_class_and_element() -> None:
    ds: td.Dataset = (
        td.Dataset.range(2).enumerate().rejection_resample(lambda n, x: np.int32(x % 1), [1])
    )
    found = list(ds)

    assert found == [(0, (0, 0)), (0, (1, 1))]
    assert found[0][0].dtype == np.int32


def test_each_pass_and_each_seed_draws_anew() -> None:
    ds = td.Dataset.range(200)
    one = [
        int(x) for _, x in ds.rejection_resample(lambda x: x % 2, [1, 3], [1, 1], seed=1).repeat(2)
    ]
    other = [int(x) for _, x in ds.rejection_resample(lambda x: x % 2, [1, 3], [1, 1], seed=2)]
    turn = one.index(199) + 1

    assert one[turn:] != one[:turn]
    assert other != one[:turn]


def test_a_seed_of_the_iterator() -> None:
    ds = td.Dataset.range(400).rejection_resample(lambda x: x % 2, [1, 9])
    runs = [
        [int(x) for _, x in ds.iterator(iteration=k, workers=w)]
        for k, w in ((0, 0), (0, 2), (1, 0))
    ]
    other = td.Dataset.range(400).rejection_resample(lambda x: x % 2, [1, 9])

    assert runs[0] == runs[1] != runs[2]
    assert [int(x) for _, x in other] != runs[0]


def test_the_seed_of_all_is_a_seed() -> None:
    def run() -> list[int]:
        td.set_seed(7)
        return [
            int(x) for _, x in td.Dataset.range(400).rejection_resample(lambda x: x % 2, [1, 9])
        ]

    try:
        assert run() == run()
    finally:
        td.set_seed(None)


@pytest.mark.parametrize("wrong", [-1, 3, 1.0, "a", None])
def test_a_class_that_is_none_is_an_error_at_its_place(wrong: Any) -> None:
    ds = td.Dataset.range(4).rejection_resample(lambda x: wrong if x == 2 else 1, [0, 1, 0])

    assert [x if isinstance(x, type) else int(x[1]) for x in outcomes(ds)] == [0, 1, SpecError, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_many_elements_keep_a_small_state(workers: int) -> None:
    ds = td.Dataset.from_tensor_slices(classes()[:6000]).rejection_resample(int, TARGET, seed=5)
    ds = ds.shuffle(1, seed=1)  # behind which nobody has to wait
    with ds.iterator(workers=workers) as it:
        for _ in range(400):
            next(it)
        state = it.state_dict()
        rest = [int(x) for _, x in it]
    with iter(ds) as it:
        it.load_state_dict(state)
        assert [int(x) for _, x in it] == rest
    position = state["position"]["up"]
    assert position["classes"] == np.bincount(classes()[: position["n"]]).tolist()
