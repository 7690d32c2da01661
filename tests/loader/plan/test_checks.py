"""Arguments of a wrong kind are refused when the pipeline is built, by their names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tundish import Dataset, Options
from tundish.errors import SpecError

NUMBERS = Dataset.range(8)
ROWS = NUMBERS.map(np.arange)
TWO = [Dataset.range(3), Dataset.range(3)]


def same(*element: Any) -> Any:
    return element[0]


async def later(*element: Any) -> Any:
    return element[0]


async def one_by_one() -> AsyncIterator[int]:
    yield 1


class Later:
    async def __call__(self, *element: Any) -> Any:
        return element[0]


def yields(*element: Any) -> Any:
    yield element[0]


class Yields:
    def __call__(self, *element: Any) -> Any:
        yield element[0]


def odd() -> Any:
    return np.zeros(2)


def bucketed(boundaries: Any = (2,), sizes: Any = (2, 2), **others: Any) -> Dataset:
    return ROWS.bucket_by_sequence_length(len, boundaries, sizes, **others)


FLAGS: dict[str, Callable[[Any], Any]] = {
    "drop_remainder": lambda x: NUMBERS.batch(2, x),
    "drop_remainder of padded_batch": lambda x: ROWS.padded_batch(2, drop_remainder=x),
    "drop_remainder of ragged_batch": lambda x: ROWS.ragged_batch(2, x),
    "drop_remainder of window": lambda x: NUMBERS.window(2, drop_remainder=x),
    "drop_remainder of rebatch": lambda x: NUMBERS.batch(2).rebatch(3, x),
    "drop_remainder of map_batches": lambda x: NUMBERS.map_batches(same, 2, drop_remainder=x),
    "drop_remainder of pack": lambda x: ROWS.pack(4, drop_remainder=x),
    "drop_remainder of batch_by_cost": lambda x: ROWS.batch_by_cost(9, len, drop_remainder=x),
    "drop_remainder of buckets": lambda x: bucketed(drop_remainder=x),
    "pad": lambda x: ROWS.batch_by_cost(9, len, x),
    "no_padding": lambda x: bucketed(no_padding=x),
    "pad_to_bucket_boundary": lambda x: bucketed(pad_to_bucket_boundary=x),
    "log_warning": NUMBERS.ignore_errors,
    "stop_on_empty_dataset": lambda x: Dataset.sample_from_datasets(TWO, stop_on_empty_dataset=x),
    "stop_on_empty_dataset of choose": lambda x: Dataset.choose_from_datasets(TWO, TWO[0], x),
    "deterministic": lambda x: NUMBERS.map(same, deterministic=x),
    "deterministic of batch": lambda x: NUMBERS.batch(2, deterministic=x),
    "deterministic of interleave": lambda x: NUMBERS.interleave(same, deterministic=x),
    "reshuffle_each_iteration": lambda x: NUMBERS.shuffle(2, reshuffle_each_iteration=x),
    "rerandomize_each_iteration": lambda x: Dataset.random(1, x),
    "shuffle": lambda x: Dataset.list_files(__file__, shuffle=x),
}


@pytest.mark.parametrize("value", [1, 2.5, "no", [], np.array([True, False]), object()])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_a_bool(name: str, value: Any) -> None:
    """``batch(32, 4)`` is meant for another argument."""
    with pytest.raises(TypeError, match=f"{name.split(maxsplit=1)[0]} must be a bool"):
        FLAGS[name](value)
    FLAGS[name](np.False_)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: bucketed(None), TypeError, "bucket_boundaries must be a list of ints, not None"),
        (lambda: bucketed({1, 2}), TypeError, "bucket_boundaries must be a list of ints, not set"),
        (lambda: bucketed(sizes=2), TypeError, "bucket_batch_sizes must be a list of ints"),
        (lambda: bucketed(padded_shapes="x"), TypeError, "padded_shapes holds ints"),
        (lambda: bucketed(padding_values=[1]), TypeError, "padding_values holds one value"),
        (
            lambda: Dataset.sample_from_datasets(TWO, np.array(3.0)),
            TypeError,
            "weights must be a list of floats, not ndarray",
        ),
        (
            lambda: Dataset.sample_from_datasets(TWO, str),
            TypeError,
            "weights must be a list of floats, not type",
        ),
        (
            lambda: ROWS.padded_batch(2, np.array(3)),
            TypeError,
            "padded_shapes holds ints, None and",
        ),
        (lambda: ROWS.padded_batch(2, 2**63), ValueError, "padded_shapes holds sizes from 0 to"),
        (
            lambda: ROWS.padded_batch(2, pad_to_multiple_of=2**63),
            ValueError,
            "pad_to_multiple_of must be at most",
        ),
        (lambda: ROWS.sparse_batch(2, np.array(3)), TypeError, "row_shape must be a list of sizes"),
        (lambda: ROWS.sparse_batch(2, [2**63]), ValueError, "a size of row_shape must be at most"),
        (lambda: ROWS.ragged_batch(2, False, "no"), TypeError, "row_splits_dtype must be int32 or"),
        (lambda: ROWS.ragged_batch(2, False, None), ValueError, "row_splits_dtype must be int32"),
        (lambda: ROWS.pack(2**63), ValueError, "length must be at most"),
        (lambda: Dataset.counter(dtype={"a": TWO}), TypeError, "dtype must be an integer or float"),
        (lambda: NUMBERS.enumerate(2**63), ValueError, "start must be at most"),
        (lambda: NUMBERS.map(same, 5000), ValueError, "num_parallel_calls must be at least 1 and"),
        (lambda: NUMBERS.batch(2, num_parallel_calls=0), ValueError, "num_parallel_calls must be"),
        (lambda: NUMBERS.map(same, on_error=odd()), ValueError, "on_error must be one of"),
        (lambda: ROWS.padded_batch(2, side=odd()), ValueError, "side must be one of left"),
        (lambda: Options(workers=2**31), ValueError, "workers must be at least 0 and at most 4096"),
        (lambda: NUMBERS.iterator(workers=2**31), ValueError, "workers must be at least 0 and at"),
        (lambda: NUMBERS.iterator(workers=-2), ValueError, "or AUTOTUNE, not -2"),
        (lambda: NUMBERS.iterator(workers=True), TypeError, "workers must be an int, not bool"),
        (lambda: NUMBERS.iterator(executor="x"), ValueError, "executor must be one of process"),
        (lambda: NUMBERS.iterator(iteration=2.5), TypeError, "iteration must be an int"),  # type: ignore[arg-type]  # what is tested
        (lambda: Dataset.list_files(None), TypeError, "file_pattern must be a list of paths"),
        (lambda: Dataset.list_files([[1]]), TypeError, "file_pattern must hold paths, not list"),
        (lambda: Dataset.from_source(str), TypeError, "from_source needs __len__"),  # type: ignore[arg-type]  # what is tested
    ],
)
def test_what_is_refused(make: Callable[[], Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        make()


def test_what_only_an_element_can_tell_is_told_at_its_place() -> None:
    costs = ROWS.batch_by_cost(9, lambda _: None)
    with pytest.raises(SpecError, match="cost must return a number, not None"):
        next(iter(costs))
    mixed = Dataset.range(2).map(lambda n: n or {"a": n}).pad_to_cardinality(2)
    with mixed.iterator(workers=0) as elements:
        next(elements)
        with pytest.raises(SpecError, match="pad_to_cardinality needs elements that are dicts"):
            next(elements)


def test_bytes_and_paths_are_patterns() -> None:
    assert list(Dataset.list_files(__file__.encode(), shuffle=False)) == [__file__]


@pytest.mark.parametrize(
    "make",
    [
        lambda: NUMBERS.map(later),
        lambda: NUMBERS.filter(partial(later)),
        lambda: NUMBERS.take_while(Later()),
        lambda: NUMBERS.reduce(0, Later().__call__),
        lambda: Dataset.from_generator(one_by_one),
    ],
    ids=["function", "partial", "object", "method", "generator"],
)
def test_an_asynchronous_function_is_refused(make: Callable[[], Any]) -> None:
    """Its result is a coroutine, which a predicate would take for true."""
    with pytest.raises(TypeError, match="is asynchronous"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: NUMBERS.map(yields),
        lambda: NUMBERS.filter(partial(yields)),
        lambda: NUMBERS.take_while(Yields()),
        lambda: NUMBERS.scan(0, yields),
        lambda: NUMBERS.reduce(0, Yields().__call__),
        lambda: NUMBERS.group_by_window(yields, lambda _, w: w, 2),
    ],
    ids=["function", "partial", "object", "scan", "method", "key"],
)
def test_a_generator_function_is_refused_where_its_result_is_used_as_it_is(
    make: Callable[[], Any],
) -> None:
    with pytest.raises(TypeError, match="is a generator function"):
        make()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("operator", ["map", "filter", "take_while"])
def test_a_coroutine_is_an_error(operator: str, workers: int) -> None:
    ds = getattr(NUMBERS, operator)(lambda x: later(x, x))
    with ds.iterator(workers=workers) as it, pytest.raises(SpecError, match="later is async"):
        next(it)
