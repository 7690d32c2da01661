"""Digests tell apart what differs and hold together what does not."""

from __future__ import annotations

import itertools
import pickle
from collections import OrderedDict, namedtuple
from typing import Any

import cloudpickle
import numpy as np
import pytest

from tundish.errors import SpecError
from tundish.testing.compare import collect, difference, digest, outcome_of
from tundish.testing.functions import OddError, Thing

Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - what users write

VALUES: list[Any] = [
    *(None, 1, True, 1.0, 1j, "1", b"1", bytearray(b"1"), "é", (), (1,), [1], [[1]], ((1,),)),
    *(np.int64(1), np.int32(1), np.float64(1), np.bool_(True), np.float32("nan"), float("nan")),
    *({"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, OrderedDict(a=1), {1, 2}, frozenset({1, 2})),
    *(Pair(1, 2), (1, 2), [1, 2], Thing("t"), Thing("t", (1,)), Thing("u"), range(3)),
    *(np.zeros(2), np.zeros((2, 1)), np.zeros(2, ">f8"), np.zeros(2, np.int64), np.array(0.0)),
    *(np.array(["a"]), np.array(["a"], object), np.array([None], object), np.zeros(1, "i4,f4")),
    *(
        np.datetime64(1, "s"),
        np.datetime64(1, "ms"),
        np.array([-0.0, 0.0]),
        int,
        len,
        pytest.raises,
    ),
]


def test_different_values_have_different_digests() -> None:
    pairs = itertools.combinations(VALUES, 2)

    assert not [pair for pair in pairs if digest(pair[0]) == digest(pair[1])]


@pytest.mark.parametrize("module", [pickle, cloudpickle], ids=lambda m: m.__name__)
def test_a_copy_has_the_same_digest(module: Any) -> None:
    copies = [module.loads(module.dumps(value, protocol=5)) for value in VALUES]

    assert [digest(copy) for copy in copies] == [digest(value) for value in VALUES]


def test_only_what_counts_counts() -> None:
    array = np.arange(12).reshape(3, 4)

    assert digest(array.T) == digest(array.T.copy())
    assert digest(array[::2]) == digest(array[::2].copy())
    assert digest(np.ones(2)) != digest(np.array([1.0, np.nextafter(1.0, 2.0)]))
    shared = [0]
    assert digest((shared, shared)) == digest(([0], [0]))


def test_what_holds_itself_has_a_digest() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)

    assert digest(cycle) != digest([1, [1]])


def test_errors_are_outcomes_and_the_run_goes_on() -> None:
    class Now:
        def __init__(self) -> None:
            self.values = iter([1, ValueError("no"), 2])

        def __iter__(self) -> Now:
            return self

        def __next__(self) -> object:
            value = next(self.values)
            if isinstance(value, Exception):
                raise value
            return value

    assert [str(x) for x in collect(Now())] == ["1", "builtins.ValueError ('no',)", "2"]
    assert len(collect(Now(), limit=2)) == 2
    assert len(collect(itertools.count(), limit=7)) == 7


def test_errors_count_by_type_and_arguments() -> None:
    assert outcome_of(ValueError(1)) == outcome_of(ValueError(1))
    assert outcome_of(ValueError(1)) != outcome_of(ValueError(2))
    assert outcome_of(ValueError(1)) != outcome_of(TypeError(1))
    assert outcome_of(OddError(1, hint="a")) != outcome_of(OddError(1, hint="b"))
    noted = ValueError(1)
    noted.add_note("worker 3")
    assert outcome_of(noted) == outcome_of(ValueError(1))
    assert outcome_of(SpecError("a"), exact=False) == outcome_of(SpecError("b"), exact=False)
    assert outcome_of(ValueError("a"), exact=False) != outcome_of(ValueError("b"), exact=False)


def test_a_difference_is_shown_where_it_begins() -> None:
    one, two = collect(iter(range(5))), collect(iter([0, 1, 2, 9, 9]))

    assert difference(one, one) is None
    assert difference(one, two, ("here", "there")) == (
        "they first differ at position 3 (5 and 5 outcomes):\n"
        "   here: 3\n"
        "  there: 9\n"
        "  before it: 2"
    )
    assert "(the end)" in str(difference(one, one[:4]))


def test_an_element_is_told_with_its_first_values() -> None:
    held: dict[str, object] = {"x": (np.arange(40, dtype=np.int64).reshape(5, 8),)}
    first = ", ".join(map(str, range(20)))
    [told] = collect(iter([held]))
    held = {"self": held, "y": np.zeros(0)}
    held["self"] = held

    assert str(told) == f"{{'x': (array([{first}, ...], int64, (5, 8)),)}}"
    assert outcome_of(ValueError(held)).text == "({'self': ..., 'y': array([], dtype=float64)},)"


def test_what_looks_alike_is_shown_with_its_digest() -> None:
    told = difference(collect(iter([b"x" * 999])), collect(iter([b"x" * 500 + b"y" + b"x" * 498])))
    assert str(told).count("[") == 2
