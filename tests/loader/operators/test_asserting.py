"""ignore_errors, assert_cardinality and pad_to_cardinality."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loader.operators.test_scanning import outcomes

import tundish as td
from tundish.errors import CardinalityError, SharedMemoryError, SpecError

NO_STR: Any = 1
ROWS = td.Dataset.from_tensor_slices({"a": [1, 2]})


@pytest.mark.parametrize("count", [-2, -3])
def test_a_number_of_elements_is_at_least_0_or_infinite(count: int) -> None:
    with pytest.raises(
        ValueError, match=f"expected_cardinality must be at least 0, .* not {count}"
    ):
        td.Dataset.range(5).assert_cardinality(count)


def test_a_number_of_elements_is_an_int() -> None:
    with pytest.raises(TypeError, match="expected_cardinality must be an int"):
        td.Dataset.range(5).assert_cardinality("5")  # type: ignore[arg-type]  # on purpose


def test_what_was_said_is_the_cardinality() -> None:
    ds = td.Dataset.range(10).filter(lambda x: x > 4)

    assert len(ds.assert_cardinality(5)) == 5
    assert len(ds.assert_cardinality(7)) == 7
    assert ds.repeat().assert_cardinality(-1).cardinality() == td.INFINITE_CARDINALITY
    assert ds.assert_cardinality(5).ignore_errors().cardinality() == td.UNKNOWN_CARDINALITY


def test_random_access_stays_where_the_number_is_right() -> None:
    assert int(td.Dataset.range(5).assert_cardinality(5)[3]) == 3
    with pytest.raises(TypeError, match="no random access"):
        td.Dataset.range(5).assert_cardinality(4)[3]


@pytest.mark.parametrize(
    ("build", "error", "told"),
    [
        (lambda: ROWS.pad_to_cardinality(1), SpecError, "at least the number of elements, 2"),
        (lambda: ROWS.repeat().pad_to_cardinality(5), SpecError, "but it is infinite"),
        (lambda: ROWS.filter(bool).pad_to_cardinality(5), SpecError, "but it is not known"),
        (lambda: ROWS.pad_to_cardinality(3, "a"), SpecError, "mask_key 'a' is a key"),
        (lambda: ROWS.pad_to_cardinality(3, NO_STR), TypeError, "mask_key must be a str"),
        (lambda: ROWS.pad_to_cardinality(-1), ValueError, "cardinality must be at least 0"),
        (lambda: td.Dataset.range(2).pad_to_cardinality(3), SpecError, "elements that are dicts"),
        (lambda: ROWS.take(0).pad_to_cardinality(3), SpecError, "the dataset is empty"),
        (lambda: ROWS.map(lambda _: 1 // 0).pad_to_cardinality(3), SpecError, "ZeroDivisionError"),
        (
            lambda: ROWS.map(lambda _: {"o": object()}).pad_to_cardinality(3),
            SpecError,
            "which has none",
        ),
    ],
)
def test_padding_names_what_is_wrong(build: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        build()


def test_a_padded_dataset_has_random_access() -> None:
    ds = ROWS.pad_to_cardinality(4)

    assert len(ds) == 4
    assert ds[3] == {"a": 0, "valid": np.False_}
    assert ds[1] == {"a": 2, "valid": np.True_}


WORKERS = pytest.mark.parametrize("workers", [0, 2])
HALVES = td.Dataset.from_tensor_slices([1, 2, 0, 4, 8, 1]).map(lambda x: 8 // int(x))


@WORKERS
def test_what_failed_is_left_out(workers: int) -> None:
    assert outcomes(HALVES.ignore_errors(), workers) == [8, 4, 2, 1, 8]


@WORKERS
def test_behind_a_batch_the_batch_is_left_out(workers: int) -> None:
    found = outcomes(HALVES.batch(2).ignore_errors(), workers)

    assert [x.tolist() for x in found] == [[8, 4], [2, 1], [8]]


@WORKERS
def test_a_warning_for_each(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tundish"):
        outcomes(HALVES.ignore_errors(), workers)
        assert not caplog.records
        outcomes(HALVES.ignore_errors(log_warning=True), workers)

    (record,) = caplog.records
    assert record.name == "tundish"
    assert "ignore_errors#2 left out element 2: ZeroDivisionError" in record.getMessage()


def test_an_element_that_memory_has_no_room_for_is_not_left_out() -> None:
    ds = td.Dataset.range(3).map(lambda i: np.zeros(10**6 if i == 1 else 1)).ignore_errors()
    found = outcomes(ds.with_options(td.Options(memory_budget=1 << 20)), 1)

    assert [x if x is SharedMemoryError else len(x) for x in found] == [1, SharedMemoryError, 1]


def test_a_record_that_memory_has_no_room_for_is_not_left_out(tmp_path: Path) -> None:
    with td.io.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write(b"a")
        writer.write(bytes(3_000_000))
    ds = td.TFRecordDataset(str(tmp_path / "a.tfrecord"), index=False, on_error="skip").map(len)
    found = outcomes(ds.with_options(td.Options(memory_budget=1 << 20)), 1)

    assert found == [1, SharedMemoryError]


@WORKERS
def test_what_was_left_out_is_counted(workers: int) -> None:
    with HALVES.repeat(2).ignore_errors().map(abs).iterator(workers=workers) as it:
        list(it)
        position = it.state_dict()["position"]

    assert position["ignored"] == {"counts": {"ignore_errors#3 ignored": 2}}


@WORKERS
@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (3, [0, 2, 4]),
        (4, [0, 2, 4, CardinalityError]),
        (2, [0, 2, CardinalityError]),
        (0, [CardinalityError]),
        (-1, [0, 2, 4, CardinalityError]),
    ],
)
def test_an_error_where_there_are_not_as_many(
    expected: int, found: list[Any], workers: int
) -> None:
    ds = td.Dataset.range(5).filter(lambda x: x % 2 == 0).assert_cardinality(expected)

    assert outcomes(ds, workers) == found


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        (7, r"7 element\(s\) were expected; there are only 5"),
        (2, r"2 element\(s\) were expected; there are at least 3"),
        (-1, "infinite dataset was expected; it ended after 5"),
    ],
)
def test_the_error_says_both_numbers(expected: int, told: str) -> None:
    with pytest.raises(CardinalityError, match=told):
        list(td.Dataset.range(5).assert_cardinality(expected))


def test_random_access_is_held_to_it_too() -> None:
    assert outcomes(td.Dataset.range(3).assert_cardinality(5).enumerate()) == [
        (0, 0),
        (1, 1),
        (2, 2),
        CardinalityError,
    ]


def test_zeros_of_every_kind() -> None:
    kinds = {
        "f": [1.5],
        "s": ["a"],
        "b": [b"a"],
        "t": [True],
        "w": [["a", "b"]],
        "i": [np.ones((2, 2), "u1")],
    }
    ds = td.Dataset.from_tensor_slices(kinds).pad_to_cardinality(2, "real")
    real, zero = ds

    assert (real["real"], zero["real"]) == (True, False)
    assert list(real) == list(zero) == [*kinds, "real"]
    assert (zero["f"], zero["s"], zero["b"], zero["t"]) == (0.0, "", b"", False)
    assert zero["w"].tolist() == ["", ""]
    assert zero["i"].dtype == np.uint8
    assert zero["i"].shape == (2, 2)


@WORKERS
def test_padding_lets_batches_be_whole(workers: int) -> None:
    ds = td.Dataset.from_tensor_slices({"x": np.arange(5)}).pad_to_cardinality(6).batch(3)
    with ds.iterator(workers=workers) as it:
        found = [(b["x"].tolist(), b["valid"].tolist()) for b in it]

    assert found == [([0, 1, 2], [True] * 3), ([3, 4, 0], [True, True, False])]


def test_a_single_element() -> None:
    assert td.Dataset.range(5).batch(5).get_single_element().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(CardinalityError, match=r"1 element\(s\) were expected; there are only 0"):
        td.Dataset.range(0).get_single_element()
    with pytest.raises(
        CardinalityError, match=r"1 element\(s\) were expected; there are at least 2"
    ):
        td.Dataset.range(3).get_single_element()
    with pytest.raises(ZeroDivisionError):
        HALVES.skip(2).take(1).get_single_element()


def test_optionals_of_an_iterator() -> None:
    with iter(HALVES.skip(1).take(2)) as it:
        there = it.get_next_as_optional()
        with pytest.raises(ZeroDivisionError):
            it.get_next_as_optional()
        gone = it.get_next_as_optional()

    assert there.has_value()
    assert there.get_value() == 4
    assert there.element_spec == gone.element_spec == td.ArraySpec((), np.int64)
    assert not gone.has_value()
    with pytest.raises(ValueError, match="has no value"):
        gone.get_value()


def test_optionals_by_hand() -> None:
    spec = td.ArraySpec((2,), np.float32)

    assert td.Optional.from_value({"a": 1}).get_value() == {"a": np.int64(1)}
    assert td.Optional.empty(spec).element_spec is spec
    assert not td.Optional.empty(spec).has_value()
    assert td.IteratorSpec(spec) == td.IteratorSpec(td.ArraySpec((2,), "float32"))


def test_what_was_ignored_is_in_the_stats_of_an_iterator() -> None:
    ds = td.Dataset.range(3).map(lambda x: 1 // int(x)).ignore_errors()

    with ds.iterator(workers=0) as it:
        assert len(list(it)) == 2
        assert it.stats.skipped == {"ignore_errors#2": 1}
