"""Tensors in bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.formats.example.making import mutated

from tundish import io
from tundish.errors import SpecError

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("dtype", DTYPES.split())
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,), (2, 0, 3), (300, 2)], ids=str)
def test_there_and_back(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for given in (
        tensor,
        np.array(tensor, order="F"),
        tensor.astype(tensor.dtype.newbyteorder(">")),
    ):
        back = io.parse_tensor(io.serialize_tensor(given), dtype)

        assert back.dtype == tensor.dtype
        assert back.shape == shape
        assert np.array_equal(back, tensor)
        assert not shape or back.flags.writeable


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_dtypes_of_ml_dtypes(dtype: str) -> None:
    kinds = pytest.importorskip("ml_dtypes")
    tensor = np.array([0.5, -2], getattr(kinds, dtype))
    back = io.parse_tensor(io.serialize_tensor(tensor), dtype)

    assert back.dtype == tensor.dtype
    assert back.tolist() == tensor.tolist()
    assert io.parse_tensor(io.serialize_tensor(tensor), tensor.dtype).dtype == tensor.dtype


@pytest.mark.parametrize(
    ("tensor", "back"),
    [
        ("é", "é".encode()),
        (b"a\0", b"a\0"),
        (["a", b"", "b" * 300], [b"a", b"", b"b" * 300]),
        (np.array([["a"], ["b"]]), [[b"a"], [b"b"]]),
        (np.zeros((2, 0), object), [[], []]),
    ],
    ids=repr,
)
def test_strings(tensor: Any, back: Any) -> None:
    found = io.parse_tensor(io.serialize_tensor(tensor), bytes)

    assert (found if isinstance(found, bytes) else found.tolist()) == back


def test_values_in_fields_of_their_own() -> None:
    """Other writers pack values, write them one by one, or let the last stand for all that follow."""
    ones = b"\x08\x01\x12\x04\x12\x02\x08\x03"  # float32, shape (3,)
    assert io.parse_tensor(ones, "float32").tolist() == [0, 0, 0]
    assert io.parse_tensor(ones + b"\x2a\x04\0\0\x80\x3f", "float32").tolist() == [1, 1, 1]
    assert io.parse_tensor(ones + b"\x2d\0\0\x80\x3f\x2d\0\0\0\x40", "float32").tolist() == [
        1,
        2,
        2,
    ]
    texts = b"\x08\x07\x12\x04\x12\x02\x08\x02\x42\x01a"
    assert io.parse_tensor(texts, bytes).tolist() == [b"a", b"a"]


@pytest.mark.parametrize(
    ("given", "dtype", "error", "message"),
    [
        (io.serialize_tensor(1), "int32", SpecError, "is of int64, not of int32"),
        (io.serialize_tensor("a"), int, SpecError, "is of string, not of int64"),
        (b"", int, SpecError, "is of dtype 0"),
        (io.serialize_tensor([1, 2])[:-1], int, ValueError, "not a TensorProto: byte"),
        (
            b"\x08\x01\x12\x04\x12\x02\x08\x03\x22\x01a",
            "float32",
            ValueError,
            "1 bytes for 3 values of 4",
        ),
        (b"\x08\x01\x12\x02\x18\x01", "float32", ValueError, "unknown rank"),
        (
            b"\x08\x01\x12\x0d\x12\x0b\x08" + b"\xff" * 9 + b"\x01",
            "float32",
            ValueError,
            "negative",
        ),
        (b"\x08\x01\x12\x0b\x12\x09\x08" + b"\xff" * 7 + b"\x01", "float32", ValueError, "2 GiB"),
        (b"\x08\x07\x12\x0b\x12\x09\x08" + b"\xff" * 7 + b"\x01", bytes, ValueError, "2 GiB"),
        ("a", int, TypeError, "must be bytes, not str"),
        (b"", "nonsense", TypeError, "nonsense"),
        (b"", "datetime64[s]", ValueError, "no place"),
    ],
    ids=str,
)
def test_errors(given: Any, dtype: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        io.parse_tensor(given, dtype)


@pytest.mark.parametrize(
    "tensor", [np.datetime64("2020"), np.array([None]), np.array([(1,)], [("a", "i4")])], ids=repr
)
def test_arrays_that_have_no_place(tensor: Any) -> None:
    with pytest.raises(SpecError):
        io.serialize_tensor(tensor)


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_an_error_or_a_tensor(seed: int) -> None:
    rng = random.Random(seed)
    tensor: Any = rng.choice((np.arange(6).reshape(2, 3), ["a", "bb"], np.float32(1), [True]))
    whole = io.serialize_tensor(tensor)
    kind = rng.choice((np.asarray(tensor).dtype.name, "int64", "string"))
    kind = "string" if kind.startswith("str") else kind
    for _ in range(50):
        try:
            io.parse_tensor(mutated(rng, whole), kind)
        except ValueError:
            continue


def test_raw_bytes() -> None:
    assert io.decode_raw(b"\1\0\2\0", "uint16").tolist() == [1, 2]
    assert io.decode_raw([b"\1\0", b"\2\0"], np.uint16, little_endian=False).tolist() == [
        [256],
        [512],
    ]
    assert io.decode_raw([b"\1", b"\2\3\4"], np.uint8, fixed_length=2).tolist() == [[1, 0], [2, 3]]
    assert io.decode_raw(np.zeros((0, 2), object), "int8").shape == (0, 2, 0)
    with pytest.raises(ValueError, match="of number 1 it is 2, not 1"):
        io.decode_raw([b"a", b"bc"], np.uint8)
    with pytest.raises(ValueError, match="3 bytes are not a multiple of 2"):
        io.decode_raw(b"abc", np.uint16)
    with pytest.raises(ValueError, match="of numbers"):
        io.decode_raw(b"abc", object)
