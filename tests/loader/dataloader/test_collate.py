"""torch's collate rules on numpy alone. tests/torch/test_collate_parity.py asks torch itself."""

from __future__ import annotations

import array
import enum
import pickle
import subprocess
import sys
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tundish.errors import SpecError, TundishError
from tundish.loader.dataloader.collate import (
    CollateError,
    Rules,
    collate,
    convert,
    default_collate,
    default_convert,
)
from tundish.loader.dataloader.dtypes import as_is

TORCH = Rules(torch=True, leaf=as_is)


class Point(NamedTuple):
    x: Any
    y: Any


class Level(enum.IntEnum):
    LOW = 1


class Frozen(Mapping[str, Any]):
    """An immutable mapping that can be made of another."""

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Unmakeable(Frozen):
    """One that cannot."""

    def __init__(self, items: dict[str, Any], name: str) -> None:
        super().__init__(items)
        self.name = name


def same(found: Any, expected: Any) -> bool:
    """Equal in types, dtypes, shapes and values; an array equals one array only."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, np.ndarray):
        alike = found.dtype == expected.dtype and found.shape == expected.shape
        return bool(alike and np.array_equal(found, expected))
    if isinstance(found, Mapping):
        return list(found) == list(expected) and all(same(found[k], expected[k]) for k in found)
    if isinstance(found, (list, tuple, deque, UserList)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


@pytest.mark.parametrize(
    ("batch", "dtype"),
    [
        ([1, 2], "int64"),
        ([True, False], "bool"),
        ([1.5, 2.5], "float64"),
        ([1, 2.5], "float32"),
        ([1.5, 2], "float64"),
        ([True, 2], "int64"),
        ([1, True], "int64"),
        ([True, 2.5], "float32"),
        ([1, 1j], "complex64"),
        ([Level.LOW, Level.LOW], "int64"),
        ([1.5, Decimal(1)], "float64"),
        ([1.5, Fraction(1, 2)], "float64"),
        ([1.5, 2**70], "float64"),
        ([2**63 - 1, -(2**63)], "int64"),
        ([1, np.float64(2)], "float64"),
        ([np.int8(1), np.int8(2)], "int8"),
        ([np.int8(1), np.uint8(2)], "int16"),
        ([np.int64(1), np.float32(2)], "float32"),
        ([np.float16(1), np.int64(2)], "float16"),
        ([np.bool_(True), np.bool_(False)], "bool"),
        ([np.bool_(True), 1.5], "float32"),
        ([np.uint16(1), np.uint16(2)], "uint16"),
        ([np.complex64(1), np.float64(2)], "complex128"),
        ([np.int64(1), np.array(2)], "int64"),
        ([np.array(1, "f4"), 2.5], "float32"),
        ([np.array(1, "f4"), np.float64(2)], "float64"),
    ],
)
def test_numbers_become_one_column(batch: list[Any], dtype: str) -> None:
    for rules in (default_collate, lambda values: collate(values, TORCH)):
        kind = complex if dtype.startswith("complex") else float
        expected = batch if dtype == "int64" else [kind(x) for x in batch]

        assert same(rules(batch), np.array(expected, dtype))


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ("f4 f8", "f8"),
        ("i8 f4", "f4"),
        ("f2 i8", "f2"),
        ("u8 f2", "f2"),
        ("u1 i1", "i2"),
        ("i4 u1", "i4"),
        ("? i1", "i1"),
        ("c8 f8", "c16"),
        ("f2 c8", "c8"),
        ("u2 u2", "u2"),
        ("f2 f2", "f2"),
        ("? ?", "?"),
        ("i8 q", "i8"),
    ],
)
def test_arrays_widen_by_kind_before_width(dtypes: str, expected: str) -> None:
    batch = [np.ones((2, 3), dtype) for dtype in dtypes.split()]

    for rules in (default_collate, lambda values: collate(values, TORCH)):
        assert same(rules(batch), np.ones((2, 2, 3), expected))


@pytest.mark.parametrize(
    "one",
    [
        np.array(3),
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(10)[::3],
        np.broadcast_to(np.arange(3), (2, 3)),
        np.ma.zeros(2),
        np.zeros(2, "f4").view(np.recarray),
    ],
)
def test_any_layout_is_stacked(one: Any) -> None:
    one.flags.writeable = False
    for rules in (default_collate, lambda values: collate(values, TORCH)):
        assert same(rules([one, one]), np.stack([np.asarray(one)] * 2))


def test_a_memmap_is_an_array(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "rows", np.int32, "w+", shape=(3,))
    mapped[:] = 5
    found = default_collate([mapped, mapped])
    del mapped

    assert same(found, np.full((2, 3), 5, np.int32))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.arange(3)[::-1], ValueError),
        (np.arange(3, dtype=">i4"), ValueError),
        (np.ndarray((2,), "i4", bytearray(10), 1, (5,)), ValueError),
        (np.zeros(2, "M8[s]"), TypeError),
        (np.zeros(2, "m8[s]"), TypeError),
        (np.zeros(2, "g"), TypeError),
        (np.zeros(2, [("a", "i4")]), TypeError),
        (np.datetime64(5, "s"), TypeError),
        (np.timedelta64(5, "s"), TypeError),
        (np.uint64(2**63), TypeError),
        (np.longdouble(1.5), TypeError),
    ],
)
def test_what_no_tensor_can_be(value: Any, error: type[Exception]) -> None:
    """The whole list of what a numpy loader takes and torch refuses."""
    expected = np.stack([value, value])
    native = expected.astype(expected.dtype.newbyteorder("="))

    assert same(default_collate([value, value]), native)
    with pytest.raises(error):
        collate([value, value], TORCH)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        (("a", "b"), ("a", "b")),
        ([("a",), ("b",)], [("a", "b")]),
        ([["a"], ["b"]], [("a", "b")]),
        ([{"k": "a"}, {"k": "b"}], {"k": ["a", "b"]}),
        ([({"k": "a"},), ({"k": "b"},)], [{"k": ["a", "b"]}]),
        ([Point("a", "b"), Point("c", "d")], Point(("a", "c"), ("b", "d"))),
        ([[("a", "b")]], [[("a",), ("b",)]]),
        (["a", None, 3], ["a", None, 3]),
        ([()], []),
        ([[]], []),
        ([{}], {}),
    ],
)
def test_text_keeps_the_container_it_came_in(batch: Any, expected: Any) -> None:
    assert same(default_collate(batch), expected)


ONES = np.array([1, 1])


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ((1, 1), [ONES, ONES]),
        ([1, 1], [ONES, ONES]),
        (Point(1, 1), Point(ONES, ONES)),
        (range(1, 2), [ONES]),
        (deque([1]), deque([ONES])),
        (UserList([1]), UserList([ONES])),
        (bytearray(b"\1"), [ONES]),
        (array.array("i", [1]), [ONES]),
        ({"a": 1}, {"a": ONES}),
        (OrderedDict(b=1, a=1), OrderedDict(b=ONES, a=ONES)),
        (UserDict(a=1), UserDict(a=ONES)),
        (Frozen({"a": 1}), Frozen({"a": ONES})),
        (Unmakeable({"a": 1}, "it"), {"a": ONES}),
        (MappingProxyType({"a": 1}), MappingProxyType({"a": ONES})),
        ({"a": [(1,)]}, {"a": [[ONES]]}),
    ],
)
def test_containers_keep_their_type(sample: Any, expected: Any) -> None:
    assert same(default_collate([sample, sample]), expected)


def test_a_mapping_keeps_what_else_it_has() -> None:
    class Named(dict[str, Any]):
        name = "none"

    sample: Any = defaultdict(list, a=1)
    named = Named(a=1)
    named.name = "first"

    assert default_collate([sample, sample]).default_factory is list
    assert default_collate([named, Named(a=1)]).name == "first"
    assert same(named["a"], 1)


def test_the_first_mapping_names_the_keys() -> None:
    assert same(default_collate([{"a": 1}, {"b": 2, "a": 1}]), {"a": ONES})


@pytest.mark.parametrize(
    ("batch", "error", "notes"),
    [
        ([None], TypeError, "collating element 0 of the batch"),
        ([{"a": 1j}] * 2, TypeError, "collating element 0 of the batch, field 'a'"),
        ([Decimal(1)], TypeError, None),
        ([{1}], TypeError, None),
        ([object()], TypeError, None),
        ([np.void(b"a")], TypeError, None),
        ([np.zeros(2, "U3")], TypeError, None),
        ([np.zeros(2, "S3")], TypeError, None),
        ([np.zeros(2, object)], TypeError, None),
        ([np.zeros(2, [("a", object)])], TypeError, None),
        ([1, None], RuntimeError, "collating element 1 of the batch"),
        ([1.5, None], TypeError, "collating element 1 of the batch"),
        ([1.5, "a"], TypeError, "collating element 1 of the batch"),
        ([1.5, 1j], TypeError, "collating element 1 of the batch"),
        ([1, "a"], TypeError, "collating element 1 of the batch"),
        ([1, [2]], TypeError, "collating element 1 of the batch"),
        ([1, np.bool_(True)], TypeError, "collating element 1 of the batch"),
        ([1, np.str_("a")], TypeError, "collating element 1 of the batch"),
        ([0, 2**63], ValueError, "collating element 1 of the batch"),
        ([0.5, 10**400], OverflowError, "collating element 1 of the batch"),
        ([np.zeros(2), "a"], TypeError, "collating element 1 of the batch"),
        ([np.zeros(2), None], RuntimeError, "collating element 1 of the batch"),
        ([{"a": 1}, {}], KeyError, "collating element 1 of the batch, field 'a'"),
        ([[{"a": 1}]] * 2 + [[{}]], KeyError, "collating element 2 of the batch, field [0]['a']"),
        ([{"a": 1}, 5], TypeError, "collating element 1 of the batch, field 'a'"),
        ([(1,), 5], TypeError, "collating element 1 of the batch"),
        ([Point(1, 2), 5], TypeError, "collating element 1 of the batch"),
        ([Point(1, 2), (1,)], TypeError, None),
        ([Point(1, None)], TypeError, "collating element 0 of the batch, field .y"),
        ([], IndexError, None),
        ({0: 1}, RuntimeError, None),
    ],
)
def test_errors_say_which_element(batch: Any, error: type[Exception], notes: str | None) -> None:
    with pytest.raises(error) as caught:
        default_collate(batch)

    assert type(caught.value) is error
    if notes is not None:
        assert caught.value.__notes__ == [notes]


def test_shapes_that_differ_are_told() -> None:
    batch = [{"image": np.zeros((3, 224, 224))} for _ in range(20)]
    batch[17] = {"image": np.zeros((3, 224, 200))}

    with pytest.raises(RuntimeError) as caught:
        default_collate(batch)

    error = caught.value
    assert isinstance(error, CollateError)
    assert isinstance(error, (SpecError, TundishError, ValueError))
    assert (error.what, error.position, error.field) == ("shape", 17, "'image'")
    assert str(error) == error.message
    assert str(error) == (
        "stack expects each sample to be equal size: element 17: field 'image' has "
        "shape (3, 224, 200), batch has (3, 224, 224) from element 0"
    )


def test_an_error_takes_indices_and_crosses_processes() -> None:
    with pytest.raises(CollateError) as caught:
        default_collate([(1, [0]), (1, [0, 0])])
    error = caught.value
    assert "element 1: field [1] has length 2, batch has 1 from element 0" in str(error)

    error.index, error.first_index = 9031, "first"
    error.add_note("a note")
    there = pickle.loads(pickle.dumps(error))

    assert "element 1 (index 9031): field [1]" in str(there)
    assert str(there).endswith("from element 0 (index 'first')")
    assert vars(there) == vars(error)
    assert there.__notes__ == ["a note"]


@pytest.mark.parametrize("dtypes", ["u2 u4", "u2 i4", "? u8", "u4 c8", "M8[s] f4"])
def test_dtypes_that_do_not_widen(dtypes: str) -> None:
    one, other = dtypes.split()

    with pytest.raises(CollateError, match=r"element 1: field 'x' has dtype .*, batch has ") as e:
        default_collate([{"x": np.zeros(2, one)}, {"x": np.zeros(2, other)}])
    assert e.value.what == "dtype"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.float32(1), np.array(1, np.float32)),
        (np.bool_(True), np.array(True)),
        (np.array(3), np.array(3)),
        ((1, np.int8(2)), [1, np.array(2, np.int8)]),
        (Point(1, np.int8(2)), Point(1, np.array(2, np.int8))),
        (deque([np.int8(2), "a"]), deque([np.array(2, np.int8), "a"])),
        (range(2), [0, 1]),
        (OrderedDict(a=np.int8(2)), OrderedDict(a=np.array(2, np.int8))),
        (Frozen({"a": np.int8(2)}), Frozen({"a": np.array(2, np.int8)})),
        (Unmakeable({"a": 1}, "it"), {"a": 1}),
        (np.datetime64(5, "s"), np.array(5, "M8[s]")),
        *((x, x) for x in (None, 5, 2.5, 1j, True, "a", b"b", np.str_("c"), np.bytes_(b"d"))),
        *((x, x) for x in (np.zeros(2, "U3"), {1}, Level.LOW, bytearray(b"ab"))),
    ],
)
def test_convert(data: Any, expected: Any) -> None:
    assert same(default_convert(data), expected)


def test_convert_copies_containers_and_no_arrays() -> None:
    sample = {"a": [np.zeros(3)]}
    found = default_convert(sample)

    assert found is not sample
    assert found["a"] is not sample["a"]
    assert np.shares_memory(found["a"][0], sample["a"][0])


@pytest.mark.parametrize("data", [np.bytes_(b"a"), np.zeros(2, "M8[s]"), np.zeros(2, ">i4")])
def test_convert_refuses_for_torch(data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        convert(data, TORCH)


def test_leaves_are_what_the_rules_say() -> None:
    rules = Rules(torch=True, leaf=lambda array, dtype: ("tensor", array.tolist(), dtype))
    batch = [{"a": 1, "b": ("x", np.zeros(1))}]

    assert collate(batch, rules) == {
        "a": ("tensor", [1], None),
        "b": [("x",), ("tensor", [[0.0]], None)],
    }
    assert convert({"a": 1, "b": np.int8(3)}, rules) == {"a": 1, "b": ("tensor", 3, None)}


def test_torch_is_not_imported() -> None:
    program = (
        "import sys; from tundish.loader.dataloader.collate import default_collate as c;"
        "from tundish.loader.dataloader import streaming; c([{'a': 1}]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
