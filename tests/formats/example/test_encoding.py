"""Encoded examples: they can be read by any reader of protocol buffers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tundish import io
from tundish.errors import SpecError
from tundish.formats.example.wire import varint_bytes

RAGGED = {kind: {"x": io.RaggedFeature(kind)} for kind in ("int64", "float32", "bytes")}


@pytest.mark.parametrize(
    ("value", "kind", "values"),
    [
        (3, "int64", [3]),
        (True, "int64", [1]),
        ([True, False], "int64", [1, 0]),
        (-1, "int64", [-1]),
        (np.uint8(7), "int64", [7]),
        (np.array([[1, 2], [3, 4]]).T, "int64", [1, 3, 2, 4]),
        (range(3), "int64", [0, 1, 2]),
        (0.5, "float32", [0.5]),
        (np.float16(0.25), "float32", [0.25]),
        ([1, 2.5], "float32", [1, 2.5]),
        (np.zeros((2, 0)), "float32", []),
        (1e300, "float32", [float("inf")]),
        ("é", "bytes", ["é".encode()]),
        (b"\0a\0", "bytes", [b"\0a\0"]),
        (["a", b"b"], "bytes", [b"a", b"b"]),
        (("a",), "bytes", [b"a"]),
        (np.array(["a", "bc"]), "bytes", [b"a", b"bc"]),
        (np.array([b"a", "b"], object), "bytes", [b"a", b"b"]),
        ("", "bytes", [b""]),
        ([], "bytes", []),
        ([], "int64", []),
    ],
    ids=repr,
)
def test_values(value: Any, kind: str, values: list[Any]) -> None:
    assert io.parse_example([io.encode_example({"x": value})], RAGGED[kind])["x"].to_list() == [
        values
    ]


@pytest.mark.parametrize(
    "value",
    [
        1j,
        None,
        {"a": 1},
        [1, "a"],
        [["a"], "b"],
        [[1], [1, 2]],
        2**63,
        -(2**63) - 1,
        np.uint64(2**63),
        object(),
    ],
    ids=lambda value: type(value).__name__ + str(value)[:12],
)
def test_values_of_no_kind(value: Any) -> None:
    with pytest.raises(SpecError, match="feature 'x': "):
        io.encode_example({"x": value})


@pytest.mark.parametrize("values", [None, [], {1: 2}, "x"])
def test_only_dicts_of_names(values: Any) -> None:
    with pytest.raises(TypeError, match="a dict of names"):
        io.encode_example(values)


def test_equal_values_are_equal_bytes() -> None:
    assert io.encode_example({"a": 1, "b": 2}) == io.encode_example({"b": 2, "a": 1})


@pytest.mark.parametrize("seed", range(30))
def test_numbers_of_all_sizes(seed: int) -> None:
    rng = random.Random(seed)
    numbers = [
        rng.choice((1, -1)) * rng.getrandbits(rng.randrange(63)) for _ in range(rng.randrange(60))
    ]
    numbers += rng.sample([0, 127, 128, 2**63 - 1, -(2**63), -1], 3)
    record = io.encode_example({"x": numbers})

    assert io.parse_example([record], RAGGED["int64"])["x"].to_list() == [numbers]
    assert io.parse_example([record] * 20, RAGGED["int64"])["x"].to_list() == [numbers] * 20
    assert b"".join(map(varint_bytes, numbers)) in record  # each in as few bytes as it takes


def test_steps_are_sequences() -> None:
    with pytest.raises(SpecError, match="feature 'x': a value for each step is needed, not 3"):
        io.encode_sequence_example(None, {"x": 3})
    with pytest.raises(SpecError, match="feature 'x': a value for each step"):
        io.encode_sequence_example(None, {"x": "abc"})
