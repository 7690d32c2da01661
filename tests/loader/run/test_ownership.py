"""Elements kept or delivered beyond the next call of a user's function are nobody else's."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.loader.protocols.ownership import lent, lent_result, owned, owned_result
from tundish.testing.misbehaving import (
    Boxed,
    BoxedList,
    Changed,
    Filled,
    Global,
    Kept,
    Pooled,
    Reused,
)

if TYPE_CHECKING:
    from collections.abc import Callable

D = td.Dataset

KEPT: list[Any] = []


def _own(array: Any) -> Any:
    return array


def _view(array: Any) -> Any:
    return array[1:]


def _in_dict(array: Any) -> Any:
    return {"x": array, "n": 1}


def _in_nest(array: Any) -> Any:
    return (1, {"x": (array.reshape(2, 3),)})


WRAPS = (_own, _view, _in_dict, _in_nest)
HANDS = (owned, lent, owned_result, lent_result)


def _array_in(value: Any) -> Any:
    while not isinstance(value, np.ndarray):
        value = list(value.values() if isinstance(value, dict) else value)[
            -1 if type(value) is tuple else 0
        ]
    return value


def _is_kept(hand: Any, wrap: Any, keep: Any = lambda array, value: None) -> Any:
    """Return True if an array that a function returns is handed on uncopied."""
    made = []

    def function() -> Any:
        array = np.zeros(6)
        made.append((array.ctypes.data, array.nbytes))
        value = wrap(array)
        keep(array, value)
        return value

    at = _array_in(hand(function())).ctypes.data
    return made[0][0] <= at < made[0][0] + made[0][1]


@pytest.mark.parametrize("hand", HANDS)
@pytest.mark.parametrize("wrap", WRAPS)
def test_what_nobody_else_has_is_not_copied(hand: Any, wrap: Any) -> None:
    assert _is_kept(hand, wrap)


@pytest.mark.parametrize("hand", HANDS)
@pytest.mark.parametrize("wrap", WRAPS)
def test_what_somebody_has_is_copied(hand: Any, wrap: Any) -> None:
    keepers = [
        lambda array, _: KEPT.append(array),
        lambda array, _: KEPT.append(weakref.ref(array)),
        lambda array, _: KEPT.append(memoryview(array)),
        lambda array, _: KEPT.append(np.frombuffer(array)),
        lambda _, value: KEPT.append(value),
        lambda _, value: KEPT.append(weakref.ref(_array_in(value))),
    ]
    try:
        for keep in keepers:
            assert not _is_kept(hand, wrap, keep)
    finally:
        KEPT.clear()


@pytest.mark.parametrize("hand", HANDS)
@pytest.mark.parametrize("wrap", WRAPS)
def test_a_variable_that_is_given_up_is_no_reference(hand: Any, wrap: Any) -> None:
    made = []

    def function() -> Any:
        array = np.zeros(6)
        made.append(array.ctypes.data)
        return wrap(array)

    value = function()
    value = hand(value, value := None)
    assert made[0] <= _array_in(value).ctypes.data < made[0] + 48


@pytest.mark.parametrize("hand", HANDS)
def test_memory_that_numpy_did_not_make_is_copied(hand: Any) -> None:
    memory = bytearray(48)
    given = hand(np.frombuffer(memory))
    memory[:] = bytes([1]) * 48
    assert not given.any()


def test_a_read_only_view_shows_what_its_owner_writes() -> None:
    """A view is lent as it is, since nobody changes it; it is kept as a copy."""
    buffer = np.zeros(3)
    view = buffer[:]
    view.flags.writeable = False

    kept = owned(view)
    buffer[:] = 1

    assert kept.tolist() == [0, 0, 0]
    assert kept.flags.writeable
    assert lent(view) is view


def test_objects_are_copied_with_all_they_hold() -> None:
    box = BoxedList([1])
    column = np.empty(1, object)
    column[0] = box
    kept = owned({"alone": box, "column": column})
    box.parts.append(2)
    assert kept["alone"].parts == kept["column"][0].parts == [1]


def test_what_cannot_be_copied_is_shared() -> None:
    generator = (k for k in (1, 2))
    assert owned((generator,))[0] is generator


def delivered(dataset: Any, workers: Any = 0) -> Any:
    with dataset.iterator(workers=workers) as iterator:
        return [str(element).replace("\n", "") for element in iterator]


HOLDING: dict[str, Callable[[Any], Any]] = {
    "list": lambda d: d,
    "cache": lambda d: d.cache().repeat(2),
    "padded_batch": lambda d: d.padded_batch(2),
    "ragged_batch": lambda d: d.ragged_batch(2),
    "window": lambda d: d.window(2).flat_map(lambda w: w.batch(2)),
    "group_by_window": lambda d: d.group_by_window(lambda _: 0, lambda _, w: w.batch(2), 2),
    "zip": lambda d: D.zip((d, d.skip(1))).map(lambda a, b: np.stack([a, b])),
    "scan": lambda d: d.scan(np.zeros(3), lambda s, x: (s + x, x)),
    "rebatch": lambda d: d.rebatch(4),
    "interleave": lambda d: d.interleave(D.from_tensors, 2),
    "enumerate": lambda d: d.enumerate(),
    "shuffle": lambda d: d.shuffle(3, seed=1),
    "filter-shuffle": lambda d: d.filter(lambda _: True).shuffle(3, seed=1),
}


def _three(i: Any) -> Any:
    return np.full(3, i, np.float64)


@pytest.mark.parametrize("name", HOLDING)
def test_a_buffer_that_is_filled_again(name: Any) -> None:
    hold = HOLDING[name]
    expected = delivered(hold(D.range(5).map(_three).map(lambda x: x + 1.0)))
    for function in (Filled(1), Filled(1, view=True), Pooled(1), Pooled(1, view=True)):
        for workers in (0, 1):
            found = delivered(hold(D.range(5).map(_three).map(function)), workers)
            assert found == expected, (function, workers)


def test_a_view_of_a_global_is_changed_by_nobody() -> None:
    one_by_one = D.range(4).map(Global(1))
    before = delivered(one_by_one)
    changed = delivered(one_by_one.map(Changed(1)))
    assert delivered(one_by_one.map(Changed(1))) == changed
    for element in one_by_one:
        element[:] = -1
    assert delivered(one_by_one) == before


def test_a_function_may_change_a_record_of_a_source() -> None:
    for kind in ("array", "dict", "box"):
        changed = D.from_source(Kept(3, kind)).map(Changed(2))
        for workers in (0, 2):
            assert delivered(changed, workers) == delivered(changed, workers)


FIELDS = np.dtype([("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_struct_that_is_a_view_of_one_buffer(workers: Any) -> None:
    buffer = np.zeros(1, FIELDS)

    def parse(i: Any) -> Any:
        buffer["a"] = i
        return buffer[0]

    found = [int(n) for batch in batches(D.range(40).map(parse), workers) for n in batch["a"]]
    assert found == list(range(40))


def batches(dataset: Any, workers: Any) -> Any:
    with dataset.batch(5).iterator(workers=workers) as iterator:
        return list(iterator)


def _times_ten(row: Any) -> Any:
    row["a"] *= 10
    return row


def test_a_struct_that_a_function_changes_is_not_the_source_s() -> None:
    rows = np.zeros(3, FIELDS)
    rows["a"] = 1, 2, 3
    within = {"row": rows[0]}
    for dataset in (
        D.from_source(rows).map(_times_ten),
        D.from_list(list(rows)).map(_times_ten),
        D.from_tensors(rows[0]).map(_times_ten).repeat(2),
        D.from_tensors(within).map(lambda x: _times_ten(x["row"])),
    ):
        for workers in (0, 1):
            first = delivered(dataset, workers)
            assert first[0] == "(10, 0.0)"
            assert delivered(dataset, workers) == first
        assert rows["a"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_struct_of_read_only_memory_cannot_be_changed(workers: Any) -> None:
    rows = np.zeros(3, FIELDS)
    with pytest.raises(ValueError, match="read-only"):
        delivered(D.from_tensor_slices(rows).map(_times_ten), workers)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("source", ["from_source", "from_list", "from_tensors"])
def test_arrays_within_an_array_of_objects_are_changed_for_one_pass(
    source: Any, workers: Any
) -> None:
    def add(x: Any) -> Any:
        x[0] += 100
        return x[0]

    rows = Kept(3, "arrays").records
    before = str(rows)
    changed = getattr(D, source)(rows[0] if source == "from_tensors" else rows).map(add)

    found = delivered(changed.repeat(2), workers)

    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert str(rows) == before


@pytest.mark.parametrize("workers", [0, 1])
def test_objects_of_a_list_are_changed_for_one_pass(workers: Any) -> None:
    def add(element: Any) -> Any:
        element["r"].add(len(element["r"]))
        return len(element["r"])

    rows: list[Any] = [{"r": set()}, {"r": {0}}]
    changed = D.from_list(rows).map(add).repeat(3)
    assert delivered(changed, workers) == ["1", "2"] * 3
    assert rows == [{"r": set()}, {"r": {0}}]


def test_what_a_source_keeps_is_not_delivered() -> None:
    source = Kept(2, "dict")
    for element in D.from_source(source):
        element["x"] += 1
        element["more"] = 1
    assert delivered(D.from_source(source)) == delivered(D.from_source(Kept(2, "dict")))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_consumer_changes_what_a_cache_gave(workers: Any) -> None:
    for function in (Boxed(1), Reused(1), Filled(1)):
        dataset = D.range(3).map(_three).map(function).cache()
        first = delivered(dataset, workers)
        for _ in range(2):
            with dataset.iterator(workers=workers) as iterator:
                for element in iterator:
                    if isinstance(element, BoxedList):
                        element.parts.append(9)
                    elif isinstance(element, dict):
                        element["x"][:] = 9
                        element["more"] = 9
                    else:
                        element[:] = 9
        assert delivered(dataset, workers) == first


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_may_change_what_a_cache_gave(workers: Any) -> None:
    dataset = D.range(3).map(_three).cache().map(Changed(1))
    assert delivered(dataset, workers) == delivered(dataset, workers)


def test_snapshot_leaves_the_users_buffer_alone(tmp_path: Any) -> None:
    buffer = np.zeros(2)

    def fill(i: Any) -> Any:
        buffer[:] = i
        return buffer

    for _ in range(2):
        assert len(list(D.range(3).map(fill).snapshot(str(tmp_path / "kept")))) == 3
        assert buffer.flags.writeable


def test_a_fresh_image_is_changed_in_place_without_a_copy() -> None:
    addresses = []

    def load(i: Any) -> Any:
        image = np.full((8, 8), i, np.uint8)
        addresses.append(image.ctypes.data)
        return image

    def flip(image: Any) -> Any:
        addresses.append(image.ctypes.data)
        image[:] = image[::-1].copy()
        return image

    for image in D.range(3).map(load).map(flip):
        assert {image.ctypes.data} == set(addresses)
        addresses.clear()


def test_what_fails_after_a_change_is_tried_again_with_what_it_was_given() -> None:
    calls = []

    def change(x: Any) -> Any:
        x += 1
        calls.append(x.copy())
        if len(calls) % 2:
            raise ValueError
        return x

    dataset = D.range(2).map(_three).map(change, on_error="retry", retries=1)
    assert delivered(dataset) == ["[1. 1. 1.]", "[2. 2. 2.]"]


def test_a_state_is_not_changed_for_the_next_pass() -> None:
    def add(state: Any, x: Any) -> Any:
        state.parts.append(int(x))
        return state, len(state.parts)

    dataset = D.range(3).scan(BoxedList([]), add)
    assert delivered(dataset) == delivered(dataset) == ["1", "2", "3"]
