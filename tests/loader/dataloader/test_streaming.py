"""Samples written one at a time are the batch that collating all of them gives."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tundish.loader.dataloader.collate import NUMPY, Rules, collate, default_collate
from tundish.loader.dataloader.streaming import StreamedCollate


class Point(NamedTuple):
    x: Any
    y: Any


class Wide(tuple[Any, ...]):
    """A named tuple of a kind of its own."""

    __slots__ = ()
    _fields = ("x",)


MARKED = Rules(torch=True, leaf=lambda array, dtype: ("tensor", array, dtype))


def marked_collate(samples: Any) -> Any:
    return collate(samples, MARKED)


def streamed(
    samples: list[Any],
    general: Callable[[Any], Any] = default_collate,
    rules: Rules = NUMPY,
    size: int | None = None,
) -> Any:
    size = len(samples) if size is None else size
    batch = StreamedCollate(size, np.empty, rules.leaf, general, torch_rules=rules.torch)
    for sample in samples:
        batch.add(sample)
    return batch.result()


def same(found: Any, expected: Any) -> bool:
    """Equal in types, dtypes and values, NaN too."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, np.ndarray):
        alike = found.dtype == expected.dtype and found.shape == expected.shape
        return bool(alike and found.tobytes() == expected.tobytes())
    if isinstance(found, (dict, UserDict)):
        if isinstance(found, defaultdict) and found.default_factory != expected.default_factory:
            return False
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, (list, tuple, deque)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected or (found != found and expected != expected))  # noqa: PLR0124


def outcome(rule: Callable[[Any], Any], samples: Any) -> Any:
    """Return the result of a rule, or the error that is raised, with its notes."""
    try:
        return rule(samples)
    except Exception as error:  # noqa: BLE001 - compared
        return type(error), str(error), getattr(error, "__notes__", [])


# -- random nests: a schema is a strategy of values that fit each other ---------------------

DTYPES = ["?", "u1", "i2", "u2", "i4", "i8", "q", "f2", "f4", "f8", "c8", ">i4", "M8[s]", "g", "U1"]
SHAPES = [(), (1,), (3,), (0, 2), (2, 3), (2, 1, 2)]
LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda a: a,
    np.asfortranarray,
    lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a,
    lambda a: a[::-1] if a.ndim else a,
    lambda a: np.broadcast_to(a, a.shape),
]


@st.composite
def arrays_of(draw: st.DrawFn, dtype: str, shape: tuple[int, ...], layouts: int) -> np.ndarray:
    start = draw(st.integers(0, 100))
    count = int(np.prod(shape))
    values = np.arange(start, start + count).astype("i8").astype(dtype).reshape(shape)
    array = LAYOUTS[draw(st.integers(0, layouts))](values)
    array.flags.writeable = draw(st.booleans()) and array.flags.writeable
    return array


NUMBERS = [
    st.integers(-5, 5),
    st.booleans(),
    st.floats(width=32),
    st.one_of(st.integers(0, 9), st.floats(0, 1), st.booleans()),
    st.integers(-5, 5).map(np.int16),
    st.integers(0, 5).map(np.uint64),
    st.one_of(st.integers(0, 9).map(np.int8), st.just(np.float32(0.5)), st.integers(0, 9)),
]
OTHERS = [
    st.text(max_size=2),
    st.binary(max_size=2),
    st.one_of(st.text(max_size=1), st.none(), st.integers()),
    st.none(),
    st.just(Decimal(1)),
    st.just(np.datetime64(3, "s")),
    st.just(2**63),
]


@st.composite
def leaf_schemas(draw: st.DrawFn) -> Any:
    if draw(st.booleans()):
        layouts = draw(st.sampled_from([0, len(LAYOUTS) - 1]))
        return arrays_of(draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES)), layouts)
    return draw(st.sampled_from(NUMBERS + OTHERS))


def container_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, max_size=3)
    mappings = [dict, OrderedDict, lambda items: defaultdict(list, items), UserDict]
    return st.one_of(
        many.map(lambda items: st.tuples(*items)),
        many.map(lambda items: st.tuples(*items).map(list)),
        many.map(lambda items: st.tuples(*items).map(deque)),
        st.tuples(inner, inner).map(lambda items: st.builds(Point, *items)),
        st.tuples(many, st.sampled_from(mappings)).map(
            lambda drawn: st.tuples(*drawn[0]).map(
                lambda items: drawn[1](dict(zip("abc", items, strict=False)))
            )
        ),
    )


SCHEMAS = st.recursive(leaf_schemas(), container_schemas, max_leaves=6)


def spoilt(draw: st.DrawFn, value: Any, other: Any) -> Any:
    """A value with something else somewhere in it."""
    if draw(st.integers(0, 2)) == 0:
        return other
    if type(value) in {list, deque, tuple}:
        change = draw(st.sampled_from(["item", "longer", "shorter"]))
        items = list(value)
        if change == "longer":
            items.append(other)
        elif items and change == "shorter":
            items.pop()
        elif items:
            items[-1] = spoilt(draw, items[-1], other)
        return type(value)(items)
    if isinstance(value, (dict, UserDict)):
        changed = copy.copy(value)
        if changed and draw(st.booleans()):
            key = draw(st.sampled_from(list(changed)))
            item = changed.pop(key)
            if draw(st.booleans()):
                changed[key] = spoilt(draw, item, other)
        else:
            changed["extra"] = other
        return changed
    return other


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    schema = draw(SCHEMAS)
    samples = [draw(schema) for _ in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        row = draw(st.integers(0, len(samples) - 1))
        samples[row] = spoilt(draw, samples[row], draw(draw(SCHEMAS)))
    return samples


@settings(max_examples=300)
@given(batches())
def test_streamed_is_collated(samples: list[Any]) -> None:
    others = copy.deepcopy(samples)

    assert same(outcome(streamed, samples), outcome(default_collate, others))
    assert same(samples, others)  # unchanged; but a defaultdict that is asked for a key gets it


@settings(max_examples=150)
@given(batches())
def test_streamed_is_collated_for_torch(samples: list[Any]) -> None:
    found = outcome(lambda values: streamed(values, marked_collate, MARKED), samples)

    assert same(found, outcome(marked_collate, samples))


@settings(max_examples=100)
@given(SCHEMAS.flatmap(lambda schema: st.lists(schema, min_size=2, max_size=4)))
def test_samples_are_made_again_as_they_were(samples: list[Any]) -> None:
    """`general` gets equal samples, whose arrays are nobody else's."""
    before = copy.deepcopy(samples)
    columns: list[np.ndarray] = []
    seen: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        columns.append(np.empty(shape, dtype))
        return columns[-1]

    stranger = object()
    batch = StreamedCollate(len(samples) + 1, allocate, NUMPY.leaf, seen.extend, torch_rules=False)
    for sample in samples:
        batch.add(sample)
    batch.add(stranger)
    batch.result()
    for column in columns:
        column.view(np.uint8).fill(99)

    if not columns:
        assert not seen or seen[-1] is stranger
    else:
        assert same(seen[:-1], before)
        assert seen[-1] is stranger
    assert same(samples, before)


# -- single promises ------------------------------------------------------------------------


class Recorder:
    """Counts what a batch asks for."""

    def __init__(self, size: int) -> None:
        self.columns: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self.general: list[Any] = []
        self.batch = StreamedCollate(size, self._allocate, NUMPY.leaf, self._collate)

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        self.columns.append((shape, dtype))
        return np.empty(shape, dtype)

    def _collate(self, samples: Any) -> Any:
        self.general.append(samples)
        return default_collate(samples)


def test_columns_are_asked_for_once() -> None:
    recorder = Recorder(3)
    for k in range(3):
        sample = {"image": np.full((2, 2), k, "u1"), "pair": (k, np.array(0.5)), "name": "n"}
        recorder.batch.add(sample)

    assert recorder.columns == [((3, 2, 2), np.dtype("u1")), ((3,), np.dtype("f8"))]
    found = recorder.batch.result()
    assert recorder.general == []
    assert found["image"][:, 0, 0].tolist() == [0, 1, 2]
    assert same(found["pair"], [np.arange(3), np.full(3, 0.5)])
    assert found["name"] == ["n", "n", "n"]


def test_a_sample_is_let_go() -> None:
    recorder = Recorder(2)
    array = np.zeros(3)
    gone = weakref.ref(array)
    recorder.batch.add({"x": array, "extra": array})
    del array
    gc.collect()

    assert gone() is None


def test_memory_is_let_go() -> None:
    columns = [np.empty((2, 3))]
    gone = weakref.ref(columns[0])
    batch = StreamedCollate(2, lambda *_: columns[0], NUMPY.leaf, default_collate)
    batch.add((np.zeros(3),))
    batch.add((np.zeros(3),))
    found = batch.result()
    assert found[0] is columns.pop()
    del found

    assert gone() is None


def test_a_buffer_may_be_used_again() -> None:
    batch = StreamedCollate(2, np.empty, NUMPY.leaf, default_collate)
    buffer = np.zeros(2)
    for k in range(2):
        buffer[:] = k
        batch.add(buffer)

    assert batch.result().tolist() == [[0, 0], [1, 1]]


def test_what_allocate_raises_passes_through() -> None:
    class RoomError(Exception):
        pass

    def allocate(shape: Any, dtype: Any) -> np.ndarray:
        raise RoomError

    batch = StreamedCollate(2, allocate, NUMPY.leaf, default_collate)
    with pytest.raises(RoomError):
        batch.add((1, np.zeros(3)))


@pytest.mark.parametrize("size", [0, 1, 2, 4])
def test_a_wrong_size_is_still_right(size: int) -> None:
    samples = [(np.full(2, k), k) for k in range(3)]

    assert same(streamed(samples, size=size), default_collate(samples))


def test_no_samples() -> None:
    with pytest.raises(IndexError):
        StreamedCollate(2, np.empty, NUMPY.leaf, default_collate).result()


def test_numpy_takes_any_strides_and_torch_none_below_zero() -> None:
    samples = [np.arange(3), np.arange(3)[::-1]]
    calls: list[Any] = []

    def general(values: Any) -> Any:
        calls.append(values)
        return marked_collate(values)

    assert streamed(samples, general).tolist() == [[0, 1, 2], [2, 1, 0]]
    assert calls == []
    with pytest.raises(ValueError, match="negative strides"):
        streamed(samples, general, MARKED)
    assert len(calls) == 1


def test_leaf_makes_every_array() -> None:
    found = streamed([(np.zeros(1), 1, "a", np.int8(2), [1.5])], marked_collate, MARKED)

    array, number, text, scalar, inner = found
    assert all(same(x[0], "tensor") and x[2] is None for x in (array, number, scalar, inner[0]))
    assert text == ("a",)


@pytest.mark.parametrize(
    "sample",
    [
        Wide((np.zeros(2),)),
        UserDict(a=np.zeros(2)),
        deque([np.zeros(2)]),
        np.zeros(2).view(np.recarray),
        {"a": {"b": [Decimal(1)]}},
    ],
)
def test_what_is_not_known_is_collated_in_the_end(sample: Any) -> None:
    recorder = Recorder(2)
    recorder.batch.add(sample)
    recorder.batch.add(sample)
    found = outcome(lambda _: recorder.batch.result(), None)

    assert recorder.columns == []
    assert recorder.general[0][0] is sample
    assert same(found, outcome(default_collate, [sample, sample]))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(2, "f4"), np.full(2, 0.1)),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros((1, 2))),
        (np.zeros(2), np.zeros(1)),
        (np.zeros(2), [0.5, 0.5]),
        ({"a": np.zeros(2)}, {"b": np.zeros(2)}),
        ({"a": np.zeros(2), "b": 1}, {"a": np.zeros(2)}),
        ({"a": np.zeros(2)}, OrderedDict(a=np.ones(2))),
        ((np.zeros(2), 1), (np.zeros(2),)),
        ((np.zeros(2), 1), (np.zeros(2), 1, 2)),
        ([np.zeros(2)], (np.ones(2),)),
        (Point(np.zeros(2), 1), (np.ones(2), 1)),
        ({"a": np.zeros(2), "b": (1, 2)}, {"a": np.zeros(2), "b": (1,)}),
        ((np.zeros(2), 1), None),
    ],
)
def test_a_later_sample_that_does_not_fit(first: Any, second: Any) -> None:
    samples = [first, first, second, first]

    assert same(outcome(streamed, samples), outcome(default_collate, samples))


def test_a_default_dict_gets_no_new_keys() -> None:
    samples: list[Mapping[str, Any]] = [
        defaultdict(lambda: np.zeros(2), a=np.ones(2)),
        defaultdict(lambda: np.zeros(2), b=1),
    ]
    batch = StreamedCollate(2, np.empty, NUMPY.leaf, len)
    for sample in samples:
        batch.add(sample)

    assert batch.result() == 2
    assert list(samples[1]) == ["b"]


def test_an_error_of_one_column_is_the_whole_batch_s() -> None:
    with pytest.raises(TypeError) as caught:
        streamed([{"x": np.zeros(2), "y": (1, None)}] * 2)

    assert caught.value.__notes__ == ["collating element 0 of the batch, field ['y'][1]"]
