"""Sequence examples: a context, and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import io
from tundish.errors import SpecError

CONTEXT = {"id": io.FixedLenFeature([], int), "tags": io.VarLenFeature(bytes)}
STEPS = {
    "x": io.FixedLenSequenceFeature([2], float),
    "words": io.VarLenFeature(bytes),
    "n": io.RaggedFeature(int),
}


def record(k: int, steps: int) -> bytes:
    return io.encode_sequence_example(
        {"id": k, "tags": ["t"] * k},
        {
            "x": [[j, k + 0.5] for j in range(steps)],
            "words": [["w"] * j for j in range(steps)],
            "n": [list(range(j + 1)) for j in range(steps)],
        },
    )


def test_a_batch() -> None:
    context, lists, lengths = io.parse_sequence_example(
        [record(1, 2), record(2, 1), record(0, 0)], CONTEXT, STEPS
    )

    assert context["id"].tolist() == [1, 2, 0]
    assert context["tags"].dense_shape.tolist() == [3, 2]
    assert lists["x"].tolist() == [[[0, 1.5], [1, 1.5]], [[0, 2.5], [0, 0]], [[0, 0], [0, 0]]]
    assert lists["x"].dtype == np.float32
    assert lists["words"].indices.tolist() == [[0, 1, 0]]
    assert lists["words"].dense_shape.tolist() == [3, 2, 1]
    assert lists["n"].to_list() == [[[0], [0, 1]], [[0]], []]
    assert lengths["x"].tolist() == [2, 1, 0]
    assert list(lengths) == ["x"]


def test_one() -> None:
    context, lists = io.parse_single_sequence_example(record(1, 2), CONTEXT, STEPS)

    assert context["id"] == 1
    assert lists["x"].tolist() == [[0, 1.5], [1, 1.5]]
    assert lists["words"].indices.tolist() == [[1, 0]]
    assert lists["n"].to_list() == [[0], [0, 1]]
    assert io.parse_sequence_example(record(1, 2), CONTEXT, STEPS)[2] == {"x": 2}


def test_an_empty_batch() -> None:
    context, lists, lengths = io.parse_sequence_example([], CONTEXT, STEPS)

    assert context["id"].shape == (0,)
    assert lists["x"].shape == (0, 0, 2)
    assert lengths["x"].shape == (0,)


def test_rows_within_steps() -> None:
    wanted = {"v": io.RaggedFeature(int, partitions=[io.RaggedFeature.RowLengths("p")])}
    given = [
        io.encode_sequence_example(None, {"v": [[1, 2, 3], [4]], "p": [[1, 2], [1]]}),
        io.encode_sequence_example(None, {"v": [[]], "p": [[0]]}),
    ]

    assert io.parse_sequence_example(given, None, wanted)[1]["v"].to_list() == [
        [[[1], [2, 3]], [[4]]],
        [[[]]],
    ]
    given[1] = io.encode_sequence_example(None, {"v": [[]], "p": []})
    with pytest.raises(SpecError, match="example 1: feature 'v' has 1 steps, 'p' has 0"):
        io.parse_sequence_example(given, None, wanted)


@pytest.mark.parametrize(
    ("context", "lists", "message"),
    [
        ({}, {}, r"example 1 \('b'\): feature 'id' \(int64\) is required"),
        ({"id": 1.5}, {}, "feature 'id' is of float32, not of int64"),
        ({"id": 1, "tags": 1}, {}, "feature 'tags' is of int64, not of bytes"),
        ({"id": []}, {}, "feature 'id' has 0 values"),
        ({"id": 1}, {"words": []}, "feature 'x' is required, but missing; with allow_missing=True"),
        (
            {"id": 1},
            {"x": [[1.0, 2.0], [1.0]]},
            r"feature 'x' has 1 values of float32 in step 1; its shape \(2,\)",
        ),
        ({"id": 1}, {"x": [[1.0, 2.0], []]}, "feature 'x' has 0 values of float32 in step 1"),
        ({"id": 1}, {"x": [[1, 2]]}, "feature 'x' is of int64"),
    ],
)
def test_errors_say_what_and_where(context: Any, lists: Any, message: str) -> None:
    bad = io.encode_sequence_example(context, lists)
    with pytest.raises(SpecError, match=message) as caught:
        io.parse_sequence_example([record(1, 1), bad], CONTEXT, STEPS, example_names=["a", "b"])

    assert str(caught.value).startswith("example 1 ('b'): ")


def test_what_may_be_missing() -> None:
    wanted = {"x": io.FixedLenSequenceFeature([2], bytes, allow_missing=True)}
    _, lists, lengths = io.parse_sequence_example(
        [
            io.encode_sequence_example({"a": 1}),
            io.encode_sequence_example(None, {"x": [["a", "b"]]}),
        ],
        None,
        wanted,
    )

    assert lists["x"].tolist() == [[[b"", b""]], [[b"a", b"b"]]]
    assert lengths["x"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((None, None), "must name a feature"),
        (
            ({"a": io.FixedLenSequenceFeature([], int)}, None),
            "FixedLenFeature, VarLenFeature, RaggedFeature",
        ),
        ((None, {"a": io.FixedLenFeature([], int)}), "FixedLenSequenceFeature"),
        ((None, {"x": io.FixedLenSequenceFeature([2], float, True, 0)}), "default_value"),
    ],
)
def test_features_that_do_not_go(features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        io.parse_sequence_example([record(1, 1)], *features)


def test_only_one() -> None:
    with pytest.raises(ValueError, match="parse_sequence_example takes several"):
        io.parse_single_sequence_example([record(1, 1)], CONTEXT)


def test_cut_off_at_each_byte() -> None:
    whole = record(2, 2)
    second = len(io.encode_sequence_example({"id": 2, "tags": ["t", "t"]}))
    for size in range(1, len(whole)):
        if size == second:  # a whole message: the context without the lists
            continue
        with pytest.raises(
            ValueError, match=r"example 1 of \d+ bytes is not a tf\.train\.SequenceExample: byte"
        ):
            io.parse_sequence_example([whole, whole[:size]], CONTEXT, STEPS)
