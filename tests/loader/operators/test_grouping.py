"""group_by_window and bucket_by_sequence_length: the same as tf.data, and errors at their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import ArraySpec, Dataset, Options
from tundish.errors import SpecError

WORKERS = [0, 2]


def parity(x: Any) -> Any:
    return x % 2


def outcomes(ds: Dataset, workers: int) -> list[Any]:
    """Return what comes: lists, or errors."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                found.append(np.asarray(next(it)).tolist())
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - whatever it is
                found.append(error)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    ("values", "batch", "size", "expected"),
    [
        (range(10), 5, 5, [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]),
        (
            [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0],
            4,
            4,
            [[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0], [1]],
        ),
        (range(8), 3, 4, [[0, 2, 4], [6], [1, 3, 5], [7]]),
        (range(12), 20, lambda k: k * 2 + 2, [[0, 2], [4, 6], [1, 3, 5, 7], [8, 10], [9, 11]]),
    ],
    ids=["gbw_even_odd", "gbw_small_groups", "gbw_reduce_smaller_batches", "gbw_size_func"],
)
def test_the_recorded_cases(
    values: Any, batch: int, size: Any, expected: list[Any], workers: int
) -> None:
    sizes = {"window_size_func" if callable(size) else "window_size": size}
    ds = Dataset.from_tensor_slices(np.array(values)).group_by_window(
        parity, lambda _, w: w.batch(batch), **sizes
    )

    assert outcomes(ds, workers) == expected


def inverse(x: Any) -> Any:
    if x == 0:
        raise ValueError("zero")
    return 1 / x


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_below_comes_at_once_and_is_in_no_group(workers: int) -> None:
    """The recorded case ``err_group_by_window``."""
    ds = Dataset.from_tensor_slices([1.0, 0, 2, 4, 5, 8]).map(inverse)
    ds = ds.group_by_window(lambda _: 0, lambda _, w: w.batch(2), window_size=2)
    error, *rest = outcomes(ds, workers)

    assert isinstance(error, ValueError)
    assert rest == [[1.0, 0.5], [0.25, 0.2], [0.125]]


@pytest.mark.parametrize("workers", WORKERS)
def test_remaining_groups_come_in_ascending_order_of_their_keys(workers: int) -> None:
    ds = Dataset.from_tensor_slices([5, -3, 5, 0, 9, -3]).group_by_window(
        lambda x: x, lambda key, w: w.enumerate(key), window_size=10
    )
    found = [int(x[0]) for x in outcomes(ds, workers)]

    assert found == [-3, -2, 0, 5, 6, 9]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_key_that_is_none_is_an_error_at_its_place(workers: int) -> None:
    keys = {0: 0, 1: "one", 2: 2.0, 3: np.int32(3), 4: [0], 5: np.array(0), 6: True}
    ds = Dataset.range(7).group_by_window(
        lambda x: keys[int(x)], lambda _, w: w.batch(9), window_size=2
    )
    found = outcomes(ds, workers)
    kinds = [type(x) for x in found]

    assert kinds == [SpecError, SpecError, SpecError, SpecError, list, SpecError]
    assert found[4] == [0, 5]
    assert "key_func must return an int64 scalar, not 'one'" in str(found[0])
    assert any("groups#1, element 1" in note for note in found[0].__notes__)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_size_below_one_is_an_error_at_its_place(workers: int) -> None:
    ds = Dataset.range(6).group_by_window(
        lambda x: x % 3, lambda _, w: w.batch(9), window_size_func=lambda key: 2 * key
    )
    found = outcomes(ds, workers)

    assert [type(x) for x in found] == [ValueError, ValueError, list, list]
    assert found[2:] == [[1, 4], [2, 5]]
    assert "window_size_func must return at least 1, not 0 for key 0" in str(found[0])


@pytest.mark.parametrize("workers", WORKERS)
def test_reduce_func_gives_none_or_many_or_raises(workers: int) -> None:
    def reduced(key: Any, w: Any) -> Any:
        if key == 0:
            return w.take(0)
        if key == 1:
            return w.repeat(2)
        return 7 if key == 2 else w.map(inverse)

    ds = Dataset.range(8).group_by_window(lambda x: x % 4, reduced, window_size=2)
    found = outcomes(ds, workers)

    assert found[:4] == [1, 5, 1, 5]
    assert isinstance(found[4], TypeError)
    assert "group_by_window's function must return a Dataset, not int" in str(found[4])
    assert found[5:] == [1 / 3, 1 / 7]


def ones(n: Any) -> Any:
    return np.ones(int(n), np.int64)


@pytest.mark.parametrize("workers", WORKERS)
def test_buckets(workers: int) -> None:
    ds = Dataset.from_tensor_slices([1, 3, 2, 5, 4, 9, 2]).map(ones)
    ds = ds.bucket_by_sequence_length(len, [3, 5], [2, 2, 2])
    found = [np.sum(batch, axis=1).tolist() for batch in outcomes(ds, workers)]

    assert found == [[1, 2], [3, 4], [5, 9], [2]]


@pytest.mark.parametrize("workers", WORKERS)
def test_buckets_padded_to_their_boundary(workers: int) -> None:
    ds = Dataset.from_tensor_slices([1, 3, 6, 2, 4, 2]).map(ones)
    ds = ds.bucket_by_sequence_length(len, [4, 6], [2, 2, 2], pad_to_bucket_boundary=True)
    found = outcomes(ds, workers)

    assert isinstance(found[0], ValueError) or isinstance(found[1], ValueError)
    error = next(x for x in found if isinstance(x, ValueError))
    assert "this one has length 6" in str(error)
    shapes = [np.shape(x) for x in found if x is not error]
    assert shapes == [(2, 3), (2, 3), (1, 5)]


@pytest.mark.parametrize("workers", WORKERS)
def test_sizes_that_the_plan_knows_are_not_padded_to_the_boundary(workers: int) -> None:
    def rows() -> Any:
        for n in (1, 2, 3):
            yield np.ones((n, 2)), np.ones(4), n

    spec = (ArraySpec((None, 2), float), ArraySpec((4,), float), ArraySpec((), "int64"))
    ds = Dataset.from_generator(rows, output_signature=spec).bucket_by_sequence_length(
        lambda *row: row[2], [9], [3, 3], pad_to_bucket_boundary=True
    )
    with ds.iterator(workers=workers) as it:
        ((x, y, n),) = it

    assert (x.shape, y.shape, n.tolist()) == ((3, 8, 2), (3, 4), [1, 2, 3])
    unknown = Dataset.range(1, 4).map(lambda n: (np.ones((int(n), 2)), np.ones(4), n))
    given = unknown.bucket_by_sequence_length(
        lambda *row: row[2],
        [9],
        [3, 3],
        padded_shapes=([None, 2], [4], []),
        pad_to_bucket_boundary=True,
    )
    with given.iterator(workers=workers) as it:
        ((x, y, n),) = it
    assert (x.shape, y.shape, n.tolist()) == ((3, 8, 2), (3, 4), [1, 2, 3])


@pytest.mark.parametrize("workers", WORKERS)
def test_without_padding_lengths_must_be_equal(workers: int) -> None:
    """The recorded case ``bbsl_no_padding_mismatch_err``."""
    ds = Dataset.from_tensor_slices([1, 2]).map(ones)
    found = outcomes(ds.bucket_by_sequence_length(len, [3], [2, 2], no_padding=True), workers)

    assert [type(x) for x in found] == [SpecError]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_length_that_is_none_is_an_error_at_its_place(workers: int) -> None:
    ds = Dataset.range(3).bucket_by_sequence_length(lambda _: 1.5, [3], [2, 2])
    found = outcomes(ds, workers)

    assert [type(x) for x in found] == [SpecError] * 3
    assert "element_length_func must return an integer" in str(found[0])


def image(x: Any) -> Any:
    return np.full(100_000, x, np.uint8)


def test_a_group_holds_its_values_while_it_is_read_in_several_tasks() -> None:
    """Its elements lie in slots that are taken back after the first task."""
    ds = (
        Dataset.range(200)
        .map(image)
        .group_by_window(lambda a: int(a[0]) % 3, lambda _, w: w.map(lambda a: a[0]), 40)
    )
    ds = ds.with_options(Options(memory_budget=8_000_000))

    assert outcomes(ds, 2) == outcomes(ds, 0)


# -- arguments, counts and states ------------------------------------------------------------------


def key(x: Any) -> int:
    return int(x) % 2


def group(_: Any, elements: Any) -> Any:
    return elements


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ((key, group), ValueError, "one of window_size and window_size_func"),
        ((key, group, 2, key), ValueError, "one of window_size and window_size_func"),
        ((key, group, 0), ValueError, "window_size must be at least 1, not 0"),
        ((key, group, 1.0), TypeError, "window_size must be an int"),
        ((1, group, 2), TypeError, "key_func must be callable"),
        ((key, 1, 2), TypeError, "reduce_func must be callable"),
        ((key, group, None, 3), TypeError, "window_size_func must be callable"),
    ],
)
def test_arguments(arguments: tuple[Any, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).group_by_window(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ((len, [3], [2]), ValueError, "one more item than bucket_boundaries, not 1 and 1"),
        ((len, [3, 3], [2, 2, 2]), ValueError, "bucket_boundaries must ascend, not \\[3, 3\\]"),
        ((len, [3], [2, 0]), ValueError, "bucket_batch_sizes must be at least 1, not 0"),
        ((len, [3.0], [2, 2]), TypeError, "bucket_boundaries must be an int"),
        ((1, [3], [2, 2]), TypeError, "element_length_func must be callable"),
        ((len, [], [2], None, None, True), ValueError, "pad_to_bucket_boundary needs"),
    ],
)
def test_bucket_arguments(arguments: tuple[Any, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).bucket_by_sequence_length(*arguments)


def test_cardinality() -> None:
    assert Dataset.range(4).group_by_window(key, group, 2).cardinality() == td.UNKNOWN_CARDINALITY


def test_other_buckets_are_another_plan() -> None:
    one = Dataset.range(4).bucket_by_sequence_length(int, [2], [2, 2], no_padding=True)
    other = Dataset.range(4).bucket_by_sequence_length(int, [3], [2, 2], no_padding=True)
    state = iter(one).state_dict()

    with pytest.raises(td.errors.IncompatibleCheckpointError, match="boundaries"):
        iter(other).load_state_dict(state)
