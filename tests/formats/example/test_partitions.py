"""Rows of rows: values cut by other features of the example."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tundish import Ragged, io
from tundish.errors import SpecError

R = io.RaggedFeature
BY_KEY = ("RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds")


def feature(*partitions: Any) -> dict[str, Any]:
    return {"r": R(int, "v", partitions)}


def coded(kind: str, lengths: list[int]) -> list[int]:
    """Return the values of a feature that cuts others into rows of these lengths."""
    splits = np.concatenate([[0], np.cumsum(lengths, dtype=int)])
    found = {
        "RowSplits": splits,
        "RowLengths": np.array(lengths, int),
        "RowStarts": splits[:-1],
        "RowLimits": splits[1:],
        "ValueRowIds": np.repeat(np.arange(len(lengths)), lengths),
    }
    return list(map(int, found[kind]))


@pytest.mark.parametrize("kind", BY_KEY)
@pytest.mark.parametrize("copies", [1, 10])
def test_rows_of_each_example(kind: str, copies: int) -> None:
    rows = [[[1, 2], [], [3]], [], [[4]], [[], [5, 6]]] * copies
    batch = [io.encode_example({"v": flat(r), "p": coded(kind, [len(x) for x in r])}) for r in rows]
    parsed = io.parse_example(batch, feature(getattr(R, kind)("p")))["r"]

    assert parsed.to_list() == rows
    assert parsed.row_splits.dtype == np.int32
    for record, row in zip(batch, rows, strict=True):
        assert io.parse_example(record, feature(getattr(R, kind)("p")))["r"].to_list() == row


def test_rows_of_one_length() -> None:
    batch = [io.encode_example({"v": list(range(n))}) for n in (4, 0, 2)]
    parsed = io.parse_example(batch, feature(R.UniformRowLength(2)))["r"]

    assert parsed.values.tolist() == [[0, 1], [2, 3], [0, 1]]
    assert parsed.row_splits.tolist() == [0, 2, 2, 3]
    one = io.parse_example(batch[0], feature(R.UniformRowLength(2)))["r"]
    assert one.tolist() == [[0, 1], [2, 3]]
    with pytest.raises(
        SpecError, match="example 0: feature 'r' has 4 values or rows, which rows of 3"
    ):
        io.parse_example(batch, feature(R.UniformRowLength(3)))


def test_rows_of_rows_of_rows() -> None:
    record = io.encode_example({"v": range_of(6), "inner": [1, 0, 2, 3], "outer": [0, 0, 1, 1]})
    wanted = feature(R.UniformRowLength(2), R.ValueRowIds("outer"), R.RowLengths("inner"))
    parsed = io.parse_example([record], wanted)["r"]

    assert parsed.to_list() == [[[[[0], []], [[1, 2], [3, 4, 5]]]]]
    assert isinstance(parsed.values, Ragged)


def flat(rows: list[list[Any]]) -> list[Any]:
    return [item for row in rows for item in row]


def range_of(count: int) -> list[int]:
    return list(range(count))


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("RowSplits", [0, 2, 1, 3], "do not rise"),
        ("RowSplits", [1, 3], "do not begin with 0"),
        ("RowSplits", [0, 2], "do not match the number of values"),
        ("RowSplits", [], "do not match the number of values"),
        ("RowLengths", [4], "do not match the number of values"),
        ("RowLengths", [-1, 4], "do not rise"),
        ("RowLengths", [2**63 - 1, 2**63 - 1, 5], "do not match the number of values"),
        ("RowStarts", [1], "do not begin with 0"),
        ("RowStarts", [], "are missing"),
        ("RowStarts", [0, 4], "do not rise"),
        ("RowLimits", [2], "do not match the number of values"),
        ("RowLimits", [-1, 3], "do not rise"),
        ("ValueRowIds", [0, 0], "are not one per value"),
        ("ValueRowIds", [0, 1, 0], "do not rise"),
        ("ValueRowIds", [-1, 0, 0], "do not rise"),
        ("ValueRowIds", [0, 0, 2**62], "more than"),
        ("ValueRowIds", [0, 0, 2**63 - 1], "more than|rise"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 25])
def test_partitions_that_do_not_fit(kind: str, values: list[int], problem: str, place: int) -> None:
    good = io.encode_example({"v": [7, 8, 9], "p": coded(kind, [1, 2])})
    bad = io.encode_example({"v": [7, 8, 9], "p": values})
    batch = [good] * place + [bad] + [good]

    with pytest.raises(
        SpecError, match=f"example {place}: feature 'r': the {kind} in 'p' .*{problem}"
    ):
        io.parse_example(batch, feature(getattr(R, kind)("p")))


def test_more_rows_than_their_splits_can_number() -> None:
    record = io.encode_example({"v": [1], "p": [2**31 - 2]})

    with pytest.raises(SpecError, match="more than"):
        io.parse_example([record, record], feature(R.ValueRowIds("p")))


@pytest.mark.parametrize("seed", range(40))
def test_random_partitions_give_back_the_rows(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [rng.choice(BY_KEY) for _ in range(rng.randint(1, 3))]
    nests = [nest(rng, len(kinds)) for _ in range(rng.choice((1, 4, 20)))]
    batch = []
    for each in nests:
        values: dict[str, Any] = {}
        level = each
        for number, kind in enumerate(kinds):
            values[f"p{number}"] = coded(kind, [len(row) for row in level])
            level = flat(level)
        batch.append(io.encode_example(values | {"v": level}))
    partitions = [getattr(R, kind)(f"p{number}") for number, kind in enumerate(kinds)]

    assert io.parse_example(batch, feature(*partitions))["r"].to_list() == nests


def nest(rng: random.Random, depth: int) -> list[Any]:
    """Lists of lists; none ends with an empty one, which row numbers cannot say."""
    if not depth:
        return [rng.randrange(100) for _ in range(rng.randrange(4))]
    rows = [nest(rng, depth - 1) for _ in range(rng.randrange(4))]
    while rows and not rows[-1]:
        rows.pop()
    return rows
