"""`Optional`, and the specs of iterators and datasets: as in tf.data, on numpy's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish import ArraySpec, Dataset, DatasetSpec, IteratorSpec, Optional, errors

INT = ArraySpec((), "int64")


def test_the_next_element_or_none() -> None:
    with iter(Dataset.range(2)) as it:
        got = [it.get_next_as_optional() for _ in range(4)]
        with pytest.raises(errors.OutOfRangeError):
            it.get_next()

    assert [each.has_value() for each in got] == [True, True, False, False]
    assert [each.get_value() for each in got[:2]] == [0, 1]
    assert [each.element_spec for each in got] == [INT] * 4
    with pytest.raises(ValueError, match="no value: check has_value first"):
        got[2].get_value()
    assert td.experimental.get_next_as_optional(iter(Dataset.range(1))).get_value() == 0
    assert td.experimental.Optional is Optional


def test_an_element_that_failed_raises_its_error() -> None:
    with iter(Dataset.range(2).map(["one"].__getitem__)) as it:
        assert it.get_next_as_optional().get_value() == "one"
        with pytest.raises(IndexError):
            it.get_next_as_optional()
        assert not it.get_next_as_optional().has_value()


def test_one_may_be_made() -> None:
    full = Optional.from_value({"a": 1, "b": (2.0, "x")})
    none = Optional.empty(INT)

    assert full.get_value() == {"a": 1, "b": (2.0, "x")}
    assert full.element_spec == {"a": INT, "b": (ArraySpec((), "float64"), ArraySpec((), str))}
    assert none.element_spec == INT
    assert repr(none) == "Optional.empty(ArraySpec(shape=(), dtype=int64))"
    assert repr(Optional.from_value(3)) == "Optional.from_value(np.int64(3))"


def test_the_spec_of_an_iterator() -> None:
    ds = Dataset.range(3).map(lambda x: {"b": x, "a": [1.0, 2.0]})
    with iter(ds) as it:
        spec = IteratorSpec.from_value(it)

        assert spec.element_spec == it.element_spec
        assert spec.is_compatible_with(it)
        assert spec.is_compatible_with(IteratorSpec.from_value(iter(ds)))
    same = IteratorSpec({"a": ArraySpec((2,), "float64"), "b": INT})
    assert spec == same
    assert hash(spec) == hash(same)
    assert spec != IteratorSpec(INT)


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        (IteratorSpec(ArraySpec((None, 3), "int64")), True),
        (IteratorSpec(ArraySpec(None, "int64")), True),
        (IteratorSpec(ArraySpec((2, 3), "int32")), False),
        (IteratorSpec(ArraySpec((2, 4), "int64")), False),
        (IteratorSpec(ArraySpec((2,), "int64")), False),
        (IteratorSpec((ArraySpec((2, 3), "int64"),)), False),
        (ArraySpec((2, 3), "int64"), False),
        (3, False),
    ],
)
def test_what_is_compatible(other: Any, fits: bool) -> None:
    assert IteratorSpec(ArraySpec((2, 3), "int64")).is_compatible_with(other) is fits


def test_the_spec_of_a_dataset() -> None:
    assert DatasetSpec.from_value(Dataset.range(3)) == DatasetSpec(INT)
    assert DatasetSpec.from_value(Dataset.range(3).map(np.float32)) == DatasetSpec(
        ArraySpec((), "float32")
    )


@pytest.mark.parametrize("kind", [IteratorSpec, DatasetSpec])
def test_other_values_have_none(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"not int \(5\)"):
        kind.from_value(5)
    with pytest.raises(TypeError, match="not list"):
        kind.from_value([INT])
