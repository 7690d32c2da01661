"""Our collate rules against torch's own, row by row, on samples with torch's tensors among them."""

from __future__ import annotations

import copy
import enum
import random
import sys
from array import array as NumberArray  # noqa: N812 - it is a class
from collections import (
    ChainMap,
    Counter,
    OrderedDict,
    UserDict,
    UserList,
    defaultdict,
    deque,
    namedtuple,
)
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import default_collate as torch_collate  # noqa: E402
from torch.utils.data import default_convert as torch_convert  # noqa: E402

from tundish.loader.dataloader.collate import (  # noqa: E402
    NUMPY,
    CollateError,
    Rules,
    collate,
    convert,
    default_collate,
    default_convert,
)
from tundish.loader.dataloader.dtypes import promoted  # noqa: E402
from tundish.loader.dataloader.streaming import StreamedCollate  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
    pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True"),
    pytest.mark.filterwarnings("ignore:the matrix subclass"),
]

Point = namedtuple("Point", "x y")  # noqa: PYI024 - the old way of making one is asked about, too


class Level(enum.IntEnum):
    LOW = 1


class Real(float):
    pass


class Own(torch.Tensor):  # type: ignore[misc,name-defined,unused-ignore]  # untyped
    pass


class OwnArray(np.ndarray):
    pass


def as_tensor(array: np.ndarray, torch_dtype: str | None) -> Any:
    tensor = torch.from_numpy(array)
    return tensor if torch_dtype is None else tensor.view(getattr(torch, torch_dtype))


TORCH = Rules(torch=True, leaf=as_tensor)


def alike(found: Any, expected: Any) -> bool:
    """Equal in types, dtypes, shapes and values."""
    if type(found) is not type(expected):
        return False
    if isinstance(expected, torch.Tensor):
        if found.dtype != expected.dtype or found.shape != expected.shape:
            return False
        if found.requires_grad != expected.requires_grad or found.device != expected.device:
            return False
        return str(found.tolist() if found.is_cpu else 0) == str(
            expected.tolist() if found.is_cpu else 0
        )
    if isinstance(expected, np.ndarray):
        return bool(found.dtype == expected.dtype and found.tolist() == expected.tolist())
    if isinstance(expected, (Mapping, UserDict)):
        return list(found) == list(expected) and all(alike(found[k], expected[k]) for k in found)
    if isinstance(expected, (list, tuple, deque, UserList)):
        return len(found) == len(expected) and all(map(alike, found, expected))
    return bool(found == expected)


def arrays_of(value: Any) -> Any:
    """Return what a numpy loader gives where torch gives this."""
    if isinstance(value, torch.Tensor):
        return numpy_or(value)
    if isinstance(value, (Mapping, UserDict)) and not isinstance(value, MappingProxyType):
        clone: Any = copy.copy(value)
        for key in value:
            clone[key] = arrays_of(value[key])
        return clone
    if isinstance(value, MappingProxyType):
        return MappingProxyType({key: arrays_of(item) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(arrays_of, value))
    if isinstance(value, (list, tuple, deque, UserList)):
        return type(value)(map(arrays_of, value))
    return value


def numpy_or(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):
        return tensor


def outcome(rule: Callable[[Any], Any], batch: Any) -> tuple[Any, Exception | None]:
    try:
        return rule(batch), None
    except Exception as error:  # noqa: BLE001 - compared
        return None, error


class Differs(Exception):  # noqa: N818 - both sides
    pass


def each(table: list[str], check: Callable[[Any], None]) -> None:
    """Check every row: one test for them all, as what surrounds a test takes longer than a row."""
    wrong = {}
    for row in table:
        try:
            check(row)
        except Exception as error:  # noqa: BLE001 - shown with its row
            wrong[row] = error

    assert not wrong


def agree(rule: Callable[[Any], Any], batch: Any, result: Any, error: Exception | None) -> None:
    """A rule does with a batch what torch did."""
    found, raised = outcome(rule, batch)
    if error is None:
        if raised is not None:
            raise raised
        if not alike(found, result):
            raise Differs(found, result)
    elif not isinstance(raised, type(error)):
        raise Differs(found, raised, error)


NUMBERS = """
[1, 2] | [True, False] | [1.5, 2.5] | [1, 2.5] | [1.5, 2] | [True, 2] | [1, True] | [False, 2.5]
[1.5, True] | [Level.LOW, Level.LOW] | [Real(2), 1] | [2**63 - 1, -(2**63)] | [1.5, 2**63] | [2**63]
[-(2**63) - 1] | [0.5, 10**400] | [1, 2**70, 1.5] | [1, None] | [1.5, None] | [1, "a"] | [1.5, "a"]
[1, [2]] | [1, 1j] | [1.5, 1j] | [1j] | [1, np.int64(3)] | [1, np.float64(3)] | [1, np.float32(3)]
[1, np.bool_(1)] | [True, np.bool_(1)] | [True, np.float32(3)] | [1.5, np.float32(3)]
[1, np.uint64(3)] | [1, np.array(3)] | [1, np.array(3.5)] | [1, np.array([3])] | [1, Decimal(1)]
[1.5, Decimal(1)] | [1.5, Fraction(1, 2)] | [1, Fraction(1, 2)] | [1, np.str_("a")] | [1, b"a"]
[np.int64(1), 2] | [np.int64(1), 2.5] | [np.int32(1), 2] | [np.float32(1), 2.5] | [np.float32(1), 2]
[np.int8(1), np.int16(2)] | [np.int8(1), np.float32(2)] | [np.float32(1.5), np.float64(2)]
[np.float64(1), np.float32(2)] | [np.bool_(1), np.bool_(0)] | [np.bool_(1), 1] | [np.bool_(1), 1.5]
[np.uint8(1), np.int8(2)] | [np.float16(1), np.float32(2)] | [np.float16(1), np.int8(2)]
[np.float64(1), np.complex64(1j)] | [np.float64(1), "a"] | [np.int64(1), None] | [np.int64(1), 2**63]
[np.int8(1), 2**40] | [np.float64(1), 2**64] | [np.intc(3)] | [np.longlong(1)] | [np.int64(1), [1]]
[np.str_("a"), np.str_("b")] | [np.bytes_(b"a")] | [np.void(b"a")] | [np.float16(1), 1e6]
"""
ARRAYS = """
[np.array(3), np.array(4)] | [np.zeros((0, 3))] * 2 | [np.asfortranarray(np.ones((2, 3)))] * 2
[np.broadcast_to(np.arange(3), (2, 3))] * 2 | [np.arange(3), np.arange(4)] | [np.arange(9)[::3]] * 2
[np.zeros(2), np.zeros(2, "U3")] | [np.zeros(2), None] | [np.zeros(2), [1.0, 2.0]]
[np.zeros(2), (1, 2)] | [np.zeros(2), 1.0] | [np.zeros(2), "a"] | [np.zeros(()), 1.5]
[np.zeros((), "f4"), 1.5] | [np.zeros((), "f4"), np.float64(1)] | [np.zeros(2), {"a": 1}]
[np.zeros(2), NumberArray("d", [1, 2])] | [np.zeros(2), bytearray(b"ab")] | [np.zeros(2), [1, "a"]]
[np.zeros((1, 2)), [[1.0, 2.0]]] | [np.zeros((2, 2)), [[1, 2], [3]]] | [np.zeros(2), [[1.0, 2.0]]]
[np.zeros(0), []] | [np.zeros(2).view(OwnArray)] | [np.ma.zeros(2)] | [np.matrix([[1, 2]])]
[np.zeros(4, "f4").view(np.recarray)] | [np.zeros(2, "U3")] | [np.zeros(2, "S3")]
[np.zeros(2, object)] | [np.zeros(2, "q")] * 2 | [np.zeros(2, "l"), np.zeros(2, "q")]
[np.zeros((2, 2, 3)), np.zeros((2, 3, 2))] | [np.full(2, 70000), np.zeros(2, "f2")]
"""
CONTAINERS = """
["a", "b"] | ("a", "b") | [("a", 1), ("b", 2)] | [["a"], ["b"]] | [{"a": "x"}, {"a": "y"}] | "abc"
[({"a": "x"},), ({"a": "y"},)] | [Point("a", 1), Point("b", 2)] | ["a", 1] | [b"a", b"b"] | [None]
[Decimal(1)] | [{1}] | [object()] | [slice(1, 2)] | [range(2)] * 2 | [deque([1, 2])] * 2
[bytearray(b"ab"), bytearray(b"cd")] | [memoryview(b"ab")] * 2 | [NumberArray("i", [1, 2])] * 2
[UserList([1, 2])] * 2 | [OrderedDict(a=1, b=2)] * 2 | [defaultdict(int, a=1)] * 2 | [{}] * 2
[()] * 2 | [[]] * 2 | [] | () | {} | {0: 1} | None | 5 | [(1, 2), (1,)] | [[1, 2], [1]]
[(1, 2), [1, 2]] | [[1, 2], (1, 2)] | [(1, 2), "ab"] | [(1, 2), 5] | [[1, 2], np.array([1, 2])]
[{"a": 1}, {}] | [{"a": 1}, {"b": 2, "a": 1}] | [{"a": 1}, [1]] | [{"a": 1}, 5] | [{"a": 1}, None]
[{0: 1}, [7]] | [Point(1, 2), (1, 2)] | [Point(1, 2), (1,)] | [Point(1, 2), (1, 2, 3)]
[Point(1, 2), 5] | ["a", None] | [ChainMap({"a": 1})] * 2 | [UserDict(a=1)] * 2
[Counter(a=1)] * 2 | [MappingProxyType({"a": 1})] * 2 | [{"a": [(1, {"b": 2.5})]}] * 3
[{"a": np.zeros(3)}, {"a": np.zeros(4)}] | np.arange(6).reshape(2, 3) | np.arange(3) | range(3)
deque([1, 2]) | [torch.Size([1, 2])] * 2 | [(1, None)] * 2 | [{"a": {"b": None}}] * 2
"""
TENSORS = """
[T(2), T(2)] | [T(2), T(3)] | [T(2), 1] | [T(2), None] | [T(2), np.zeros(2)] | [torch.tensor(1)] * 2
[np.zeros(2), T(2)] | [np.zeros(2), T(2).double()] | [1, torch.tensor(3)] | [1, torch.tensor(3.5)]
[1, torch.tensor([3])] | [1.5, torch.tensor(3)] | [np.int64(1), torch.tensor(3)]
[T(2), T(2).double()] | [T(2), T(2).bfloat16()] | [T(2).bfloat16()] * 2 | [T(2).bool()] * 2
[T(2).to(torch.uint16)] * 2 | [T(0, 3)] * 2 | [T(2).to(torch.complex64).conj()] * 2
[T(2).as_subclass(Own)] * 2 | [T(2), T(2).as_subclass(Own)] | [torch.nn.Parameter(T(2))] * 2
[T(2).requires_grad_()] * 2 | [T(2), T(2).requires_grad_()] | [T(2).to_sparse()] * 2
[T(2), T(2).to_sparse()] | [T(2, device="meta")] * 2 | [T(3, 2).t()] * 2 | [T(1, 3).expand(2, 3)] * 2
[torch.nested.nested_tensor([T(2)])] | [T(2), torch.nested.nested_tensor([T(2)])]
[{"a": T(2), "b": (T(1), 1)}] * 2 | T(2, 3) | [T(40, 40), T(40, 40)] | [T(40, 40), T(40, 41)]
[T(40, 40)] * 2 + [None] | [T(40, 40), T(40, 40).double()] | [T(40, 40).double(), T(40, 40)]
[T(40, 40).bfloat16()] * 2 | [T(40, 40).bfloat16(), T(40, 40)] | [T(40, 40).t()] * 2
[T(40, 40), T(40, 40).as_subclass(Own)] | [T(40, 40), T(40, 40).requires_grad_()]
[T(40, 40), T(40, 40).to_sparse()] | [T(40, 40), T(40, 40, device="meta")] | [T(40, 40), np.ones(2)]
[T(40, 40), torch.nested.nested_tensor([T(2)])] | [(T(40, 40), 1), (T(40, 40), 2)]
[T(40, 40).to(torch.complex64).conj()] * 2 | [{"a": T(40, 40), "b": 1}, {"a": T(40, 40)}]
[T(40, 40).to(torch.float8_e4m3fn)] * 2 | [torch._neg_view(T(40, 40))] * 2
"""
# What torch refuses and a numpy loader takes: the notes of `default_collate` have them all.
TAKEN = """
[np.uint64(1)] | [np.uint64(2**63)] | [np.ulonglong(3)] | [np.longdouble(1)] | [np.timedelta64(1, "s")]
[np.datetime64("2020")] | [np.arange(3)[::-1]] | [np.arange(3), np.arange(3)[::-1]] | [np.arange(1)[::-1]]
[np.arange(3, dtype=">i4")] | [np.arange(3, dtype="i4"), np.arange(3, dtype=">i4")]
[np.ndarray((2,), "i4", bytearray(10), 1, (5,))] | [np.zeros(2, "M8[s]")] | [np.zeros(2, "m8[s]")]
[np.zeros(2, [("a", "i4")])] | [np.zeros(2, "V3")] | [np.zeros(2, "g")] | [np.zeros(2, "G")]
[np.zeros(2, "Q")]
"""
# A sequence that takes only numbers: whether it takes an array of one item differs.
ONES = '[NumberArray("d", [1, 2])] * 2'


NAMES = {
    "np": np,
    "torch": torch,
    "NumberArray": NumberArray,
    "MappingProxyType": MappingProxyType,
    **{kind.__name__: kind for kind in (ChainMap, Counter, OrderedDict, UserDict, UserList, deque)},
    **{kind.__name__: kind for kind in (Decimal, Fraction, Level, Own, OwnArray, Point, Real)},
    "defaultdict": defaultdict,
}


def rows(table: str) -> list[str]:
    return [row.strip() for line in table.strip().splitlines() for row in line.split(" | ")]


def made(row: str) -> Any:
    """A row's batch, made anew for each rule."""

    def tensor(*shape: int, **options: Any) -> Any:
        return torch.zeros(*shape, **options)

    return eval(row, {"T": tensor, **NAMES})


KNOWN = rows(NUMBERS) + rows(ARRAYS) + rows(CONTAINERS) + rows(TENSORS)


def test_collate_for_torch_is_torch_s() -> None:
    def check(row: str) -> None:
        agree(lambda batch: collate(batch, TORCH), made(row), *outcome(torch_collate, made(row)))

    each([*KNOWN, *rows(TAKEN)], check)


def test_collate_is_torch_s_as_arrays() -> None:
    def check(row: str) -> None:
        result, error = outcome(torch_collate, made(row))
        agree(default_collate, made(row), arrays_of(result), error)

    each(KNOWN, check)


def test_numpy_takes_what_torch_refuses() -> None:
    def check(row: str) -> None:
        with pytest.raises((TypeError, ValueError)):
            torch_collate(made(row))
        if not default_collate(made(row)).dtype.isnative:
            raise Differs(row)

    each(rows(TAKEN), check)


def streamed(batch: Any, general: Callable[[Any], Any], rules: Rules) -> Any:
    stream = StreamedCollate(len(batch), np.empty, rules.leaf, general, torch_rules=rules.torch)
    for sample in batch:
        stream.add(sample)
    return stream.result()


STREAMED = [row for row in KNOWN + rows(TAKEN) if row.startswith("[")]  # one sample at a time


def test_streamed_is_torch_s() -> None:
    def check(row: str) -> None:
        _, error = outcome(torch_collate, made(row))
        found = outcome(lambda samples: streamed(samples, torch_collate, TORCH), made(row))
        agree(
            lambda _: found[0], None, *outcome(torch_collate, made(row))
        ) if error is None else None
        if (type(found[1]), str(found[1])) != (type(error), str(error)):
            raise Differs(found[1], error)

    each(STREAMED, check)


def test_streamed_is_ours() -> None:
    def check(row: str) -> None:
        def rule(samples: Any) -> Any:
            return streamed(samples, default_collate, NUMPY)

        agree(rule, made(row), *outcome(default_collate, made(row)))

    each(STREAMED, check)


CONVERTED = """
np.float32(1) | np.bool_(1) | np.str_("a") | np.array(3) | np.zeros(2, "U3") | np.zeros(2, object)
np.zeros(2, "c8") | (1, np.int64(2)) | Point(1, np.int64(2)) | [np.int64(2), "a"] | {"a": np.int8(1)}
deque([np.int64(1)]) | range(2) | bytearray(b"a") | memoryview(b"ab") | None | 1j | {1} | 5 | 2.5
True | "a" | b"a" | torch.zeros(2) | OrderedDict(a=np.int64(1)) | ChainMap({"a": 1}) | Level.LOW
MappingProxyType({"a": np.int64(1)}) | NumberArray("i", [1, 2]) | NumberArray("d", [1, 2]) | ()
[] | {} | UserDict(a=np.int8(1)) | np.zeros(2, "u2") | np.complex64(1)
np.zeros(2).view(OwnArray) | np.longlong(2) | torch.zeros(2).bfloat16() | np.add | [Point(1, 2)]
np.zeros(2).view(np.recarray) | np.matrix([[1, 2]])
"""
TAKEN_CONVERTED = """
np.bytes_(b"a") | np.datetime64("2020") | np.void(b"abc") | np.zeros(2, "M8[s]") | np.zeros(2, "V3")
np.uint64(3) | np.longdouble(1) | np.arange(3)[::-1] | np.zeros(2, ">i4") | np.timedelta64(1) | np.zeros(2, "Q")
"""


def test_convert_for_torch_is_torch_s() -> None:
    def check(row: str) -> None:
        agree(lambda data: convert(data, TORCH), made(row), *outcome(torch_convert, made(row)))

    each(rows(CONVERTED) + rows(TAKEN_CONVERTED), check)


def test_convert_is_torch_s_as_arrays() -> None:
    def check(row: str) -> None:
        result, error = outcome(torch_convert, made(row))
        agree(default_convert, made(row), arrays_of(result), error)

    each(rows(CONVERTED), check)


def test_numpy_converts_what_torch_refuses() -> None:
    def check(row: str) -> None:
        with pytest.raises((TypeError, ValueError)):
            torch_convert(made(row))
        default_convert(made(row))

    each(rows(TAKEN_CONVERTED), check)


def test_dtypes_widen_as_in_torch() -> None:
    def check(chars: str) -> None:
        one, other = map(np.dtype, chars)
        batch = [np.ones(2, one), np.ones(2, other)]
        result, error = outcome(torch_collate, batch)
        agree(lambda values: collate(values, TORCH), batch, result, error)
        agree(default_collate, batch, arrays_of(result), error)
        if error is None and promoted(one, other) != result.numpy().dtype:
            raise Differs(promoted(one, other), result)

    each(["".join(pair) for pair in product("?bBhHilILefdFD", repeat=2)], check)


def test_random_numbers_are_collated_as_by_torch() -> None:
    rng = random.Random(3)
    kinds = (
        "1 2.5 True np.int8(3) np.float16(2) np.int64(4) np.float64(1.5) np.uint8(3) np.float32(7)"
    )
    values = [eval(kind) for kind in f"{kinds} np.uint16(3) np.bool_(1) None 1j 2**63".split()]

    def check(choices: str) -> None:
        batch = [values[int(k)] for k in choices.split()]
        result, error = outcome(torch_collate, batch)
        agree(lambda samples: collate(samples, TORCH), batch, result, error)
        agree(default_collate, batch, arrays_of(result), error)

    picks = [rng.choices(range(len(values)), k=rng.randint(1, 4)) for _ in range(2000)]
    each([" ".join(map(str, pick)) for pick in picks], check)


@pytest.mark.parametrize("row", ["[None]", "[1j]", '[np.zeros(2, "U3")]', "[{1}]"])
def test_the_message_of_a_refusal_is_torch_s(row: str) -> None:
    _, ours = outcome(default_collate, made(row))
    _, theirs = outcome(torch_collate, made(row))

    assert str(ours) == str(theirs)


@pytest.mark.parametrize("row", ["[(1, 2), (1,)]", "[np.arange(3), np.arange(4)]"])
def test_a_misfit_s_message_begins_as_torch_s(row: str) -> None:
    _, ours = outcome(default_collate, made(row))
    _, theirs = outcome(torch_collate, made(row))

    assert str(ours).split()[:3] == str(theirs).split()[:3]
    assert "element 1" in str(ours)


@pytest.mark.parametrize("rules", [NUMPY, TORCH], ids=["numpy", "torch"])
def test_tensors_that_differ_are_told(rules: Rules) -> None:
    with pytest.raises(CollateError, match="element 1: field 'x' has shape ") as caught:
        collate([{"x": torch.zeros(3)}, {"x": torch.zeros(4)}], rules)
    assert (caught.value.found, caught.value.expected) == ("(4,)", "(3,)")

    with pytest.raises(TypeError) as caught_type:
        collate([{"x": torch.zeros(3)}, {"x": None}], rules)
    assert caught_type.value.__notes__ == ["collating element 1 of the batch, field 'x'"]


def test_torch_s_default_dtype_is_used() -> None:
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, torch.float16, torch.float32):
            torch.set_default_dtype(dtype)
            for row in ("[1, 2.5]", "[np.zeros(0), []]"):
                agree(lambda b: collate(b, TORCH), made(row), *outcome(torch_collate, made(row)))
    finally:
        torch.set_default_dtype(before)


# -- streaming tensors ------------------------------------------------------------------------


class Recorder:
    """A streamed batch of a torch loader, and what it asked for."""

    def __init__(self, size: int) -> None:
        self.columns: list[np.ndarray] = []
        self.leaves: list[str | None] = []
        self.general: list[Any] = []
        self.batch = StreamedCollate(size, self._allocate, self._leaf, self._collate)

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        self.columns.append(np.empty(shape, dtype))
        return self.columns[-1]

    def _leaf(self, array: np.ndarray, torch_dtype: str | None) -> Any:
        self.leaves.append(torch_dtype)
        return as_tensor(array, torch_dtype)

    def _collate(self, samples: Any) -> Any:
        self.general.append(samples)
        return torch_collate(samples)


DTYPES = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64"


@pytest.mark.parametrize("name", [*DTYPES.split(), "complex64", "complex128"])
def test_large_tensors_go_into_their_rows(name: str) -> None:
    recorder = Recorder(3)
    samples = [
        torch.arange(k, k + 5000).to(getattr(torch, name)).reshape(50, 100) for k in range(3)
    ]
    for sample in samples:
        recorder.batch.add({"x": sample.t().contiguous().t()})
    found = recorder.batch.result()

    (column,) = recorder.columns
    assert column.shape == (3, 50, 100)
    assert recorder.leaves == ["bfloat16" if name == "bfloat16" else None]
    assert recorder.general == []
    assert found["x"].data_ptr() == column.__array_interface__["data"][0]
    assert alike(found, torch_collate([{"x": sample} for sample in samples]))


def test_small_tensors_are_stacked_at_once() -> None:
    recorder = Recorder(2)
    for k in range(2):
        recorder.batch.add((torch.full((3,), k), np.full(2, k)))
    found = recorder.batch.result()

    assert [column.shape for column in recorder.columns] == [(2, 2)]
    assert alike(found, torch_collate([(torch.full((3,), k), np.full(2, k)) for k in range(2)]))


def test_a_sample_s_storage_is_left_as_it_is() -> None:
    recorder = Recorder(1)
    sample = torch.zeros(2000)
    recorder.batch.add(sample)
    recorder.batch.result()

    assert sample.resize_(4000).shape == (4000,)  # refused after sample.numpy()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_earlier_tensors_are_made_again(name: str) -> None:
    recorder = Recorder(3)
    dtype = getattr(torch, name)
    samples = [{"x": torch.full((5000,), float(k)).to(dtype), "y": k} for k in range(2)]
    for sample in samples:
        recorder.batch.add(sample)
    recorder.batch.add({"x": torch.zeros(5001), "y": 2})
    with pytest.raises(RuntimeError, match="stack expects each tensor"):
        recorder.batch.result()

    recorder.columns[0].fill(99)
    assert alike(recorder.general[0][:2], samples)


def test_without_torch_tensors_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules look torch up in the loaded modules, each time anew."""
    sample = torch.zeros(2)
    monkeypatch.delitem(sys.modules, "torch")

    with pytest.raises(TypeError, match="found <class 'torch"):
        default_collate([sample])


def test_every_row_is_named_once() -> None:
    assert all(one != other for one, other in pairwise(sorted(KNOWN + rows(TAKEN))))
