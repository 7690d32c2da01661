"""sort_within: windows sorted by a key, and errors after the elements of their window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from tests.loader.operators.test_scanning import outcomes

import tundish as td
from tundish import Dataset
from tundish.errors import SpecError
from tundish.loader.operators.sorting import SortedWithin
from tundish.loader.protocols.items import End, Made, NotReady

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def of(*values: Any) -> Dataset:
    return Dataset.from_tensor_slices(list(values))


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda ds: ds.sort_within(0, int), ValueError, "window must be at least 1, not 0"),
        (lambda ds: ds.sort_within(2.0, int), TypeError, "window must be an int, not float"),
        (lambda ds: ds.sort_within(True, int), TypeError, "window must be an int, not bool"),
        (lambda ds: ds.sort_within(2, 3), TypeError, "key must be callable, not int"),
        (lambda ds: ds.sort_within(2, int, reverse=1), TypeError, "reverse must be a bool"),
    ],
)
def test_arguments_are_checked_when_the_pipeline_is_built(
    make: Callable[[Dataset], Dataset], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        make(of(1, 2))


def test_what_the_plan_tells_is_that_of_the_input() -> None:
    ds = Dataset.range(7).batch(2).sort_within(3, len)

    assert ds.cardinality() == 4
    assert ds.element_spec == td.ArraySpec((None,), np.int64)
    assert Dataset.range(7).repeat().sort_within(3, int).cardinality() == td.INFINITE_CARDINALITY


@WORKERS
def test_each_window_is_sorted_by_itself(workers: int) -> None:
    ds = of(3, 1, 2, 9, 0, 5, 7)

    assert outcomes(ds.sort_within(3, int), workers) == [1, 2, 3, 0, 5, 9, 7]
    assert outcomes(ds.sort_within(3, int, reverse=True), workers) == [3, 2, 1, 9, 5, 0, 7]
    assert outcomes(ds.sort_within(1, int), workers) == [3, 1, 2, 9, 0, 5, 7]
    assert outcomes(ds.sort_within(99, int).repeat(2), workers) == [0, 1, 2, 3, 5, 7, 9] * 2


@WORKERS
@pytest.mark.parametrize("reverse", [False, True])
def test_equal_keys_stay_in_their_order(workers: int, reverse: bool) -> None:
    ds = Dataset.range(12).sort_within(6, lambda x: 0.0 if x % 2 else -0.0, reverse=reverse)

    assert outcomes(ds, workers) == list(range(12))


def test_a_tuple_is_given_to_the_key_as_to_map() -> None:
    ds = Dataset.range(4).enumerate().sort_within(4, lambda number, x: -int(number) * int(x))

    assert [int(x) for _, x in ds] == [3, 2, 1, 0]


COMPARED: list[Any] = [
    *(-np.inf, np.int8(-3), False, np.float16(0.5), np.array(0.75, np.float32), True),
    *(2**53, float(2**53), 2**53 + 1, np.uint64(2**64 - 1), float("inf")),
]


def test_numbers_of_all_kinds_are_compared_exactly() -> None:
    last = len(COMPARED) - 1
    ds = Dataset.range(len(COMPARED)).map(lambda x: last - x)
    found = [int(x) for x in ds.sort_within(99, lambda x: COMPARED[int(x)])]

    assert found == [0, 1, 2, 3, 4, 5, 7, 6, 8, 9, 10]  # 2**53 is equal to float(2**53)


REFUSED: dict[str, Any] = {
    "nan": float("nan"),
    "a nan of numpy": np.float32("nan"),
    "text": "3",
    "none": None,
    "complex": 1j,
    "a list": [1],
    "an array": np.array([1]),
    "a pair": (1, 2),
    "an object": Fraction(1, 2),
    "a date": np.datetime64("2020-01-01"),
    "too large": 2**64,
}


@WORKERS
@pytest.mark.parametrize("name", REFUSED)
def test_a_key_without_an_order_is_an_error_after_its_window(name: str, workers: int) -> None:
    value = REFUSED[name]
    ds = of(4, 1, 3, 2, 0).sort_within(3, lambda x: value if x == 1 else x)

    assert outcomes(ds, workers) == [3, 4, SpecError, 0, 2]


def test_the_error_of_a_key_says_what_it_was_and_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"not nan; float\('inf'\) comes after all others"):
        list(of(1.0).sort_within(2, lambda _: float("nan")))
    with pytest.raises(SpecError, match=r"key must return a number .*, not 'three'"):
        list(of(1).sort_within(2, lambda _: "three"))


def inverse(x: Any) -> Any:
    return 6 // int(x)


@WORKERS
@pytest.mark.parametrize("reverse", [False, True])
def test_errors_come_after_the_others_in_their_order(workers: int, reverse: bool) -> None:
    def key(x: Any) -> Any:
        if x == 6:
            raise KeyError("no key")
        return -x if reverse else x

    ds = of(3, 0, 1, 2, 2, 1).map(inverse).sort_within(4, key, reverse=reverse)

    assert outcomes(ds, workers) == [2, 3, ZeroDivisionError, KeyError, 3, KeyError]


@WORKERS
def test_the_batches_before_an_error_are_whole_and_the_next_window_begins_one(workers: int) -> None:
    ds = of(0, 6, 3, 2, 1, 1, 2, 3, 6, 1, 2, 3).map(inverse).sort_within(6, int).batch(2)
    found = [x if x is ZeroDivisionError else x.tolist() for x in outcomes(ds, workers)]

    assert found == [[1, 2], [3, 6], ZeroDivisionError, [1, 2], [2, 3], [3, 6]]


def test_a_key_is_asked_once_and_no_further_ahead_than_a_window() -> None:
    asked: list[int] = []

    def key(x: Any) -> Any:
        asked.append(int(x))
        return x

    with Dataset.range(9).sort_within(4, key).iterator(workers=0) as it:
        next(it)
        assert asked == [0, 1, 2, 3]
        assert [int(next(it)) for _ in range(3)] == [1, 2, 3]
        assert asked == [0, 1, 2, 3]
        assert [int(x) for x in it] == [4, 5, 6, 7, 8]
    assert asked == list(range(9))


@WORKERS
def test_a_state_names_what_is_left_of_a_window(workers: int) -> None:
    ds = of(3, 1, 2, 0, 5).map(abs).sort_within(3, int)
    with ds.iterator(workers=workers) as it:
        assert int(next(it)) == 1
        state = it.state_dict()
        assert state["position"] == {"window": [2, 0], "up": 3}
        rest = [int(x) for x in it]
    with ds.iterator(workers=2 - workers) as again:
        again.load_state_dict(state)

        assert [int(x) for x in again] == rest == [2, 3, 0, 5]


def test_a_state_that_was_changed_is_refused() -> None:
    ds = Dataset.range(9).sort_within(3, int)
    with iter(ds) as it:
        next(it)
        state = it.state_dict()
        state["position"]["window"] = [1, 2, 3, 4]
        with pytest.raises(td.errors.CheckpointError, match="at most 3"):
            it.load_state_dict(state)


@WORKERS
def test_what_is_restored_does_not_ask_how_elements_compare(workers: int) -> None:
    turned = [1]
    ds = Dataset.range(8).sort_within(4, lambda x: turned[0] * int(x))
    with ds.iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
    turned[0] = -1
    with ds.iterator(workers=workers) as it:
        it.load_state_dict(state)

        assert [int(x) for x in it] == [1, 2, 3, 7, 6, 5, 4]


def test_elements_come_in_their_order_though_others_need_not() -> None:
    ds = Dataset.range(400).map(lambda x: x * 7 % 400, 4, deterministic=False)
    ds = ds.sort_within(16, int)

    assert outcomes(ds, 2) == outcomes(ds, 0)


def test_a_restored_window_runs_a_generator_once_for_all_its_elements() -> None:
    begun: list[int] = []

    def numbers() -> Iterator[int]:
        begun.append(1)
        yield from (5, 3, 4, 1, 2)

    ds = Dataset.from_generator(numbers).sort_within(4, int)
    with ds.iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
    begun.clear()
    with ds.iterator(workers=0) as it:
        it.load_state_dict(state)

        assert [int(x) for x in it] == [3, 4, 5, 2]
    assert len(begun) == 2  # for what is left of the window, and to go on


class Waiting:
    """Items of an input that is not ready before every one of them."""

    def __init__(self, *keys: int) -> None:
        self._keys, self._given, self._ready = keys, 0, False

    def next(self) -> Made:
        if self._given == len(self._keys):
            raise End
        self._ready = not self._ready
        if not self._ready:
            self._given += 1
            return Made(self._given - 1, None, self._keys[self._given - 1])
        raise NotReady

    def mark(self) -> int:
        return self._given

    def dump(self, mark: int) -> int:
        return mark


def test_a_mark_stays_while_the_next_window_is_gathered() -> None:
    node: Any = Dataset.range(5).sort_within(3, int)._node
    machine = SortedWithin(node, cast("Machine", Waiting(5, 3, 4, 2, 1)), 0, cast("Context", None))
    found, marks = [], [machine.mark()]
    while True:
        try:
            found.append(machine.next().ref)
        except NotReady:
            assert machine.mark() == marks[-1]
        except End:
            break
        else:
            marks.append(machine.mark())

    assert found == [1, 2, 0, 4, 3]
    assert [machine.dump(mark) for mark in marks] == [
        {"window": window, "up": up}
        for window, up in (([], 0), ([2, 0], 3), ([0], 3), ([], 3), ([3], 5), ([], 5))
    ]
