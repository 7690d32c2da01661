"""group_by_window and bucket_by_sequence_length: their arguments, and what the plan knows."""

from __future__ import annotations

from typing import Any

import pytest

import tundish as td
from tundish import Dataset


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
