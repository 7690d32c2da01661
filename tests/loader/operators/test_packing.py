"""pack: what stands in which row."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tundish import Dataset, InputContext
from tundish.errors import CheckpointError, SpecError


def test_a_zero_has_its_sign() -> None:
    for pad in (0.0, -0.0, 0.0):
        (row,) = Dataset.from_tensors(np.ones(1)).pack(2, pad_value=pad)
        assert np.signbit(row["tokens"] if isinstance(row, dict) else row)[-1] == np.signbit(pad)


class Sequences:
    """Sequences of given lengths; the tokens of the k-th are k, from 1."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, k: int) -> Any:
        return np.full(self.lengths[k], k + 1, np.int32)


def packed(lengths: tuple[int, ...], length: int, **how: Any) -> list[list[int]]:
    ds = Dataset.from_source(Sequences(*lengths)).pack(length, **how)
    return [row["tokens"].tolist() for row in ds]


def test_concat_goes_on_in_the_next_row() -> None:
    (first, last) = Dataset.from_source(Sequences(3, 0, 4)).pack(4, pad_value=9)

    assert first["tokens"].tolist() == [1, 1, 1, 3]
    assert last["tokens"].tolist() == [3, 3, 3, 9]
    assert (first["segment_ids"].tolist(), last["segment_ids"].tolist()) == (
        [1, 1, 1, 2],
        [1, 1, 1, 0],
    )
    assert (first["positions"].tolist(), last["positions"].tolist()) == ([0, 1, 2, 0], [1, 2, 3, 0])
    assert {x.dtype for x in (first["segment_ids"], last["positions"])} == {np.dtype(np.int32)}
    assert first["tokens"].dtype == np.int32


def test_concat_drops_the_remainder() -> None:
    assert packed((3, 4), 4, drop_remainder=True) == [[1, 1, 1, 2]]
    assert packed((4, 4), 4, drop_remainder=True) == [[1] * 4, [2] * 4]
    assert packed((), 4) == []


def test_a_separator_belongs_to_its_sequence() -> None:
    rows = list(Dataset.from_source(Sequences(3, 0, 2)).pack(4, separator=7))

    assert [row["tokens"].tolist() for row in rows] == [[1, 1, 1, 7], [3, 3, 7, 0]]
    assert rows[1]["segment_ids"].tolist() == [1, 1, 1, 0]
    assert rows[1]["positions"].tolist() == [0, 1, 2, 0]
    assert packed((4, 1), 4, separator=7) == [[1, 1, 1, 1], [7, 2, 7, 0]]


def test_first_fit() -> None:
    # Into the first row with room, not the best; a full row comes at once.
    assert packed((5, 4, 1, 2, 3), 8, method="first_fit") == [
        [1, 1, 1, 1, 1, 3, 4, 4],
        [2, 2, 2, 2, 5, 5, 5, 0],
    ]


def test_first_fit_delivers_the_fullest_the_oldest_of_several() -> None:
    assert packed((5, 6, 6, 5, 1), 8, method="first_fit", open_rows=2) == [
        [2] * 6 + [0, 0],
        [3] * 6 + [0, 0],
        [1] * 5 + [5, 0, 0],
        [4] * 5 + [0, 0, 0],
    ]
    assert packed((6, 6, 6), 8, method="first_fit", open_rows=2)[0][0] == 1


@pytest.mark.parametrize(
    ("too_long", "expected"),
    [
        (
            "split",
            [
                [2, 2, 2, 2],
                [2, 2, 2, 2],
                [1, 1, 2, 3],
            ],
        ),
        ("truncate", [[2, 2, 2, 2], [1, 1, 3, 0]]),
    ],
)
def test_first_fit_of_long_sequences(too_long: str, expected: Any) -> None:
    assert packed((2, 9, 1), 4, method="first_fit", too_long=too_long) == expected


def test_the_rest_of_a_long_sequence_keeps_counting() -> None:
    ds = Dataset.from_source(Sequences(2, 9)).pack(4, method="first_fit")

    assert [row["positions"].tolist() for row in ds] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 8, 0]]


def test_an_error_costs_no_other_sequence() -> None:
    it = iter(Dataset.from_source(Sequences(2, 9, 3)).pack(4, method="first_fit", too_long="error"))
    with pytest.raises(SpecError, match="the sequence has 9 tokens, and a row has room for 4"):
        next(it)

    assert [row["tokens"].tolist() for row in it] == [[1, 1, 0, 0], [3, 3, 3, 0]]


@pytest.mark.parametrize(
    ("element", "told"),
    [
        (3, "needs 1-D arrays of numbers, and the element is int64"),
        ([[1, 2]], r"needs 1-D arrays of numbers, and the element is int64 \(1, 2\)"),
        (["a"], "needs 1-D arrays of numbers, and the element is object"),
        ({"a": [1], "tokens": [1, 2]}, r"needs arrays of one length, not \[1, 2\]"),
        ({"a": {"b": [1]}}, "needs a 1-D array or a dict of them"),
        (([1], [2]), "needs a 1-D array or a dict of them"),
        ({"positions": [1]}, r"needs other keys than \['positions', 'segment_ids'\]"),
        ({"a": np.zeros(1, np.uint8)}, "pad_value -1 does not fit uint8, the dtype of 'a'"),
        ({"b": [1]}, "separator names no token for 'b'"),
    ],
)
def test_what_is_no_sequence(element: Any, told: str) -> None:
    ds = Dataset.from_tensors(element).pack(4, separator={"a": 1, "tokens": 1}, pad_value=-1)

    with pytest.raises(SpecError, match=told):
        next(iter(ds))


def test_other_kinds_than_the_first() -> None:
    ds = Dataset.range(3).map(lambda n: np.ones(1, np.float64 if n == 1 else np.int64))
    it = iter(ds.pack(4))

    with pytest.raises(SpecError, match="has float64, the first one of the pass int64"):
        next(it)
    assert next(it)["tokens"].tolist() == [1, 1, 0, 0]


def test_names() -> None:
    ds = Dataset.from_source(Sequences(2))
    (row,) = ds.pack(3, tokens="ids", segment_ids="segments", positions=None)

    assert list(row) == ["ids", "segments"]


def test_a_padding_for_each_key() -> None:
    ds = Dataset.from_tensors({"ids": [1, 2], "labels": [1, 2]})
    (row,) = ds.pack(4, pad_value={"labels": -100}, separator={"ids": 3, "labels": 4})

    assert (row["ids"].tolist(), row["labels"].tolist()) == ([1, 2, 3, 0], [1, 2, 4, -100])


def test_open_rows_hold_no_shared_memory() -> None:
    def document(n: Any) -> Any:
        return np.full(300_000 if n else 3, n, np.int64)

    ds = Dataset.range(12).map(document).pack(250_000, method="first_fit", open_rows=64)
    with ds.iterator(workers=1) as it:
        rows = [row["tokens"] for row in it]

    assert sum(int((row == 5).sum()) for row in rows) == 300_000


def test_rows_held_by_one_process_are_not_restored_by_another() -> None:
    def share(index: int) -> Any:
        ds = Dataset.from_source(Sequences(*[2] * 12)).shard_by_process(InputContext(2, index))
        return iter(ds.pack(5))

    it = share(0)
    next(it)
    with pytest.raises(CheckpointError, match="saved by process"):
        share(1).load_state_dict(it.state_dict())


def process_of(k: Any) -> Any:
    return np.full(3, os.getpid())


def test_rows_are_spliced_here_and_functions_run_in_workers() -> None:
    """After a restore within a row, too: its sequences are computed again."""
    ds = Dataset.range(40).map(process_of).pack(5)
    with ds.iterator(workers=2) as it:
        rows = [next(it) for _ in range(4)]
        state = it.state_dict()
        rows += list(it)
        stage = next(stage for stage in it.stats.stages if stage.name == "pack#2")
    with ds.iterator(workers=2) as it:
        it.load_state_dict(state)
        rows += list(it)

    assert (stage.tasks, stage.elements) == (0, 24)
    assert os.getpid() not in np.unique([row["tokens"] for row in rows])
