"""Writers: what fits goes into its row, what does not is refused and leaves the rows before it as they are."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

from tundish.loader.protocols.writer import _compiled, writer
from tundish.spec import flatten, leaf_key

HALF = np.arange(4, dtype=np.float32)
STRUCT = np.zeros(2, [("a", "i4"), ("b", "f8")])


class Pair(NamedTuple):
    """Two leaves."""

    left: Any
    right: Any


class Triple(NamedTuple):
    """Others under other names."""

    left: Any
    right: Any


ELEMENTS: dict[str, Any] = {
    "array": HALF,
    "shorter": HALF[:3],
    "flat": HALF.reshape(4, 1),
    "double": HALF.astype(np.float64),
    "swapped": HALF.astype(">f4"),
    "strided": np.repeat(HALF, 2)[::2],
    "number": np.float32(1),
    "other number": np.float64(1),
    "float": 1.0,
    "int": 1,
    "str": "text",
    "bytes": b"text",
    "none": None,
    "object": range(3),
    "dict": {"a": HALF, "b": np.int64(1)},
    "turned": {"b": np.int64(1), "a": HALF},
    "other names": {"a": HALF, "c": np.int64(1)},
    "fewer": {"a": HALF},
    "more": {"a": HALF, "b": np.int64(1), "c": np.int64(1)},
    "ordered": OrderedDict(a=HALF, b=np.int64(1)),
    "loose": {"a": HALF, "b": "text"},
    "odd names": {1: HALF, (2, "x"): np.int64(1), "a b": b""},
    "tuple": (HALF, np.int64(1)),
    "longer": (HALF, np.int64(1), np.int64(1)),
    "pair": Pair(HALF, np.int64(1)),
    "triple": Triple(HALF, np.int64(1)),
    "nest": {"a": (HALF, {"b": Pair(np.int64(1), "text")}), "c": ()},
    "other nest": {"a": (HALF, {"b": (np.int64(1), "text")}), "c": ()},
    "empty": {},
    "nothing": (),
    "struct": STRUCT[0],
    "structs": STRUCT,
    "objects": np.array([[1], None, "x"], object),
    "date": np.datetime64("2020-01-01"),
    "precise date": np.datetime64("2020-01-01T00"),
    "scalar array": np.array(1, np.float32),
    "masked": np.ma.masked_array(HALF),
}
NO_FORM = ("ordered", "scalar array", "masked")
"""Elements that fit nothing: a dict by another name, and values in another form than numpy's."""


def types(element: Any) -> Any:
    """The structure and the keys of an element, with the types that leaves and nests have."""
    leaves, tree = flatten(element)
    known = [type(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else None for leaf in leaves]
    return tree, [leaf_key(leaf) for leaf in leaves], known


@pytest.mark.parametrize("beside", [dict, list])
@pytest.mark.parametrize("name", [name for name in ELEMENTS if name not in NO_FORM])
def test_what_fits(name: str, beside: type) -> None:
    first = ELEMENTS[name]
    leaves, tree = flatten(first)
    keys = tuple(map(leaf_key, leaves))
    shift = 5 if beside is dict else 0
    for other, element in ELEMENTS.items():
        columns: list[Any] = [
            beside() if isinstance(key, type) else np.zeros((2, *key[1]), key[0]) for key in keys
        ]
        write = writer(tree, keys, columns, shift)
        assert write(shift, first)
        before = list(map(repr, columns))
        fits = other not in NO_FORM and types(element) == types(first)
        assert write(shift + 1, element) == fits, other
        if not fits:
            assert list(map(repr, columns)) == before, other
            continue
        for leaf, column in zip(flatten(element)[0], columns, strict=True):
            row = column[shift + 1] if isinstance(column, dict) else column[1]
            assert repr(row) == repr(leaf), other


def test_what_is_beside_the_columns_is_nobody_elses() -> None:
    extra: dict[int, Any] = {}
    mine = [1]
    write = writer(None, (object,), [extra])
    assert write(0, mine)
    mine.append(2)
    assert extra == {0: [1]}


def test_shapes_share_a_text() -> None:
    before = _compiled.cache_info().misses
    for n in range(1, 9):
        rows = np.zeros((1, n))
        assert writer(None, ((rows.dtype, (n,)),), [rows])(0, np.ones(n))
    assert _compiled.cache_info().misses <= before + 1
