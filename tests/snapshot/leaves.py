"""Every kind of leaf that a snapshot stores, and what it means that two are the same."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tundish.gaps import copied
from tundish.ragged import Ragged, Sparse
from tundish.snapshot.files.mapping import Mapping
from tundish.spec import Tree, flatten

Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - a class of a user's, untyped as they often are

UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s")

DTYPES: dict[str, np.dtype] = {
    **{c: np.dtype(c) for c in "?bhilqBHILQefdgFDG"},
    **{f">{c}": np.dtype(f">{c}") for c in ("i2", "i4", "u8", "f2", "f8", "c8", "c16")},
    **{f"M8[{unit}]": np.dtype(f"M8[{unit}]") for unit in UNITS},
    **{f"m8[{unit}]": np.dtype(f"m8[{unit}]") for unit in UNITS},
    "M8": np.dtype("M8"),
    ">M8[us]": np.dtype(">M8[us]"),
    **{c: np.dtype(c) for c in ("S1", "S5", "U1", "U3", ">U2", "V1", "V7", "V8", "V0")},
    "struct": np.dtype([("a", "i4"), ("b", ">f8", (2, 3)), ("c", "S3")]),
    "aligned": np.dtype([("a", "i1"), ("b", "f8")], align=True),
    "overlapping": np.dtype(
        {"names": ["x", "y"], "formats": ["i4", "i2"], "offsets": [0, 2], "itemsize": 12}
    ),
    "titled": np.dtype([(("a title", "a"), "i4"), ("b", "M8[s]")]),
    "record": np.dtype((np.record, [("a", "i4"), ("b", "f4")])),
    "nested": np.dtype([("a", [("b", "i2"), ("c", "V3")]), ("d", "?")]),
    **{
        name: np.dtype(getattr(ml_dtypes, name))
        for name in (
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e8m0fnu",
            "float4_e2m1fn",
            "int4",
            "uint4",
            "int2",
        )
    },
    ">bfloat16": np.dtype(ml_dtypes.bfloat16).newbyteorder(">"),
    "struct of bfloat16": np.dtype([("a", ml_dtypes.bfloat16), ("b", "i4")]),
}
"""Dtypes of arrays and numbers, every one that numpy has and what is built of them."""


def random_array(dtype: np.dtype, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array of random bytes: NaNs with payloads, NaT, whatever comes; but zeros in the gaps of structs."""
    if dtype.itemsize == 0:
        return np.ndarray(shape, dtype, bytearray())
    bits = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if dtype.char == "?":
        bits &= 1
    if dtype.kind == "U":  # a code point must be one
        return np.full(shape, "aé𝄞"[: dtype.itemsize // 4], dtype)
    if dtype.char in "gG":  # bytes that do not belong to the number may change
        numbers: np.ndarray = (bits[..., 0].astype("f8") * np.sqrt(2)).astype(dtype)
        return numbers
    array: np.ndarray = copied(np.frombuffer(bits.tobytes(), dtype).reshape(shape))
    return array


def _text(k: int) -> str:
    return ("naïve 𝄞\0" * k)[: k % 11]


def _objects(values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(len(values), object)
    for k, value in enumerate(values):
        array[k] = value
    return array.reshape(shape)


ODD: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "str": lambda k, _: _text(k),
    "str ascii": lambda k, _: "row " * (k % 5),
    "str surrogates": lambda k, _: "\ud800x" * (k % 3),
    "str long": lambda k, _: f"{k}" * 70_000 if k == 5 else "",
    "bytes": lambda k, rng: rng.bytes(k % 7),
    "bytes large": lambda k, rng: rng.bytes(9000 + k),
    "none": lambda k, _: None,
    "fixed 1-d": lambda k, rng: rng.random(5),
    "fixed 3-d": lambda k, rng: rng.integers(0, 9, (2, 3, 4), np.int16),
    "fixed F order": lambda k, rng: np.asfortranarray(rng.random((3, 4))),
    "fixed strided": lambda k, rng: rng.random((4, 6))[::2, ::3],
    "zero size": lambda k, _: np.zeros((0, 3), np.float32),
    "zero size of structures": lambda k, _: np.zeros((2, 0), [("a", "i4")]),
    "ragged 1-d": lambda k, rng: rng.integers(0, 9, k % 5, np.int32),
    "ragged 2-d": lambda k, rng: rng.random((k % 3, k % 4)).astype(np.float16),
    "ragged 3-d with zeros": lambda k, rng: rng.random((k % 2, 3, k % 5)),
    "ragged complex": lambda k, rng: random_array(np.dtype("F"), (k % 4,), rng),
    "ragged big-endian": lambda k, rng: random_array(np.dtype(">i4"), (k % 4, 2), rng),
    "ragged structures": lambda k, rng: random_array(DTYPES["struct"], (k % 4,), rng),
    "ragged bfloat16": lambda k, rng: random_array(DTYPES["bfloat16"], (k % 4,), rng),
    "ragged longdouble": lambda k, rng: random_array(np.dtype("g"), (k % 4,), rng),
    "ragged V0": lambda k, rng: random_array(np.dtype("V0"), (k % 4,), rng),
    "ragged F order": lambda k, rng: np.asfortranarray(rng.random((k % 3, 4))),
    "objects of str": lambda k, _: _objects([_text(j) for j in range(k % 4)], (k % 4,)),
    "objects of bytes, 2-d": lambda k, rng: _objects([rng.bytes(j) for j in range(6)], (2, 3)),
    "objects of surrogates": lambda k, _: _objects(["\udfff", "ü"], (2, 1)),
    "objects, some empty": lambda k, _: _objects(["x"] * (k % 2), (k % 2,)),
    "objects, all empty": lambda k, _: _objects([], (k % 2, 0)),
}
"""Leaves by row, other than arrays of every dtype."""

NESTS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "dict": lambda k, rng: {"image": rng.random((2, 2)), "label": np.int64(k)},
    "tuple": lambda k, rng: (np.float32(k), "a" * k),
    "deep": lambda k, rng: {"a": {"b": (np.int8(1), {"c": b"x"})}, 3: (np.bool_(k % 2),)},
    "namedtuple": lambda k, rng: Pair(np.int64(k), {"x": np.zeros(2)}),
    "ragged": lambda k, rng: Ragged(np.arange(k), np.array([0, k // 2, k])),
    "sparse": lambda k, rng: {
        "s": Sparse(np.zeros((k % 3, 2), np.int64), rng.random(k % 3), np.array([3, k]))
    },
    "keys": lambda k, rng: {
        0: np.int64(0),
        "0": np.int64(1),
        (1, "x"): np.int64(2),
        b"\xff": np.int64(3),
        None: np.int64(4),
        1.5: np.int64(5),
    },
    "names that meet": lambda k, rng: {"a.b": np.int64(1), "a": {"b": np.int64(2)}},
    "names of ours": lambda k, rng: {"__index__": np.int64(1), "__rows__": "x"},
    "empty": lambda k, rng: {},
    "empty within": lambda k, rng: ((), {"a": ()}),
    "none within": lambda k, rng: (np.int64(k), None),
}
"""Elements that are nests."""


def is_same(one: Any, other: Any) -> bool:
    """Return True if two leaves are one to the bit: type, dtype, shape and every byte."""
    if type(one) is not type(other):
        return False
    if not isinstance(one, (np.ndarray, np.generic)):
        return bool(one == other)
    if (one.dtype, one.dtype.type, one.shape) != (other.dtype, other.dtype.type, other.shape):
        return False
    if one.dtype == object:
        pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
        return all(type(a) is type(b) and a == b for a, b in pairs)
    if one.dtype.char in "gG":
        return bool(np.array_equal(one, other))
    return bool(one.tobytes() == other.tobytes())


def differences(one: Any, other: Any) -> str | None:
    """Say how two elements differ; None where they are one to the bit, but for classes of namedtuples."""
    mine, my_tree = flatten(one)
    others, tree = flatten(other)
    if _named(my_tree) != _named(tree):
        return f"structures {my_tree} and {tree}"
    for k, (a, b) in enumerate(zip(mine, others, strict=True)):
        if not is_same(a, b):
            return f"leaf {k}: {a!r} and {b!r}"
    return None


def _named(tree: Tree) -> Any:
    if tree is None:
        return None
    kind, keys, subtrees = tree
    if kind == "n" and keys not in (Ragged, Sparse):
        keys = (keys.__name__, keys._fields)
    return (kind, keys, tuple(map(_named, subtrees)))


def is_mapped(array: np.ndarray) -> bool:
    """Return True if an array is a view of a mapped file of a snapshot, which nobody changes."""
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Mapping)
