"""The classes that say what is wanted: arguments are checked when they are made."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest

from tundish import io


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float32", np.dtype("float32")),
        (np.float32, np.dtype("float32")),
        (np.dtype("float32"), np.dtype("float32")),
        (float, np.dtype("float32")),
        ("int64", np.dtype("int64")),
        (int, np.dtype("int64")),
        (np.dtype("int64"), np.dtype("int64")),
        (bytes, bytes),
        (str, bytes),
        ("string", bytes),
        (np.dtype(object), bytes),
    ],
)
def test_dtypes(dtype: Any, kind: Any) -> None:
    assert io.VarLenFeature(dtype).dtype == kind


@pytest.mark.parametrize(
    "dtype", ["float64", np.int32, "nonsense", None, 3, [], np.float64], ids=repr
)
def test_another_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="float32, int64 or bytes"):
        io.VarLenFeature(dtype)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("FixedLenFeature", ([None], int), "known sizes"),
        ("FixedLenFeature", ([-1], int), "negative"),
        ("FixedLenFeature", (None, int), "known sizes"),
        ("FixedLenFeature", ([2], int, 1), "must have the shape"),
        ("FixedLenFeature", ([], int, 1.5), "must be of int64"),
        ("FixedLenFeature", ([], int, "a"), "must be of int64"),
        ("FixedLenFeature", ([], int, 2**63), "does not fit int64"),
        ("FixedLenFeature", ([], bytes, 1), "bytes or str"),
        ("FixedLenSequenceFeature", ([], int, True, [1, 2]), "one value"),
        ("SparseFeature", ([], "v", int, 3), "index_key"),
        ("SparseFeature", (["a", "b"], "v", int, 3), "one size for each"),
        ("RaggedFeature", (int, ""), "value_key"),
        ("RaggedFeature", (int, None, ["a"]), "partitions"),
        ("RaggedFeature", (int, None, "a"), "partitions"),
        ("RaggedFeature", (int, None, [io.RaggedFeature.UniformRowLength(0)]), "at least 1"),
        ("RaggedFeature", (int, None, (), "int16"), "int32 or int64"),
        ("RaggedFeature", (int, None, (), "x"), "int32 or int64"),
    ],
)
def test_wrong_arguments(kind: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(io, kind)(*arguments)


FEATURES: list[Any] = [
    io.FixedLenFeature([2, 1], float, np.array([[1], [2]])),
    io.FixedLenFeature((), "string", "a"),
    io.FixedLenSequenceFeature([], int, allow_missing=True, default_value=3),
    io.VarLenFeature(bytes),
    io.SparseFeature(["a", "b"], "v", float, [2, 3]),
    io.RaggedFeature(int, "v", [io.RaggedFeature.RowSplits("s")], np.int64),
]


@pytest.mark.parametrize("feature", FEATURES, ids=repr)
def test_they_travel_and_compare(feature: Any) -> None:
    assert pickle.loads(pickle.dumps(feature)) == feature
    assert cloudpickle.loads(cloudpickle.dumps(feature)) == feature
    assert repr(feature).startswith(type(feature).__name__)


def test_a_default_is_of_the_dtype() -> None:
    assert FEATURES[0].default_value == [[1.0], [2.0]]
    assert FEATURES[1].default_value == b"a"
