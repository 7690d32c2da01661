"""sample_from_datasets and choose_from_datasets."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import Dataset, set_seed
from tundish.errors import IncompatibleCheckpointError, SpecError
from tundish.testing.compare import collect
from tundish.testing.functions import Tag
from tundish.testing.orders import directed, seed_words, weighted_draws, words

A, B = Dataset.range(2), Dataset.range(3)
EVER = Dataset.range(3).repeat()
INFINITE, UNKNOWN = td.INFINITE_CARDINALITY, td.UNKNOWN_CARDINALITY


@pytest.mark.parametrize(
    ("datasets", "weights", "error", "says"),
    [
        ([], None, ValueError, "datasets must hold at least one"),
        ({}, None, ValueError, "datasets must hold at least one"),
        (A, None, TypeError, "datasets must be a list or tuple of datasets, not Dataset"),
        ([A, 3], None, TypeError, r"datasets\[1\] must be a Dataset, not int"),
        ({"a": 3}, None, TypeError, r"datasets\['a'\] must be a Dataset, not int"),
        ({1: A}, None, TypeError, "names of datasets must be str, not 1"),
        (
            [A, B],
            [1.0],
            ValueError,
            "weights must have one number for each of the 2 datasets, not 1",
        ),
        ([A, B], 0.5, TypeError, "weights must be a list of floats, not float"),
        ([A, B], [1, 2], TypeError, "weights must be floats, not"),
        ([A, B], ["a", 1.0], TypeError, "weights must be floats, not 'a'"),
        ([A, B], [1.0, -0.5], ValueError, "weights must be 0 or from .* not -0.5"),
        ([A, B], [1.0, float("nan")], ValueError, "not nan"),
        ([A, B], [1.0, float("inf")], ValueError, "not inf"),
        ([A, B], [1.0, 1e-60], ValueError, "not 1e-60"),
        ({"a": A, "b": B}, [0.5, 0.5], TypeError, "a dict with its names, not list"),
        ({"a": A, "b": B}, {"a": 1.0}, ValueError, r"names of datasets, \['a', 'b'\], not \['a'\]"),
        ({"a": A, "b": B}, EVER, TypeError, "must be a dict, not a Dataset"),
    ],
)
def test_sample_refuses(datasets: Any, weights: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.sample_from_datasets(datasets, weights)


def test_sample_refuses_a_seed_that_is_none() -> None:
    with pytest.raises(TypeError, match="seed must be an int"):
        Dataset.sample_from_datasets([A, B], seed="x")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    ("datasets", "choice", "error", "says"),
    [
        ([], A, ValueError, "datasets must hold at least one"),
        ({"a": A}, A, TypeError, "datasets must be a list or tuple of datasets, not dict"),
        ([A], [0, 1], TypeError, "choice_dataset must be a Dataset, not list"),
        ("ab", A, TypeError, "datasets must be a list or tuple of datasets, not str"),
    ],
)
def test_choose_refuses(datasets: Any, choice: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.choose_from_datasets(datasets, choice)


def test_cardinalities() -> None:
    sample, choose = Dataset.sample_from_datasets, Dataset.choose_from_datasets
    expected = [
        (sample([A, B], stop_on_empty_dataset=True), UNKNOWN),
        (sample([A, B]), UNKNOWN),
        (sample([EVER, B]), INFINITE),
        (sample([EVER, B], stop_on_empty_dataset=True), UNKNOWN),
        (sample([EVER, EVER], stop_on_empty_dataset=True), INFINITE),
        (sample([EVER, B], [0.0, 1.0]), 3),
        (sample([EVER, B], [0.0, 0.0]), 0),
        (sample({"a": EVER, "b": B}, {"a": 0, "b": 1}), UNKNOWN),
        (choose([A, B], A.repeat(2)), UNKNOWN),
        (choose([A, B], A.repeat(2), False), UNKNOWN),
        (choose([EVER, EVER], A.repeat()), INFINITE),
        (choose([EVER, EVER], A), UNKNOWN),
        (Dataset.counter(), INFINITE),
        (Dataset.counter().take(5), 5),
        (Dataset.random(seed=4), INFINITE),
        (Dataset.from_list([1, 2, 3]), 3),
        (Dataset.range(3, output_type=np.int32), 3),
    ]
    for at, (made, count) in enumerate(expected):
        assert made.cardinality() == count, f"number {at}"


@pytest.mark.parametrize(
    ("source", "given", "error", "says"),
    [
        ("counter", {"start": 0.5}, TypeError, "start must be an int, not float"),
        ("counter", {"step": "x"}, TypeError, "step must be an int, not str"),
        ("counter", {"start": "x", "dtype": float}, TypeError, "start must be a number, not str"),
        ("counter", {"start": 300, "dtype": "u1"}, SpecError, "start gives 300, which uint8"),
        ("counter", {"dtype": str}, TypeError, "dtype must be an integer or float dtype"),
        ("counter", {"dtype": "no"}, TypeError, "dtype must be an integer or float dtype"),
        ("random", {"seed": 0.5}, TypeError, "seed must be an int, not float"),
        ("from_list", {"elements": []}, ValueError, "elements must hold at least one"),
        ("from_list", {"elements": 3}, TypeError, "elements must be a list of elements, not int"),
        ("from_list", {"elements": [1, (2, 3)]}, SpecError, "one structure: element 1 is"),
        ("from_list", {"elements": [{"a": 1}, {"a": 2.5}]}, SpecError, "a.* is float64 in elem"),
        ("from_list", {"elements": [1, [[1], [2, 3]]]}, SpecError, "ragged"),
    ],
)
def test_sources_refuse(
    source: str, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        getattr(Dataset, source)(**given)


@pytest.mark.parametrize(
    ("span", "dtype", "error", "says"),
    [
        ((3,), bool, TypeError, "output_type must be an integer"),
        ((3,), None, TypeError, "output_type must be an integer or float dtype, not None"),
        ((300,), np.int8, SpecError, "range gives 299, which int8"),
        ((-1, 3), "u4", SpecError, "range gives -1, which uint32"),
    ],
)
def test_range_refuses(span: Any, dtype: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Dataset.range(*span, output_type=dtype)


def test_dtypes() -> None:
    assert next(iter(Dataset.range(1, 5, 2, output_type=np.float32))).dtype == np.float32
    assert next(iter(Dataset.range(3, output_type="i2").map(lambda x: x))).dtype == np.int16
    assert next(iter(Dataset.random(seed=4))).dtype == np.int64
    assert next(iter(Dataset.counter())).dtype == np.int64
    assert next(iter(Dataset.counter(dtype=np.float16))).dtype == np.float16


def test_a_single_dataset_is_passed_through() -> None:
    assert list(Dataset.sample_from_datasets([B], weights=[1.0])) == [0, 1, 2]
    assert Dataset.sample_from_datasets([A, B], [0.0, 1.0]).cardinality() == 3


def drawn(weights: Any, seed: int, graph_seed: int | None = None) -> Any:
    return weighted_draws(weights, words(*seed_words(seed, graph_seed)))


def shares(rng: random.Random, count: int) -> list[float] | None:
    if rng.random() < 0.3:
        return None
    many = [rng.choice((rng.random() + 0.1, 2 * rng.random() + 0.1, 0.2)) for _ in range(count)]
    return [0.0 if rng.random() < 0.2 else share for share in many]


@pytest.mark.parametrize("part", range(4))
def test_200_random_configurations_equal_the_reference(part: int) -> None:
    rng = random.Random(part)
    for _ in range(50):
        count, seed, stop = rng.randint(2, 6), rng.randrange(-9, 2**62), rng.random() < 0.3
        sizes = [rng.choice((0, 1, 7, rng.randint(0, 60))) for _ in range(count)]
        weights = shares(rng, count)
        graph_seed = rng.choice((None, None, rng.randrange(2**40)))
        kept = [at for at in range(count) if weights is None or weights[at]]
        spans = [range(100 * at, 100 * at + size) for at, size in enumerate(sizes)]
        used = [1.0 if weights is None else weights[at] for at in kept]
        expected: list[int] = []
        if len(kept) == 1:
            expected = list(spans[kept[0]])
        elif kept:
            choices = drawn(used, seed, graph_seed)
            expected = list(directed([spans[at] for at in kept], choices, stop=stop))

        set_seed(graph_seed)
        try:
            datasets = [Dataset.range(span.start, span.stop) for span in spans]
            found = Dataset.sample_from_datasets(datasets, weights, seed, stop)
            told = f"{sizes}, {weights}, {seed}, {graph_seed}, {stop}"
            assert list(found) == expected, told
            assert list(found) == expected, f"a second time: {told}"
            names = [f"d{at}" for at in range(count)]
            named = Dataset.sample_from_datasets(
                dict(zip(names, datasets, strict=True)),
                None if weights is None else dict(zip(names, weights, strict=True)),
                seed,
                stop,
            )
            assert list(named) == expected, f"named: {told}"
        finally:
            set_seed(None)


def test_what_tf_data_gave() -> None:
    low, high = Dataset.range(0, 5), Dataset.range(100, 105)
    mixed = [low, high], [0.5, 0.5]

    assert list(Dataset.sample_from_datasets(*mixed, seed=42)) == [
        100, 101, 102, 103, 0, 104, 1, 2, 3, 4,
    ]  # fmt: skip
    assert list(Dataset.sample_from_datasets(*mixed, seed=42, stop_on_empty_dataset=True)) == [
        100, 101, 102, 103, 0, 104, 1, 2, 3,
    ]  # fmt: skip
    assert list(Dataset.random(seed=4).take(5)) == [
        3128586565, 2023892699, 452966358, 4293674553, 1485036815,
    ]  # fmt: skip


@pytest.mark.parametrize(("array", "dtype"), [(list, np.float32), (np.array, np.float64)])
def test_weights_are_taken_to_logarithms_in_their_type(array: Any, dtype: Any) -> None:
    weights = [0.1, 0.2, 0.7]
    datasets = [Dataset.counter(k, 0).take(2000) for k in range(3)]
    expected = weighted_draws(weights, words(*seed_words(3)), dtype)

    found = Dataset.sample_from_datasets(datasets, array(weights), seed=3).take(2000)

    assert list(found) == list(itertools.islice(expected, 2000))


def test_a_dataset_of_equal_weights_draws_as_these_weights() -> None:
    datasets = [Dataset.range(40), Dataset.range(100, 140)]
    weights = Dataset.from_tensors(np.array([0.25, 0.75], np.float32)).repeat()

    varying = Dataset.sample_from_datasets(datasets, weights, seed=5)

    assert list(varying) == list(Dataset.sample_from_datasets(datasets, [0.25, 0.75], seed=5))


def test_each_iteration_draws_alike_unless_told() -> None:
    datasets = [Dataset.range(0, 20), Dataset.range(100, 120)]
    same = Dataset.sample_from_datasets(datasets, seed=1)
    anew = Dataset.sample_from_datasets(datasets, seed=1, rerandomize_each_iteration=True)
    seeds = words(*seed_words(1))
    expected = []
    for _ in range(3):
        draws = weighted_draws([1.0, 1.0], words(next(seeds), next(seeds)))
        expected.append(list(directed([range(20), range(100, 120)], draws, stop=False)))

    assert list(same) == list(same)
    assert [list(anew) for _ in range(3)] == expected
    assert list(Dataset.random(seed=2).take(9).repeat(2)) == 2 * list(Dataset.random(2).take(9))


def test_a_random_source_that_is_told_to_differs_by_pass() -> None:
    anew = Dataset.random(seed=4, rerandomize_each_iteration=True).take(6)
    seeds = words(*seed_words(4))

    for _ in range(3):
        assert list(anew) == list(itertools.islice(words(next(seeds), next(seeds)), 6))


def test_random_numbers_are_had_from_anywhere() -> None:
    expected = list(itertools.islice(words(*seed_words(9), first=10**6), 40))

    assert list(Dataset.random(seed=9).skip(10**6).take(40)) == expected
    assert Dataset.random(seed=9)[10**6 + 3] == expected[3]
    assert list(Dataset.random(seed=9).shard(4, 1).skip(250_000).take(9)) == expected[1:34:4]


def test_the_last_one_left_is_not_waited_for() -> None:
    datasets = [Dataset.range(3), Dataset.range(100, 104)]

    found = [int(x) for x in Dataset.sample_from_datasets(datasets, [1.0, 1e-12], seed=1)]

    assert found == [0, 1, 2, 100, 101, 102, 103]


# -- named mixtures


def mixture(**weights: float) -> Dataset:
    sources = {name: Dataset.counter(k, 0).map(Tag(1)) for k, name in enumerate(weights)}
    return Dataset.sample_from_datasets(sources, weights, seed=3)


def numbers(ds: Iterable[Any], count: int) -> list[int]:
    """Return which sources elements came from."""
    kinds = {int(next(iter(Dataset.counter(k, 0).map(Tag(1))))): k for k in range(3)}
    return [kinds[int(x)] for x in itertools.islice(ds, count)]


def test_weights_change_on_resume_and_the_draws_go_on() -> None:
    before, after = mixture(a=0.9, b=0.1, c=0.0), mixture(a=0.1, b=0.5, c=0.4)
    with iter(before) as iterator:
        first = numbers(iterator, 50)
        state = json.loads(json.dumps(iterator.state_dict()))
    for workers in (0, 2):
        with after.iterator(workers=workers) as iterator:
            iterator.load_state_dict(state)
            rest = numbers(iterator, 50)
            counted = iterator.stats.sources

        assert first == list(itertools.islice(drawn([0.9, 0.1], 3), 50))
        assert rest == list(itertools.islice(drawn([0.1, 0.5, 0.4], 3), 50, 100))
        every = first + rest
        assert counted == {"a": every.count(0), "b": every.count(1), "c": every.count(2)}


def test_names_and_their_order_may_not_change() -> None:
    with iter(mixture(a=0.5, b=0.5)) as iterator:
        state = iterator.state_dict()

    for other in (mixture(a=0.5, c=0.5), mixture(b=0.5, a=0.5)):
        with iter(other) as iterator, pytest.raises(IncompatibleCheckpointError, match="names"):
            iterator.load_state_dict(state)


def test_other_weights_without_names_are_refused() -> None:
    datasets = [Dataset.range(9), Dataset.range(9)]
    with iter(Dataset.sample_from_datasets(datasets, [0.5, 0.5])) as iterator:
        state = iterator.state_dict()

    other = Dataset.sample_from_datasets(datasets, [0.5, 0.25])
    with iter(other) as iterator, pytest.raises(IncompatibleCheckpointError, match="weights"):
        iterator.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_sources_are_counted_as_they_are_delivered(workers: int) -> None:
    sources = {"low": Dataset.range(60), "high": Dataset.range(1000, 1040)}
    ds = Dataset.sample_from_datasets(sources, {"low": 0.6, "high": 0.4}, seed=2)
    ds = ds.map(Tag(0)).batch(7)
    order = [x >= 1000 for x in Dataset.sample_from_datasets(list(sources.values()), [0.6, 0.4], 2)]

    with ds.iterator(workers=workers) as iterator:
        assert iterator.stats.sources == {"low": 0, "high": 0}
        for step, _ in enumerate(iterator, 1):
            come = order[: 7 * step]
            assert iterator.stats.sources == {"low": come.count(False), "high": come.count(True)}
        assert iterator.stats.sources == {"low": 60, "high": 40}


def test_nothing_is_counted_without_names() -> None:
    with iter(Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(3)])) as iterator:
        next(iterator)
        assert iterator.stats.sources == {}


# -- choices


def test_choices_that_are_none_are_errors_at_their_place() -> None:
    choices = Dataset.from_tensor_slices([0, 2, 1, -1, 0])
    ds = Dataset.choose_from_datasets([Dataset.range(9), Dataset.range(10, 19)], choices)
    with iter(ds) as iterator:
        assert next(iterator) == 0
        with pytest.raises(IndexError, match="a choice must be from 0 to 1, not 2") as caught:
            next(iterator)
        assert "choose_from_datasets" in caught.value.__notes__[0]
        assert next(iterator) == 10
        with pytest.raises(IndexError, match="not -1"):
            next(iterator)
        assert list(iterator) == [1]


@pytest.mark.parametrize(
    "choices",
    [np.array([0], np.int32), [0.0], [True], [[0]], ["a"]],
    ids=["int32", "float", "bool", "1d", "str"],
)
def test_choices_are_scalars_of_int64(choices: Any) -> None:
    ds = Dataset.choose_from_datasets([Dataset.range(2)], Dataset.from_tensor_slices(choices))
    with iter(ds) as iterator, pytest.raises(SpecError, match="a choice must be a scalar int64"):
        next(iterator)


def test_choosing_what_has_ended() -> None:
    datasets = [Dataset.range(2), Dataset.range(100, 110)]
    choices = Dataset.from_tensor_slices([0, 0, 0, 1, 1])

    assert list(Dataset.choose_from_datasets(datasets, choices)) == [0, 1]
    on = Dataset.choose_from_datasets(datasets, choices, stop_on_empty_dataset=False)
    assert list(on) == [0, 1, 100, 101]
    endless = Dataset.choose_from_datasets(
        [Dataset.range(2)], Dataset.from_tensors(0).repeat(), stop_on_empty_dataset=False
    )
    assert list(endless) == [0, 1]


def test_a_draw_whose_item_is_being_computed_is_kept() -> None:
    # With workers, the items of filtered inputs are not ready when they are drawn.
    inputs = [Dataset.range(k, k + 40).filter(lambda x: x % 3 > 0) for k in (0, 100)]
    ds = Dataset.sample_from_datasets(inputs, [0.3, 0.7], seed=1)
    expected = collect(ds.iterator(workers=0))
    for workers in (1, 3):
        with ds.iterator(workers=workers) as iterator:
            assert collect(iterator) == expected
