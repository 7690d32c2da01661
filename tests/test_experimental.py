"""The older spellings are the methods of the same meaning; what is to come says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import Dataset, experimental

EXP = experimental
SEVEN = Dataset.range(7)


def parity(x: int) -> int:
    return x % 2


def double(x: int) -> int:
    return x * 2


def small(x: int) -> bool:
    return x < 3


def times(x: int) -> Dataset:
    return Dataset.range(x)


def several(x: int) -> np.ndarray:
    return np.full(x + 1, x)


def batch_of(key: int, group: Dataset) -> Dataset:
    return group.batch(2)


def add(state: Any, x: Any) -> Any:
    return state + x, state


def fold(state: Any, x: Any) -> Any:
    return state + x


def nothing(key: Any) -> Any:
    return np.int64(0)


def same(state: Any) -> Any:
    return state


REDUCER = EXP.Reducer(nothing, fold, same)
UNEVEN = SEVEN.map(several)
PAIRS = [
    (EXP.assert_cardinality(7), SEVEN.assert_cardinality(7)),
    (EXP.dense_to_ragged_batch(2), SEVEN.ragged_batch(2)),
    (EXP.enumerate_dataset(3), SEVEN.enumerate(3)),
    (EXP.group_by_reducer(parity, REDUCER), SEVEN.group_by_reducer(parity, REDUCER)),
    (EXP.group_by_window(parity, batch_of, 2), SEVEN.group_by_window(parity, batch_of, 2)),
    (EXP.ignore_errors(), SEVEN.ignore_errors()),
    (EXP.map_and_batch(double, 2), SEVEN.map(double).batch(2)),
    (EXP.map_and_batch(double, 2, drop_remainder=True), SEVEN.map(double).batch(2, True)),
    (EXP.rejection_resample(parity, [0.5, 0.5], seed=1), SEVEN.rejection_resample(parity, [0.5, 0.5], seed=1)),
    (EXP.scan(0, add), SEVEN.scan(0, add)),
    (EXP.shuffle_and_repeat(3, 2, seed=5), SEVEN.shuffle(3, 5).repeat(2)),
    (EXP.take_while(small), SEVEN.take_while(small)),
    (EXP.unique(), SEVEN.unique()),
]  # fmt: skip


@pytest.mark.parametrize(("spelt", "method"), PAIRS)
def test_functions_for_apply_are_the_methods(
    spelt: Callable[[Dataset], Dataset], method: Dataset
) -> None:
    made = SEVEN.apply(spelt)

    assert repr(made) == repr(method)
    np.testing.assert_equal(list(made), list(method))


def test_batches_of_uneven_elements() -> None:
    bucketed = EXP.bucket_by_sequence_length(len, [3], [2, 2])

    assert repr(UNEVEN.apply(EXP.dense_to_sparse_batch(2, [9]))) == repr(
        UNEVEN.sparse_batch(2, [9])
    )
    assert [b.tolist() for b in UNEVEN.apply(bucketed)] == [
        b.tolist() for b in UNEVEN.bucket_by_sequence_length(len, [3], [2, 2])
    ]
    assert list(SEVEN.batch(3).apply(EXP.unbatch())) == list(SEVEN)


def test_padding_to_a_cardinality() -> None:
    rows = Dataset.from_tensor_slices({"a": [1, 2]})

    assert list(rows.apply(EXP.pad_to_cardinality(3))) == list(rows.pad_to_cardinality(3))


def test_parallel_interleave_is_in_interleaves_order() -> None:
    spelt = EXP.parallel_interleave(times, cycle_length=2, block_length=2)
    free = EXP.parallel_interleave(times, cycle_length=2, sloppy=True)

    with SEVEN.apply(spelt).iterator(workers=0) as it:
        assert list(it) == list(SEVEN.interleave(times, 2, 2))
    with SEVEN.apply(free).iterator(workers=0) as it:
        assert sorted(it) == sorted(SEVEN.interleave(times, 2))


def test_functions_of_datasets() -> None:
    two = [Dataset.range(2), Dataset.range(5, 7)]

    assert list(EXP.Counter(3, 2).take(2)) == [3, 5]
    assert list(EXP.RandomDataset(4).take(2)) == list(Dataset.random(4).take(2))
    assert EXP.at(SEVEN, 2) == 2
    assert EXP.cardinality(SEVEN) == 7
    assert EXP.cardinality(SEVEN.repeat()) == EXP.INFINITE_CARDINALITY == -1
    assert EXP.cardinality(SEVEN.filter(small)) == EXP.UNKNOWN_CARDINALITY == -2
    assert EXP.AUTOTUNE == td.AUTOTUNE == -1
    assert list(EXP.from_list([1, 2])) == [1, 2]
    assert list(EXP.sample_from_datasets(two, seed=4)) == list(
        Dataset.sample_from_datasets(two, seed=4)
    )
    assert EXP.get_single_element(SEVEN.batch(7)).tolist() == list(range(7))
    assert EXP.get_structure(SEVEN) == EXP.get_structure(iter(SEVEN)) == SEVEN.element_spec


def test_choosing_goes_on_with_the_others_as_it_did() -> None:
    two = [Dataset.range(1), Dataset.range(5, 7)]
    choice = Dataset.from_tensor_slices(np.array([0, 0, 1]))

    assert list(EXP.choose_from_datasets(two, choice)) == [0, 5]
    assert list(Dataset.choose_from_datasets(two, choice)) == [0]


def test_a_variant_is_the_plan_in_bytes() -> None:
    variant = EXP.to_variant(SEVEN.map(double).batch(3))

    assert [b.tolist() for b in EXP.from_variant(variant)] == [[0, 2, 4], [6, 8, 10], [12]]
    with pytest.raises(ValueError, match=r"must be what Dataset\.to_bytes gave, not b'abc'"):
        Dataset.from_bytes(b"abc")
    with pytest.raises(TypeError, match="data must be bytes, not str"):
        Dataset.from_bytes("abc")  # type: ignore[arg-type]  # that is refused


def test_two_measures_of_parallelism_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="they were 2 and 3"):
        EXP.map_and_batch(double, 2, num_parallel_batches=3, num_parallel_calls=2)


@pytest.mark.parametrize("name", sorted(EXP._LATER))
def test_what_is_to_come_says_so(name: str) -> None:
    coming = getattr(EXP, name)

    with pytest.raises(NotImplementedError, match=f"experimental.{name} is still to come; "):
        coming("path")
    with pytest.raises(NotImplementedError, match="is still to come"):
        _ = coming.distribute
    assert name in dir(EXP)


@pytest.mark.parametrize("name", sorted(EXP._NEVER))
def test_what_has_no_counterpart_says_what_to_use(name: str) -> None:
    absent = getattr(EXP, name)

    with pytest.raises(NotImplementedError, match=f"experimental.{name} has no counterpart here; "):
        absent(SEVEN)
    assert name in dir(EXP)


TENSORFLOW = """AUTOTUNE AutoShardPolicy AutotuneAlgorithm AutotuneOptions Counter CsvDataset
    DatasetInitializer DistributeOptions ExternalStatePolicy INFINITE_CARDINALITY
    OptimizationOptions Optional RandomDataset Reducer SHARD_HINT ServiceOptions SqlDataset
    TFRecordWriter ThreadingOptions UNKNOWN_CARDINALITY assert_cardinality at
    bucket_by_sequence_length cardinality choose_from_datasets copy_to_device
    dense_to_ragged_batch dense_to_sparse_batch distributed_save enable_debug_mode
    enumerate_dataset from_list from_variant get_model_proto get_next_as_optional
    get_single_element get_structure group_by_reducer group_by_window ignore_errors
    index_table_from_dataset load make_batched_features_dataset make_csv_dataset
    make_saveable_from_iterator map_and_batch pad_to_cardinality parallel_interleave
    parse_example_dataset prefetch_to_device rejection_resample sample_from_datasets save scan
    service shuffle_and_repeat snapshot table_from_dataset take_while to_variant unbatch unique"""


@pytest.mark.parametrize("name", TENSORFLOW.split())
def test_every_name_of_tensorflow_is_there(name: str) -> None:
    """Every name of 2.21 is there; one that is not made says what to use instead."""
    assert hasattr(EXP, name)
    assert (name in EXP.__all__) is not (name in {*EXP._LATER, *EXP._NEVER})


def test_debug_mode_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_WORKERS", "1")  # so that it is put back
    EXP.enable_debug_mode()

    with iter(SEVEN.map(double, num_parallel_calls=2)) as it:
        assert it.worker_pids() == []


def test_misspelt_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unbach'"):
        _ = EXP.unbach


def test_every_name_is_documented() -> None:
    assert all(hasattr(EXP, name) for name in EXP.__all__)
    assert not [name for name in EXP.__all__ if callable(getattr(EXP, name)) and not inspect.getdoc(getattr(EXP, name))]  # fmt: skip
