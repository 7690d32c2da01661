"""Descriptions of values: equal for equal values, whatever their identity, order or history."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import decimal
import enum
import functools
import gc
import io
import json
import logging
import operator
import os
import random
import re
import socket
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from tests.newer import STRING_DTYPE

from tundish.errors import FingerprintError
from tundish.snapshot.fingerprint import keys
from tundish.snapshot.fingerprint.describer import Describer
from tundish.snapshot.fingerprint.differences import differences
from tundish.snapshot.fingerprint.keys import key_of, text_of


def describe(value: Any, path: str = "") -> Any:
    """Describe a value, and the functions and classes in it."""
    describer = Describer()
    found = describer.describe(value, path)
    code = describer.definitions()
    return {"value": found, "code": code} if code else found


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Settings:
    size: int = 3
    names: list[str] = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Pickled:
    """Says itself what it is copied with."""

    def __init__(self, size: int) -> None:
        self.size, self.lock = size, threading.Lock()

    def __getstate__(self) -> Any:
        return {"size": self.size}


class Hooked:
    def __init__(self, version: Any) -> None:
        self.version, self.file = version, io.StringIO()

    def __tundish_fingerprint__(self) -> Any:
        return {"version": self.version}


def counted(n: int, how: Callable[[Any], Any]) -> Any:
    """Return an object whose `__call__` is a function that was wrapped by something other than a function."""

    class Counted:
        @how
        def __call__(self, x: Any) -> Any:
            return x + n

    return Counted()


def through_partial(function: Any) -> Any:
    return functools.partialmethod(function)


class Wrapped:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


class Lazy:
    def __init__(self) -> None:
        self.size = 3

    @functools.cached_property
    def table(self) -> list[int]:
        return [self.size] * 3


def padded(dtype: Any, value: Any, filled: int) -> Any:
    """Two equal values with anything in bytes that belong to no field."""
    array = np.full(2 * np.dtype(dtype).itemsize, filled, np.uint8).view(dtype)
    if array.dtype.names is None:
        array[:] = value
        if np.finfo(np.longdouble).nmant == 63:
            array.view(np.uint8).reshape(2, -1)[:, 10:] = filled
    else:
        for name, part in zip(array.dtype.names, value, strict=True):
            array[name] = part
    return array


def text(value: Any) -> str:
    described = describe(value)
    assert json.loads(json.dumps(described)) == described or "NaN" in json.dumps(described)
    return text_of(described)


WRAPPED: list[list[Callable[[], Any]]] = [
    [functools.partial(counted, n, how)]
    for n in (1, 2)
    for how in (functools.lru_cache, through_partial, Wrapped)
]

# One value a group of equal ones; any two of different groups must differ.
VALUES: list[list[Callable[[], Any]]] = [
    [lambda: None],
    *WRAPPED,
    [lambda: 0],
    [lambda: False],
    [lambda: 0.0],
    [lambda: -0.0],
    [lambda: 1],
    [lambda: 1.0],
    [lambda: True],
    [lambda: 10**30],
    [lambda: 0.1],
    [lambda: 0.1 + 2**-56],
    [lambda: float("nan")],
    [lambda: float("inf")],
    [lambda: -float("inf")],
    [lambda: 1j],
    [lambda: complex(0, float("nan"))],
    [lambda: "1"],
    [lambda: "nan"],
    [lambda: b"1"],
    [lambda: bytearray(b"1")],
    [lambda: "\ud800"],
    [lambda: "x" * 1000],
    [lambda: "x" * 1001],
    [lambda: b"x" * 1000],
    [lambda: ...],
    [lambda: NotImplemented],
    [lambda: range(3)],
    [lambda: slice(3)],
    [list],
    [lambda: ()],
    [dict],
    [set],
    [frozenset],
    [lambda: [1, 2]],
    [lambda: (1, 2)],
    [lambda: [2, 1]],
    [lambda: [[1], 2]],
    [lambda: [[1, 2]]],
    [lambda: list(range(100))],
    [lambda: tuple(range(100))],
    [lambda: [*range(99), 100]],
    [lambda: [*range(99), 99.0]],
    [lambda: {"a": 1, "b": 2}],
    [lambda: {"b": 2, "a": 1}],
    [lambda: types.MappingProxyType({"about": 2, "a": 1})],
    [lambda: {"a": 1, "about": 2}],
    [lambda: {1: "a"}],
    [lambda: {"1": "a"}],
    [lambda: {"a", "b", "c"}, lambda: {"c", "b", "a"}, lambda: set("abcabc")],
    [lambda: frozenset("abc"), lambda: frozenset("cab")],
    [lambda: {("a", 1), ("b", 2)}, lambda: {("b", 2), ("a", 1)}],
    [lambda: {1, "1"}, lambda: {"1", 1}],
    [lambda: collections.OrderedDict(a=1)],
    [lambda: collections.defaultdict(list, a=1)],
    [lambda: collections.deque([1, 2])],
    [lambda: collections.deque([1, 2], maxlen=3)],
    [lambda: collections.Counter("ab")],
    [lambda: Pair(1, 2)],
    [lambda: Pair(2, 1)],
    [lambda: Colour.RED],
    [lambda: Colour.BLUE],
    [lambda: Colour],
    [lambda: Flags.A | Flags.B],
    [lambda: Flags.A],
    [Settings],
    [lambda: Settings(4)],
    [lambda: Settings(names=["a"])],
    [lambda: Slotted(1, 2)],
    [lambda: Slotted(2, 1)],
    [lambda: Plain(a=1, b=2), lambda: Plain(b=2, a=1)],
    [lambda: Plain(a=1, about=2)],
    [lambda: Plain(a=1, about=3)],
    [lambda: Plain(function="f")],
    [lambda: Plain(function="g")],
    [lambda: Pickled(3)],
    [lambda: Pickled(4)],
    [lambda: Hooked(3), lambda: Hooked(3)],
    [lambda: Hooked(4)],
    [lambda: Path("a"), lambda: PurePosixPath("a")],
    [lambda: Path("b")],
    [lambda: re.compile("a")],
    [lambda: re.compile("a", re.IGNORECASE)],
    [lambda: re.compile(b"a")],
    [lambda: decimal.Decimal("1.0")],
    [lambda: decimal.Decimal("1.00")],
    [object],
    [lambda: functools.partial(int, base=2)],
    [lambda: functools.partial(int, base=3)],
    [lambda: functools.partial(float)],
    [lambda: operator.itemgetter(1)],
    [lambda: operator.itemgetter(2)],
    [lambda: int],
    [lambda: float],
    [lambda: len],
    [lambda: np.sin],
    [lambda: np.sum],
    [lambda: np.random.rand],
    [lambda: random.random],
    [lambda: random.randint],
    [lambda: random.Random(1).random],
    [lambda: "abc".upper],
    [lambda: "abd".upper],
    [lambda: str.upper],
    [lambda: [3].append],
    [lambda: logging.getLogger("a")],
    [lambda: list[int]],
    [lambda: int | None],
    [lambda: json],
    [lambda: np.dtype("i4")],
    [lambda: np.dtype(">i4")],
    [lambda: np.dtype([("a", "i4"), ("b", "f8")])],
    [lambda: np.dtype([("a", "i4"), ("b", "f8")], align=True)],
    [lambda: np.dtype("M8[ns]")],
    [lambda: np.dtype(ml_dtypes.bfloat16)],
    [lambda: np.float32(0.5)],
    [lambda: np.float64(0.5)],
    [lambda: np.float32("nan")],
    [lambda: np.str_("a")],
    [lambda: np.datetime64("2020", "D")],
    [lambda: np.longdouble(0.5), lambda: np.longdouble("0.5")],
    [lambda: np.array(0.5)],
    [lambda: np.arange(6).reshape(2, 3), lambda: np.arange(6).reshape(2, 3).copy("F")],
    [lambda: np.arange(6).reshape(3, 2)],
    [lambda: np.arange(6, dtype="i4").reshape(2, 3)],
    [lambda: np.arange(6, dtype=">i8").reshape(2, 3)],
    [lambda: np.arange(6), lambda: (np.arange(12) // 2)[::2], lambda: np.arange(9)[:6]],
    [lambda: np.zeros((0, 3))],
    [lambda: np.zeros((3, 0))],
    [lambda: np.array(["a", "bc"])],
    [lambda: np.array(["a", "bc"], object)],
    [lambda: np.array([0.5], ml_dtypes.bfloat16)],
    [lambda: np.array([0.5], np.float16)],
    [lambda: np.array([(1, "x")], [("a", "i4"), ("b", object)])],
    [lambda: np.array([(1, 2)], [("a", "i1"), ("b", "i8")])],
    [lambda: np.array([(1, 2)], np.dtype([("a", "i1"), ("b", "i8")], align=True))],
    [lambda: np.ma.masked_array([1, 2], [True, False])],
    [lambda: np.random.default_rng(1), lambda: np.random.default_rng(1)],
    [lambda: np.random.default_rng(2)],
    [lambda: (rng := np.random.default_rng(1), rng.random())[0]],
    [lambda: np.dtype({"names": ["a"], "formats": ["i4"], "itemsize": 8})],
    [lambda: np.dtype({"names": ["a"], "formats": ["i4"], "itemsize": 4})],
    [lambda: padded(np.longdouble, 0.5, 0), lambda: padded(np.longdouble, 0.5, 255)],
    [
        lambda: padded(np.dtype([("a", "i1"), ("b", "i4")], align=True), (1, 2), 0),
        lambda: padded(np.dtype([("a", "i1"), ("b", "i4")], align=True), (1, 2), 255),
    ],
    [lambda: padded(np.dtype([("a", "i1"), ("b", "i4")], align=True), (1, 3), 0)],
    [lambda: np.random.Generator(np.random.Philox(1))],
    [lambda: np.random.RandomState(1)],
    [lambda: np.random.SeedSequence(1)],
    [Lazy, lambda: (lazy := Lazy(), lazy.table)[0]],
]  # fmt: skip
if STRING_DTYPE:
    VALUES += [
        [lambda: np.array(["a", "bc"], STRING_DTYPE)],
        [lambda: np.array(["a", "bd"], STRING_DTYPE)],
    ]


def test_equal_values_have_one_description_and_no_others() -> None:
    seen: dict[str, int] = {}
    for n, group in enumerate(VALUES):
        texts = {text(make()) for make in group}
        assert len(texts) == 1, n
        said = texts.pop()
        assert seen.setdefault(said, n) == n, (seen.get(said), n, said)


def test_the_same_in_a_process_with_another_hash_seed() -> None:
    here = [key_of(describe(group[0]())) for group in VALUES]
    code = (
        "from tests.snapshot.fingerprint.test_fingerprint import *\n"
        "print(json.dumps([key_of(describe(group[0]())) for group in VALUES]))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "77", "PATH": "", "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert json.loads(done.stdout) == here


# -- sharing and cycles ----------------------------------------------------------------------------


def test_whether_parts_are_shared_does_not_count() -> None:
    part = [1, 2]
    shared = Plain(a=part, b=part, c=(part, {"d": part}))
    apart = Plain(a=[1, 2], b=[1, 2], c=([1, 2], {"d": [1, 2]}))

    assert text(shared) == text(apart)


def ring(n: int) -> Any:
    nodes = [Plain(value=k) for k in range(n)]
    for k, node in enumerate(nodes):
        vars(node).update(next=nodes[(k + 1) % n], previous=nodes[k - 1])
    return nodes[0]


def test_cycles_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    parent = Plain(name="parent")
    vars(parent)["children"] = [Plain(name=n, parent=parent) for n in "ab"]

    assert text(loop) != text([1, [1]])
    assert text(ring(5)) == text(ring(5))
    assert text(ring(5)) != text(ring(6))
    assert text([parent, parent]) == text([parent, parent])
    assert len(text(parent)) < 1000


def test_what_all_refers_to_all_is_walked_once() -> None:
    def tangle(last: int) -> Any:
        nodes = [Plain(value=k) for k in range(40)]
        vars(nodes[-1])["value"] = last
        for node in nodes:
            vars(node)["others"] = [other for other in nodes if other is not node]
        return nodes[0]

    assert text(tangle(39)) == text(tangle(39))
    assert text(tangle(39)) != text(tangle(40))


def test_a_set_of_objects_within_a_cycle() -> None:
    def made(names: str) -> Any:
        owner = Plain()
        vars(owner)["members"] = {Plain(name=name, owner=owner) for name in names}
        return owner

    assert text(made("abc")) == text(made("cba"))
    assert text(made("abc")) != text(made("abd"))


def test_functions_in_a_set() -> None:
    def made(order: int) -> Any:
        return set([lambda x: x + 1, lambda x: x + 2, lambda x: x + 3][::order])

    assert text(made(1)) == text(made(-1))


def test_too_deep_a_nest_is_an_error() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]

    with pytest.raises(FingerprintError, match="nested too deeply"):
        describe(deep)


def test_a_function_that_refers_to_itself() -> None:
    def made(step: int) -> Any:
        def down(n: int) -> int:
            return 0 if n <= 0 else down(n - step)

        return down

    assert text(made(1)) == text(made(1))
    assert text(made(1)) != text(made(2))


# -- functions -------------------------------------------------------------------------------------


def test_a_function_attribute_and_a_hook_on_a_function() -> None:
    def made(**attributes: Any) -> Any:
        def function() -> Any:
            return function.size  # type: ignore[attr-defined]  # that is the test

        vars(function).update(attributes)
        return function

    pinned = made(__tundish_fingerprint__="v1")

    assert text(made(size=1)) != text(made(size=2))
    assert text(pinned) == text(made(__tundish_fingerprint__=lambda: "v1"))
    assert text(pinned) != text(made(__tundish_fingerprint__="v2"))


def test_what_a_decorator_of_the_standard_library_holds_is_seen() -> None:
    def made(step: int) -> list[Any]:
        @contextlib.contextmanager
        def context() -> Any:
            yield step

        @functools.singledispatch
        def several(x: Any) -> Any:
            return x

        @several.register
        def _(x: int) -> Any:
            return x + step

        several(1)  # fills its cache
        return [context, several, functools.lru_cache(lambda: step), functools.cache(several)]

    one, two = made(1), made(2)
    for mine, theirs, again in zip(one, two, made(1), strict=True):
        assert text(mine) != text(theirs)
        assert text(mine) == text(again)


class Bag:
    scale = 2

    def __init__(self, size: int, other: int) -> None:
        self.size, self.other = size, other

    @property
    def double(self) -> int:
        return self.size * self.scale


class Answering(Bag):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("other" if name == "size" else name)


class Checked(Bag):
    @property
    def size(self) -> int:
        return int(vars(self)["size"]) + self.other

    @size.setter
    def size(self, size: int) -> None:
        vars(self)["size"] = size


class HookedBag(Bag):
    def __tundish_fingerprint__(self) -> Any:
        return self.size


def test_of_an_object_only_what_is_read_counts_if_that_is_certain() -> None:
    def reading(bag: Any) -> list[str]:
        return [text(f) for f in (lambda: bag.size, lambda: bag.double, lambda: bag)]

    one, two, three = (reading(Bag(*given)) for given in ((1, 1), (1, 2), (2, 1)))
    answers, other = reading(Answering(1, 1)), reading(Answering(1, 2))
    hooked, same = reading(HookedBag(1, 1)), reading(HookedBag(1, 2))

    assert [a == b for a, b in zip(one, two, strict=True)] == [True, False, False]
    assert [a == b for a, b in zip(one, three, strict=True)] == [False, False, False]
    assert answers[0] != other[0]  # what it answers is its own affair
    assert hooked == same
    assert hooked != reading(HookedBag(2, 1))
    assert reading(Checked(1, 1))[0] != reading(Checked(1, 2))[0]
    opened = Hooked(3)
    assert text(lambda: [opened.file.read()])


def test_of_a_class_only_what_is_read_counts_if_that_is_certain() -> None:
    def reading(scale: int, other: int) -> list[str]:
        class Config:
            size = 1

            @classmethod
            def scaled(cls) -> int:
                return cls.size * scale

        Config.other = other  # type: ignore[attr-defined]  # set later
        return [text(f) for f in (lambda: Config.size, lambda: -Config.scaled(), lambda: [Config])]

    one = reading(2, 1)

    assert [a == b for a, b in zip(one, reading(3, 1), strict=True)] == [True, False, False]
    assert [a == b for a, b in zip(one, reading(2, 2), strict=True)] == [True, False, False]


def test_an_installed_function_counts_by_name_and_version() -> None:
    found = describe(np.linalg.norm)
    ours = describe(keys.digest_of)

    assert found["version"] == np.__version__
    assert ours == {"installed": "tundish.snapshot.fingerprint.keys.digest_of"}
    assert describe(json.loads) == {"installed": "json.loads"}


def test_a_class_that_was_made_in_a_function() -> None:
    def made(step: int) -> Any:
        class Step:
            def __call__(self, x: int) -> int:
                return x + step

        return Step()

    assert text(made(1)) == text(made(1))
    assert text(made(1)) != text(made(2))
    assert differences(describe(made(1)), describe(made(2))) == [
        "helper tests.snapshot.fingerprint.test_fingerprint.Step.__call__: captured step: 1 -> 2"
    ]


def test_a_hugging_face_dataset_counts_by_its_own_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its tables are not read: a lock in it is not met."""
    monkeypatch.setattr(Plain, "__module__", "datasets.arrow_dataset")

    def made(name: str) -> Any:
        return Plain(_fingerprint=name, table=threading.Lock())

    assert text(made("a")) == text(made("a"))
    assert text(made("a")) != text(made("b"))


# -- what has no description -----------------------------------------------------------------------


def generator() -> Any:
    yield 1


REFUSED: dict[str, Callable[[], Any]] = {
    "file": lambda: io.BufferedReader(io.FileIO(__file__)),
    "socket": socket.socket,
    "generator": generator,
    "iterator": lambda: iter([1, 2]),
    "map": lambda: map(abs, [1]),
    "lock": threading.Lock,
    "event": threading.Event,
    "local": threading.local,
    "thread": threading.Thread,
    "ctypes": lambda: ctypes.c_int(3),
    "pointer": lambda: ctypes.pointer(ctypes.c_int(3)),
    "weak reference": lambda: weakref.ref(Plain()),
    "weak dict": weakref.WeakKeyDictionary,
    "frame": sys._getframe,
    "ufunc": lambda: np.frompyfunc(abs, 1, 1),
    "memoryview": lambda: memoryview(b"abc"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_state_is_refused_with_its_place(what: str) -> None:
    made = REFUSED[what]()
    holder = Plain(parts={"x": (1, made)})

    with pytest.raises(FingerprintError) as caught:
        describe([holder], "map#1.function")

    if hasattr(made, "close"):
        made.close()
    assert caught.value.path.startswith("map#1.function[0].parts['x'][1]")
    assert "0x" not in str(caught.value)
    assert len(caught.value.remedies) == 3


def test_an_error_of_a_class_of_ones_own_is_told() -> None:
    class Bad:
        def __reduce__(self) -> Any:
            raise ValueError("not today")

    with pytest.raises(FingerprintError, match="not today") as caught:
        describe(Bad())

    assert isinstance(caught.value.__cause__, ValueError)


# -- arrays ----------------------------------------------------------------------------------------


def test_the_digest_of_a_large_array_is_kept_while_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    plain = keys._digest_of_chunks

    def counting(data: memoryview) -> str:
        asked.append(len(data))
        return plain(data)

    monkeypatch.setattr(keys, "_digest_of_chunks", counting)
    array = np.arange(1 << 20)
    before = text(array)

    assert text(array) == before
    assert text([array, {"a": array}]) == text([array.copy(), {"a": array.copy()}])
    assert asked == [array.nbytes] * 3  # itself, and two copies
    known = len(keys._KNOWN)
    del array
    gc.collect()
    assert len(keys._KNOWN) < known


def test_an_array_that_was_written_into_is_read_again() -> None:
    array = np.zeros(1 << 17)
    before = text(array)
    array[[1, 70_000]] = 1
    changed = text(array)
    array[1], array[2] = 0, 1

    assert len({before, changed, text(array)}) == 3


def test_pieces_of_a_large_array_do_not_depend_on_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_CHUNK", 1 << 16)
    data = memoryview(np.random.default_rng(1).bytes(1 << 20))
    several = keys._digest_of_chunks(data)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)

    assert keys._digest_of_chunks(data) == several


def test_a_mapped_file_counts_by_name_size_and_place(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.arange(100).astype("i4").tofile(tmp_path / folder / "tokens.bin")

    def mapped(folder: str) -> np.ndarray:
        return np.memmap(tmp_path / folder / "tokens.bin", "i4", "r")

    here, there = mapped("a"), mapped("b")

    assert text(here) == text(there)
    assert text(here[10:20]) == text(np.asarray(there)[10:20])
    assert text(here[10:20]) != text(here[20:30])
    assert text(here[::2]) != text(here[:50])
    assert "tokens.bin" in text(here)
    assert "400" in text(here)
