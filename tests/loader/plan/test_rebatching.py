"""What rebatch, map_batches and pack refuse when the pipeline is built, and what they announce."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import AUTOTUNE, UNKNOWN_CARDINALITY, Dataset
from tundish.errors import IncompatibleCheckpointError
from tundish.testing.functions import Tag


def echo(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    ("size", "kind", "told"),
    [
        (0, ValueError, "batch_size must be at least 1, not 0"),
        (-1, ValueError, "batch_size must be at least 1, not -1"),
        ([2, 0], ValueError, r"batch_size\[1\] must be at least 1, not 0"),
        ([], ValueError, "batch_size must hold at least one size"),
        (2.0, TypeError, r"batch_size must be an int, not float \(2.0\)"),
        ([2, "3"], TypeError, r"batch_size\[1\] must be an int, not str"),
        (True, TypeError, "batch_size must be an int, not bool"),
    ],
)
def test_rebatch_refuses_sizes(size: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        Dataset.range(4).batch(2).rebatch(size)


def test_rebatch_takes_any_sequence_of_ints() -> None:
    ds = Dataset.range(4).batch(2)
    sizes: list[tuple[Any, list[int]]] = [(np.array([1, 3]), [1, 3]), ((np.int64(3), 1), [3, 1])]

    for given, expected in sizes:
        assert [len(x) for x in ds.rebatch(given)] == expected


def test_map_batches_refuses() -> None:
    ds = Dataset.range(4)

    with pytest.raises(TypeError, match="map_func must be callable, not int"):
        ds.map_batches(3, 2)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        ds.map_batches(echo, 0)
    with pytest.raises(
        ValueError, match="num_parallel_calls must be at least 1 and at most 4096, or AUTOTUNE"
    ):
        ds.map_batches(echo, 2, 0)
    with pytest.raises(ValueError, match="on_error must be one of"):
        ds.map_batches(echo, 2, on_error="ignore")
    ds.map_batches(echo, 2, AUTOTUNE)


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ({"length": 0}, ValueError, "length must be at least 1, not 0"),
        ({"length": "8"}, TypeError, "length must be an int, not str"),
        ({"method": "best_fit"}, ValueError, "method must be one of concat, first_fit, not 'best"),
        ({"too_long": "split"}, ValueError, "too_long is of method='first_fit', not of 'concat'"),
        ({"open_rows": 3}, ValueError, "open_rows is of method='first_fit', not of 'concat': 3"),
        ({"method": "first_fit", "open_rows": 0}, ValueError, "open_rows must be at least 1"),
        ({"method": "first_fit", "too_long": "cut"}, ValueError, "too_long must be one of split"),
        ({"method": "first_fit", "drop_remainder": True}, ValueError, "is of method='concat'"),
        ({"separator": "</s>"}, TypeError, "separator must be a number, not str"),
        ({"separator": 1j}, TypeError, "separator must be a number, not complex"),
        ({"pad_value": {"labels": None}}, TypeError, r"pad_value\['labels'\] must be a number"),
        ({"tokens": None}, TypeError, "tokens must be a str, not NoneType"),
        ({"positions": 1}, TypeError, "positions must be a str, not int"),
        ({"positions": "tokens"}, ValueError, "must have different names"),
    ],
)
def test_pack_refuses(arguments: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        Dataset.range(4).batch(2).pack(**{"length": 8, **arguments})


def test_what_is_announced() -> None:
    ds = Dataset.range(6).batch(3)

    assert ds.rebatch(2).cardinality() == UNKNOWN_CARDINALITY
    assert ds.pack(2).cardinality() == UNKNOWN_CARDINALITY
    assert ds.map_batches(echo, 2).cardinality() == UNKNOWN_CARDINALITY


def test_a_plan_shows_the_users_function() -> None:
    assert "map(function=echo" in repr(Dataset.range(6).map_batches(echo, 2))
    one, other = (Dataset.range(6).map_batches(f, 2) for f in (echo, Tag(1)))
    with iter(one) as ours, iter(other) as theirs:
        state = ours.state_dict()
        with pytest.raises(IncompatibleCheckpointError, match="echo in the state"):
            theirs.load_state_dict(state)


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        ([1, 2], [1, 2]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([[1, 2], []], [[1, 2], []]),
        ([["a"], []], [["a"], []]),
        ([[1], [0.5, 2]], [[1.0], [0.5, 2.0]]),
    ],
)
def test_lists_of_rows_are_arrays_of_one_dtype(result: Any, rows: Any) -> None:
    found = list(Dataset.range(2).map_batches(lambda _: result, 2))

    assert [row.tolist() for row in found] == rows
    assert len({row.dtype for row in found}) == 1


def test_arrays_in_a_list_keep_their_dtypes() -> None:
    result = [np.zeros(2, np.int16), np.ones(2, np.float32)]
    found = Dataset.range(2).map_batches(lambda _: result, 2)

    assert [row.dtype for row in found] == [np.int16, np.float32]
