"""Specs that a plan tells of its elements, and the refusals that follow from them when it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import ArraySpec, Dataset, DatasetSpec, Ragged
from tundish.errors import SpecError
from tundish.loader.protocols.operator import SourceNode, Unary
from tundish.loader.protocols.specs import static_spec

NUMBERS = Dataset.range(3)
WORDS = Dataset.from_tensor_slices(["a", "b"])
PAIRS = Dataset.from_tensors((1, 2))


def double(x: Any) -> Any:
    return x * 2


def never(x: Any) -> Any:
    raise AssertionError


def test_a_size_that_may_differ_is_none_though_one_element_was_looked_at() -> None:
    assert NUMBERS.map(double).batch(2).element_spec == ArraySpec((None,), np.int64)
    assert NUMBERS.map(double).batch(2, drop_remainder=True).element_spec.shape == (2,)
    assert NUMBERS.batch(2).rebatch(3).element_spec == ArraySpec((None,), np.int64)


def test_what_the_plan_tells_is_not_run() -> None:
    empty = NUMBERS.take(0)

    assert empty.batch(2).element_spec == ArraySpec((None,), np.int64)
    assert NUMBERS.filter(never).element_spec == ArraySpec((), np.int64)
    with pytest.raises(SpecError, match="no element to learn the spec from"):
        _ = empty.map(double).element_spec


def test_several_datasets_have_what_fits_them_all() -> None:
    long, short = Dataset.from_tensors([1, 2]), Dataset.from_tensors([1])

    assert long.concatenate(short).element_spec == ArraySpec((None,), np.int64)
    assert long.concatenate(Dataset.from_tensors(1)).element_spec == ArraySpec(None, np.int64)
    assert Dataset.from_list([[1], [2, 3]]).element_spec == ArraySpec((None,), np.int64)
    assert Dataset.sample_from_datasets([long, short]).element_spec.shape == (None,)
    assert WORDS.element_spec == ArraySpec((), str)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (
            lambda: NUMBERS.concatenate(PAIRS),
            r"0 and 1 of concatenate .* structure, not \* and \(\*",
        ),
        (lambda: NUMBERS.concatenate(WORDS), "one dtype, not int64 and str; a `map` can cast"),
        (lambda: NUMBERS.concatenate(NUMBERS.map(never)).concatenate(PAIRS), None),
        (lambda: NUMBERS.concatenate(Dataset.from_tensors(np.int32(1))), "int64 and int32"),
        (
            lambda: Dataset.from_tensors({"a": 1}).concatenate(Dataset.from_tensors({"b": 1})),
            "structure, not {'a': \\*} and {'b': \\*}",
        ),
        (
            lambda: Dataset.from_tensors({"a": 1, "b": "x"}).concatenate(
                Dataset.from_tensors({"b": 1, "a": 1})
            ),
            r"one dtype at \['b'\], not str and int64",
        ),
        (lambda: Dataset.sample_from_datasets([NUMBERS, PAIRS]), "0 and 1 of sample_from"),
        (lambda: Dataset.choose_from_datasets([NUMBERS, WORDS], NUMBERS), "of choose_from"),
        (lambda: Dataset.sample_from_datasets([NUMBERS, NUMBERS.map(never), WORDS]), "0 and 2 of"),
    ],
)
def test_datasets_whose_elements_cannot_be_one(build: Callable[[], Any], says: str | None) -> None:
    if says is None:  # what a function gives, no plan tells
        build()
        return
    with pytest.raises(SpecError, match=says):
        build()


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        (Dataset.from_tensors([1, 2, 3]), 3),
        (Dataset.from_tensor_slices(np.zeros((4, 2))), 8),
        (Dataset.range(7).batch(2, drop_remainder=True).repeat(2), 12),
        (Dataset.range(7).batch(2), -2),
        (Dataset.range(7).batch(2).repeat(), -1),
        (Dataset.from_tensors(([1], 2)), -2),
        (Dataset.range(6).batch(2, drop_remainder=True).map(double), -2),
        (Dataset.from_tensors(([1, 2], [1, 2, 3])), -2),
        (Dataset.from_tensors(Ragged(np.arange(6), np.array([0, 2, 6]))), 2),
        (Dataset.from_tensor_slices(Ragged(np.ones((2, 5)), np.array([[0, 2, 5]] * 2))), 4),
    ],
)
def test_how_many_rows_there_are(dataset: Dataset, count: int) -> None:
    assert dataset.unbatch().cardinality() == count
    if count >= 0:
        assert len(list(dataset.unbatch())) == count


def test_how_long_the_rows_of_a_ragged_array_are_no_plan_tells() -> None:
    dataset = Dataset.from_tensors(Ragged(np.arange(6), np.array([0, 2, 6])))

    assert dataset.unbatch().element_spec == ArraySpec((None,), np.int64)


@dataclass(frozen=True, eq=False)
class Made(SourceNode):
    """A source that says what it makes."""

    def spec(self, below: Any) -> Any:
        return ArraySpec((2,), np.int8)


@dataclass(frozen=True, eq=False)
class Kept(Unary):
    """An operator that passes elements on."""

    passes = True


@dataclass(frozen=True, eq=False)
class Changed(Unary):
    """An operator that says nothing of what it makes."""


def test_what_passes_elements_on_has_the_spec_of_its_input() -> None:
    assert static_spec(Kept(Made())) == ArraySpec((2,), np.int8)


def test_an_operator_that_says_nothing_is_not_guessed() -> None:
    assert static_spec(Kept(Changed(Made()))) is None


def test_a_spec_is_learned_where_no_plan_tells_it_and_nowhere_upstream() -> None:
    asked: list[Any] = []
    changed = Changed(Changed(Made()))

    def learn(node: Any) -> Any:
        asked.append(node)
        return ArraySpec((), np.bool_)

    assert static_spec(Kept(changed), learn) == ArraySpec((), np.bool_)
    assert asked == [changed]


@pytest.mark.parametrize(
    "kept",
    [
        lambda ds: ds.assert_cardinality(2),
        lambda ds: ds.ignore_errors(),
        lambda ds: ds.repeat(2),
    ],
    ids=["assert_cardinality", "ignore_errors", "repeat"],
)
def test_datasets_within_elements_stay_datasets(kept: Callable[[Any], Any]) -> None:
    told = static_spec(kept(NUMBERS.window(2))._node)

    assert told == DatasetSpec(ArraySpec((), np.int64))


@pytest.mark.parametrize("workers", [0, 1])
def test_numpy_s_dtypes_of_text_and_objects_stand_for_python_s_values(workers: int) -> None:
    for dtype, python, value in (
        (np.str_, str, "a"),
        ("U5", str, "longer than five"),
        (np.bytes_, bytes, b"a"),
        ("S", bytes, b"\0"),
        (np.dtype(object), object, Path("a")),
    ):
        alone = ArraySpec((), dtype)
        assert alone == ArraySpec((), python)
        nest = {"alone": alone, "many": ArraySpec((None,), dtype)}
        element = {"alone": value, "many": [value, value]}
        for ds in (
            Dataset.range(1).map(lambda _: element, output_signature=nest),  # noqa: B023 - at once
            Dataset.from_generator(lambda: [element], output_signature=nest),  # noqa: B023
        ):
            with ds.iterator(workers=workers) as it:
                assert next(it)["alone"] == value


def test_rows_that_are_dicts_are_told_by_the_first() -> None:
    rows = Dataset.from_tensor_slices([{"a": [1]}, {"a": [2, 3]}])
    more = Dataset.from_list([{"a": [4, 5, 6]}])

    assert rows.element_spec == {"a": ArraySpec((1,), np.int64)}
    (batch,) = rows.concatenate(more).padded_batch(3, {"a": [4]})
    assert batch["a"].tolist() == [[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0]]
