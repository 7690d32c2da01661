"""scan and group_by_reducer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import IncompatibleCheckpointError, SpecError
from tundish.loader.operators.reducing import Reducer
from tundish.testing import assert_resumes_anywhere

TOTAL = Reducer(lambda key: 0, lambda s, x: s + x, lambda s: s)


def keep(state: Any, element: Any) -> Any:
    return state, element


@pytest.mark.parametrize(
    ("build", "error", "told"),
    [
        (lambda ds: ds.scan(0, 3), TypeError, "scan_func must be callable, not int"),
        (lambda ds: ds.scan(None, keep), SpecError, "initial_state must be an element, not None"),
        (lambda ds: ds.scan(2**64, keep), SpecError, "does not fit 64 bits"),
        (lambda ds: ds.group_by_reducer(3, TOTAL), TypeError, "key_func must be callable"),
        (lambda ds: ds.group_by_reducer(int, keep), TypeError, "reducer must be a .*Reducer"),
        (lambda _: Reducer(1, keep, keep), TypeError, "init_func must be callable"),  # type: ignore[arg-type]  # on purpose
    ],
)
def test_bad_arguments_are_named(build: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        build(td.Dataset.range(5))


def test_cardinalities() -> None:
    ds = td.Dataset.range(5)

    assert ds.scan(0, keep).cardinality() == 5
    assert ds.repeat().scan(0, keep).cardinality() == td.INFINITE_CARDINALITY
    assert ds.filter(bool).scan(0, keep).cardinality() == td.UNKNOWN_CARDINALITY
    assert ds.group_by_reducer(int, TOTAL).cardinality() == td.UNKNOWN_CARDINALITY


def test_a_plan_does_not_share_its_initial_state() -> None:
    start = np.zeros(2)
    ds = td.Dataset.range(3).scan(start, lambda s, x: (s + 1, s))
    start += 100

    assert [x.tolist() for x in ds] == [[0, 0], [1, 1], [2, 2]]


WORKERS = pytest.mark.parametrize("workers", [0, 2])


def outcomes(ds: td.Dataset, workers: int = 0) -> list[Any]:
    """Elements, and the types of errors in their place."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - it is what is looked at
                found.append(type(error))


@dataclass(frozen=True)
class Fails:
    """Pass elements on, but for one."""

    at: int

    def __call__(self, element: Any) -> Any:
        if element == self.at:
            raise ZeroDivisionError
        return element


def test_a_function_of_state_and_element() -> None:
    ds = td.Dataset.range(4).scan(1, lambda s, x: (s * 2, (s, x)))

    assert [(int(s), int(x)) for s, x in ds] == [(1, 0), (2, 1), (4, 2), (8, 3)]


def test_a_nest_as_state_and_an_endless_input() -> None:
    def fibonacci(state: Any, _: Any) -> Any:
        return (state[1], state[0] + state[1]), state[1]

    ds = td.Dataset.range(1).repeat().scan((0, 1), fibonacci).take(7)
    assert [int(x) for x in ds] == [1, 1, 2, 3, 5, 8, 13]


def test_a_tuple_is_one_argument() -> None:
    ds = td.Dataset.from_tensor_slices(([1, 2], [3, 4])).scan(0, lambda s, x: (s + x[0], s + x[1]))

    assert [int(x) for x in ds] == [3, 5]


def test_each_pass_begins_anew() -> None:
    ds = td.Dataset.range(3).scan(0, lambda s, x: (s + 1, s)).repeat(2)

    assert [int(x) for x in ds] == [0, 1, 2, 0, 1, 2]


@WORKERS
def test_an_error_keeps_the_state(workers: int) -> None:
    def total(state: Any, element: Any) -> Any:
        if element == 3:
            raise LookupError
        return state + element, state + element

    ds = td.Dataset.range(6).map(Fails(1)).scan(0, total)
    assert outcomes(ds, workers) == [0, ZeroDivisionError, 2, LookupError, 6, 11]


def test_an_output_that_is_none_keeps_the_state() -> None:
    ds = td.Dataset.range(4).scan(0, lambda s, x: (s + 1, None if x == 1 else s))

    assert outcomes(ds) == [0, SpecError, 1, 2]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (
            np.float32(1),
            r"a state ArraySpec\(shape=\(\), dtype=float32\), the initial state is .*int64",
        ),
        ((0, 0), "initial state"),
        ("a", "dtype=str"),
        (None, "initial state"),
    ],
)
def test_a_state_of_another_kind_is_told_with_both(state: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told) as found:
        next(iter(td.Dataset.range(3).scan(0, lambda s, x: (state, x))))

    assert any("in scan#1, element 0" in note for note in found.value.__notes__)


def test_a_state_may_change_its_shape() -> None:
    ds = td.Dataset.range(4).scan(np.zeros(0, int), lambda s, x: (np.append(s, x), s))

    assert [x.tolist() for x in ds] == [[], [0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("result", [3, (1, 2, 3), [1, 2], None])
def test_two_things_are_returned(result: Any) -> None:
    with pytest.raises(SpecError, match=r"scan_func must return a pair \(new_state, output\)"):
        next(iter(td.Dataset.range(3).scan(0, lambda s, x: result)))


def test_whoever_changes_an_element_changes_no_state() -> None:
    def both(state: Any, element: Any) -> Any:
        total = state + element
        return total, total

    found = []
    for total in td.Dataset.range(4).scan(np.zeros(2, int), both):
        found.append(total.tolist())
        total[:] = 100
    assert found == [[0, 0], [1, 1], [3, 3], [6, 6]]


def test_a_state_is_not_changed_in_place() -> None:
    def add(state: Any, element: Any) -> Any:
        state += element
        return state, state

    assert outcomes(td.Dataset.range(2).scan(np.zeros(2, int), add)) == [ValueError] * 2


def test_an_element_that_waits_above_holds_no_shared_memory() -> None:
    ds = td.Dataset.range(80).map(lambda x: np.full(300_000, int(x), np.uint8))
    ds = ds.scan(0, lambda s, x: (s, x)).shuffle(40, seed=1)
    with ds.iterator(workers=2) as it:
        found = [int(next(it)[7])]
        leased = it.stats.leased
        found += [int(x[7]) for x in it]

    assert sorted(found) == list(range(80))
    assert leased < 30


@pytest.mark.parametrize("workers", [(0,), (2, 0)])
def test_a_restored_scan_goes_on(workers: tuple[int, ...]) -> None:
    ds = td.Dataset.range(12).map(Fails(5)).scan(1, lambda s, x: (s * 3 + x, s))

    assert_resumes_anywhere(ds, workers, steps=5)
    assert_resumes_anywhere(ds.shuffle(4, seed=1).map(abs).batch(2), workers, steps=5)


def total_of(first: int, final: Any = None) -> Reducer:
    return Reducer(lambda key: first, lambda s, x: s + x, final or (lambda s: s))


@WORKERS
def test_one_element_a_key_in_ascending_order(workers: int) -> None:
    ds = (
        td.Dataset.range(9)
        .map(lambda x: 8 - x)
        .group_by_reducer(lambda x: x % 3 - 1, total_of(100))
    )

    assert outcomes(ds, workers) == [109, 112, 115]


@WORKERS
def test_errors_come_while_it_reads(workers: int) -> None:
    def key(element: Any) -> Any:
        return int(element) % 2 if element != 3 else 1 / 0

    def add(state: Any, element: Any) -> Any:
        if element == 5:
            raise LookupError
        return state + element

    def final(state: Any) -> Any:
        if state % 2:
            raise KeyError(int(state))
        return state

    reducer = Reducer(lambda key: 0, add, final)
    ds = td.Dataset.range(8).map(Fails(2)).group_by_reducer(key, reducer)
    # Of 0, 1, 4, 6 and 7 the even ones, then the odd ones.
    assert outcomes(ds, workers) == [ZeroDivisionError, ZeroDivisionError, LookupError, 10, 8]
    ds = ds.take(3).concatenate(
        td.Dataset.range(4).group_by_reducer(lambda x: 1, total_of(1, final))
    )
    assert outcomes(ds, workers)[3:] == [KeyError]


@pytest.mark.parametrize("key", [1.0, "a", np.uint64(2**63), None])
def test_a_key_is_an_int64(key: Any) -> None:
    with pytest.raises(SpecError, match="key_func must return an int of 64 bits, not"):
        list(td.Dataset.range(3).group_by_reducer(lambda x: key, total_of(0)))


def test_a_state_of_another_process_is_refused() -> None:
    def shared(count: int, index: int) -> td.Dataset:
        ds = td.Dataset.range(20).shard_by_process(td.InputContext(count, index))
        return ds.scan(0, lambda s, x: (s + x, s))

    with iter(shared(2, 1)) as it:
        next(it)
        state = it.state_dict()
    with iter(shared(4, 1)) as it, pytest.raises(IncompatibleCheckpointError, match="1 of 2"):
        it.load_state_dict(state)


@pytest.mark.parametrize(
    "above",
    [
        lambda ds: ds.scan(0, lambda s, x: (s + x, s * 100 + x)),
        lambda ds: ds.map(lambda x: x // 3).unique(),
        lambda ds: ds.take_while(lambda x: x < 70),
        lambda ds: ds.group_by_reducer(lambda x: x % 3, Reducer(int, lambda s, x: 3 * s + x, abs)),
        lambda ds: ds.rejection_resample(lambda x: x % 3, [0.6, 0.3, 0.1], seed=1),
    ],
    ids=["scan", "unique", "take_while", "group_by_reducer", "rejection_resample"],
)
def test_below_what_depends_on_order_there_is_order(above: Any) -> None:
    ds = above(td.Dataset.range(90).map(slow_at_first))
    free = ds.with_options(td.Options(deterministic=False))

    for _ in range(3):
        assert outcomes(free, 3) == outcomes(ds, 0)


def slow_at_first(element: Any) -> Any:
    """Take longer for the first elements of every ten than for those after them."""
    total = 0
    for k in range(40_000 if element % 10 < 2 else 1):
        total += k
    return element


def doubled(array: Any) -> Any:
    array *= 2
    return array


def passed_on(state: Any, array: Any) -> Any:
    return state, array


def test_what_a_function_changes_is_its_own() -> None:
    """A task that needs a larger slot, or whose worker died, is run again with the same input."""
    arrays = td.Dataset.from_tensor_slices(np.ones((8, 40_000)))
    with arrays.scan(0, passed_on).map(doubled).iterator(workers=2) as iterator:
        assert [set(array) for array in iterator] == [{2.0}] * 8
