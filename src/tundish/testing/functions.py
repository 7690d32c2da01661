"""Small functions for pipelines that are checked: deterministic, picklable, shown as written.

Each takes an element of any kind and derives what it does from the element's `digest`, so any
of them can follow any other. Their ``repr`` is the expression that makes them: a pipeline that
failed can be written down.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.reducing import Reducer
from tundish.testing.compare import digest
from tundish.testing.nests import is_tuple, taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Become",
    "Carry",
    "Class",
    "Draw",
    "Emit",
    "Fail",
    "Inner",
    "Keep",
    "Key",
    "OddError",
    "Open",
    "Pause",
    "Records",
    "Reduce",
    "Refuse",
    "Regroup",
    "Sequence",
    "Size",
    "Tag",
    "Thing",
    "Together",
    "Uneven",
    "totals",
]


class OddError(Exception):
    """An exception whose constructor takes other arguments than it passes on."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(code, hint)
        self.code = code
        self.hint = hint

    def __reduce__(self) -> tuple[Callable[..., OddError], tuple[int, str]]:
        return _odd_error, (self.code, self.hint)


def _odd_error(code: int, hint: str) -> OddError:
    return OddError(code, hint=hint)


@dataclass(frozen=True)
class Thing:
    """An object that no array can hold."""

    name: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tag:
    """Change every leaf; keep the nest, the dtypes and the shapes."""

    k: int = 1

    def __call__(self, *element: Any) -> Any:
        return _change(_one(element), self.k)


@dataclass(frozen=True)
class Draw:
    """Augment: change every leaf by a number drawn from `rng`, after a varying number of other draws."""

    k: int = 1

    def __call__(self, *element: Any, rng: np.random.Generator) -> Any:
        value = _one(element)
        rng.random(_number(value, self.k) % 4)
        return _change(value, int(rng.integers(1 << 40)))


@dataclass(frozen=True)
class Fail:
    """Raise for `percent` of the elements, or return no element if `unfit`; the others pass unchanged."""

    k: int = 1
    percent: int = 20
    unfit: bool = False

    def __call__(self, *element: Any) -> Any:
        value = _one(element)
        number = _number(value, self.k)
        if number % 100 < self.percent:
            if self.unfit:
                return (None, 1 << 64)[number // 100 % 2]
            raise _error(number // 100)
        return value


@dataclass(frozen=True)
class Refuse:
    """A `Fail` with errors that come back from a file as they were: Python's own."""

    k: int = 1
    percent: int = 20

    def __call__(self, *element: Any) -> Any:
        value = _one(element)
        number = _number(value, self.k)
        if number % 100 < self.percent:
            raise (ValueError, ZeroDivisionError, LookupError)[number % 3](f"bad {number % 997}", 1)
        return value


@dataclass(frozen=True)
class Keep:
    """A predicate that holds for `percent` of the elements, and raises for `fails` percent."""

    k: int = 1
    percent: int = 60
    fails: int = 0

    def __call__(self, *element: Any) -> bool:
        number = _number(_one(element), self.k)
        if number // 100 % 100 < self.fails:
            raise _error(number // 10_000)
        return number % 100 < self.percent


@dataclass(frozen=True)
class Size:
    """A cost: a number from 0 to 9; for `fails` percent it raises, or is negative."""

    k: int = 1
    fails: int = 0

    def __call__(self, *element: Any) -> float:
        number = _number(_one(element), self.k)
        if number // 100 % 100 < self.fails:
            if number // 10_000 % 3:
                raise _error(number // 10_000)
            return -1
        return number % 10 if number % 2 else number % 20 / 2


@dataclass(frozen=True)
class Uneven:
    """Make an array of none to seven numbers from any element."""

    k: int = 1

    def __call__(self, *element: Any) -> np.ndarray:
        number = _number(_one(element), self.k)
        return np.arange(number % 8, dtype=np.int16) + np.int16(number % 50)


@dataclass(frozen=True)
class Become:
    """Make an element of a given kind from any element.

    The kinds: ``int, float, small, str, bytes, array, image, ragged, words, struct, arrays, dict, tuple,
    nested, object, swapped, mixed, long, large``. Elements of ``ragged`` and ``swapped`` differ in shape, the
    latter's bytes are in the other order; elements of ``mixed`` differ in everything. ``struct`` is a scalar with
    fields, ``arrays`` an array of objects that are arrays. ``long`` is a
    str of 40 KB, ``large`` an array of 115 KB: no message carries them.
    """

    kind: str

    def __call__(self, *element: Any) -> Any:
        return _made(self.kind, _number(_one(element), 0))


@dataclass(frozen=True)
class Pause:
    """Pass on what comes, after some milliseconds."""

    ms: float = 5

    def __call__(self, *element: Any) -> Any:
        time.sleep(self.ms / 1000)
        return _one(element)


@dataclass(frozen=True)
class Carry:
    """A function for `scan`: hand on a number, deliver it with the element; raise for `percent`."""

    k: int = 1
    percent: int = 0

    def __call__(self, state: Any, element: Any) -> Any:
        number = _number((int(state), element), self.k)
        if number % 100 < self.percent:
            raise _error(number // 100)
        return number % 1000, (state, element)


@dataclass(frozen=True)
class Class:
    """One of `count` numbers from `least` for an element; raise for `fails` percent."""

    k: int = 1
    count: int = 3
    fails: int = 0
    least: int = 0

    def __call__(self, *element: Any) -> int:
        number = _number(_one(element), self.k)
        if number // 100 % 100 < self.fails:
            raise _error(number // 10_000)
        return number % self.count + self.least


def totals(k: int = 1, percent: int = 0) -> Reducer:
    """Make a reducer for `group_by_reducer`: count and digest what comes; raise for `percent` everywhere."""
    return Reducer(_Begin(k, percent), _Add(k, percent), _Finish(k, percent))


@dataclass(frozen=True)
class _Begin:
    k: int
    percent: int

    def __call__(self, key: Any) -> Any:
        number = _number(int(key), self.k)
        if number % 100 < self.percent:
            raise _error(number // 100)
        return {"n": 0, "last": np.full(number % 3, int(key)), "digest": 0}


@dataclass(frozen=True)
class _Add:
    k: int
    percent: int

    def __call__(self, state: Any, element: Any) -> Any:
        number = _number((int(state["n"]), element), self.k)
        if number % 100 < self.percent:
            raise _error(number // 100)
        last = np.append(state["last"], number % 7)[-2:]
        # In another order, which makes no difference.
        return {"digest": number % 1000, "n": state["n"] + 1, "last": last}


@dataclass(frozen=True)
class _Finish:
    k: int
    percent: int

    def __call__(self, state: Any) -> Any:
        number = _number(state, self.k)
        if number % 100 < self.percent:
            raise _error(number // 100)
        return state


@dataclass(frozen=True)
class Inner:
    """A function for `flat_map`: a dataset of none to four elements made from the element.

    `dataset` is the class to make it of, `Dataset` or a reference with the same methods.
    """

    dataset: Any
    k: int = 1

    def __call__(self, *element: Any) -> Any:
        number = _number(_one(element), self.k)
        base, size = number % 1000, number // 1000 % 5
        match number // 5000 % 6:
            case 0:
                return self.dataset.range(base, base + size)
            case 1:
                return self.dataset.from_tensor_slices(np.arange(size, dtype=np.float32) + base)
            case 2:
                return self.dataset.range(base, base + size).map(Fail(self.k, 30))
            case 3:
                return self.dataset.range(base, base + size).map(Draw(self.k), seed=self.k)
            case 4:
                return self.dataset.range(size).shuffle(3, seed=self.k).repeat(2).take(5)
            case _:
                return self.dataset.range(base, base + size).filter(Keep(self.k)).map(Become("str"))


@dataclass(frozen=True)
class Key:
    """One of `n` numbers, from 0; raises for `fails` percent of the elements."""

    k: int = 1
    n: int = 3
    fails: int = 0

    def __call__(self, *element: Any) -> int:
        number = _number(_one(element), self.k)
        if number // 100 % 100 < self.fails:
            raise _error(number // 10_000)
        return number // 10_000 % self.n


@dataclass(frozen=True)
class Open:
    """A function for `flat_map` after `window`: the elements of the datasets that an element is made of.

    `dataset` is as for `Inner`; an element that is made of something else is delivered as it is.
    """

    dataset: Any
    k: int = 1

    def __call__(self, *element: Any) -> Any:
        value = _one(element)
        leaves = taken_apart(value)[0]
        if not leaves or not all(hasattr(leaf, "take_while") for leaf in leaves):
            return self.dataset.from_tensors(value)
        opened = self.dataset.zip(value)
        match _number(value, self.k) % 4:
            case 0:
                return opened
            case 1:
                return opened.batch(2)
            case 2:
                return opened.concatenate(opened.map(Tag(self.k)))
            case _:
                return opened.map(Draw(self.k), seed=self.k).filter(Keep(self.k, 80))


@dataclass(frozen=True)
class Reduce:
    """A function for `group_by_window`: a dataset of none, some or all of a group; raises for some groups.

    `dataset` is as for `Inner`.
    """

    dataset: Any
    k: int = 1

    def __call__(self, key: Any, group: Any) -> Any:
        number = _number((key, group), self.k)
        match number % 6:
            case 0:
                return group
            case 1:
                return group.take(0)
            case 2:
                return group.map(Draw(self.k), seed=self.k).filter(Keep(self.k))
            case 3 if number // 6 % 3 == 0:
                raise _error(number // 18)
            case _:
                return group.batch(2).concatenate(self.dataset.from_tensors(key))


@dataclass(frozen=True)
class Emit:
    """A generator function of `n` elements; `fails` is where it raises, and so ends."""

    n: int
    k: int = 1
    fails: int | None = None

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        for i in range(self.n):
            if i == self.fails:
                raise OddError(i, hint="the generator")
            yield _number((i, *arguments), self.k) % 1000


@dataclass(frozen=True)
class Regroup:
    """A function for `map_batches`: rows made of a batch, as many or more or fewer, in lists and arrays."""

    k: int = 1

    def __call__(self, *batch: Any) -> Any:
        value = _one(batch)
        number = _number(value, self.k)
        count = number // 8 % 5
        uneven = [list(range(number // 64 % 7 + i, number // 64 % 7 + i * i)) for i in range(count)]
        match number % 8:
            case 0:
                return value
            case 1:
                return uneven
            case 2:
                words = [f"{i}" * i for i in range(count)]
                return {"text": words, "ids": uneven, "n": np.arange(count)}
            case 3:
                return uneven, [np.full(i, i, np.int16) for i in range(count)]
            case 4:
                return [{"a": i, "b": (f"{i}", [0.5] * i)} for i in range(count)]
            case 5:
                return [Thing(f"{i}") for i in range(count)]
            case 6:
                return [["a"] * (i % 2) for i in range(count)], [i / 2 for i in range(count)]
            case _ if number // 8 % 2:
                return np.arange(count), np.arange(count + 1)
            case _:
                raise _error(number // 8)


@dataclass(frozen=True)
class Sequence:
    """A sequence of none to nine tokens: an array, or a dict of two; of ``mixed`` some are none."""

    k: int = 1
    kind: str = "array"

    def __call__(self, *element: Any) -> Any:
        number = _number(_one(element), self.k)
        tokens = np.arange(number % 10, dtype=np.int32) + number // 10 % 100
        labels = tokens.astype(np.int64) - 3
        match self.kind, number // 1000 % 16:
            case "mixed", 0:
                return tokens.astype(np.uint16)
            case "mixed", 1:
                return {"tokens": tokens, "labels": labels[1:]}
            case "mixed", 2:
                return tokens.reshape(1, -1)
            case "mixed", 3:
                return _made("mixed", number)
            case ("dict", 0 | 1) | ("mixed", 4):
                return {"labels": labels, "tokens": tokens}
            case "dict", _:
                return {"tokens": tokens, "labels": labels}
        return tokens


@dataclass(frozen=True)
class Records:
    """A source with random access: `n` records of a kind of `Become`."""

    n: int
    kind: str = "dict"

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.n:
            raise IndexError(index)
        return _made(self.kind, _number(int(index), self.n))


@dataclass(frozen=True)
class Together(Records):
    """Records that are given many at a time, too."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def _one(element: tuple[Any, ...]) -> Any:
    return element[0] if len(element) == 1 else element


def _number(value: object, k: int) -> int:
    return int(digest((k, value))[:15], 16)


def _error(number: int) -> Exception:
    match number % 5:
        case 0:
            return ValueError(f"bad {number % 997}", number % 7)
        case 1:
            return KeyError(("key", number % 997))
        case 2:
            return OddError(number % 997, hint="odd")
        case 3:
            return FileNotFoundError(2, "no such thing", f"/nowhere/{number % 997}")
        case _:
            return ZeroDivisionError()


def _change(value: Any, k: int) -> Any:
    if isinstance(value, dict):
        return {key: _change(part, k) for key, part in value.items()}
    if is_tuple(value):
        return tuple([_change(part, k) for part in value])
    if isinstance(value, str):
        return f"{value[-20:]}{k % 10}"
    if isinstance(value, bytes):
        return value[-20:] + bytes([k % 256])
    if isinstance(value, Thing):
        return Thing(value.name, (*value.parts[-3:], k % 1000))
    if isinstance(value, np.void) and value.dtype.names and not value.dtype.hasobject:
        made = value.copy()
        for name in value.dtype.names:
            made[name] = _change(value[name], k)
        return made
    if isinstance(value, np.ndarray) and value.dtype == object:
        objects = np.empty(value.shape, object)
        for at in np.ndindex(value.shape):
            objects[at] = _change(value[at], k)
        return objects
    if getattr(value, "dtype", None) is not None and value.dtype.kind in "iuf":
        return value % value.dtype.type(61) + value.dtype.type(k % 61)  # fits an int8
    return value


def _made(kind: str, number: int) -> Any:
    small = number % 100
    match kind:
        case "int":
            return number % 10_000
        case "float":
            return small / 7
        case "small":
            return np.int16(small)
        case "str":
            return "ä" * (small % 4) + str(small)
        case "bytes":
            return bytes(range(small % 9)) + b"\0"
        case "array":
            return np.arange(3, dtype=np.float32) + np.float32(small)
        case "image":
            return np.full((4, 5, 3), small, np.uint8)
        case "ragged":
            return np.arange(small % 4, dtype=np.int32)
        case "words":
            return ["a" * (small % 3), "b", str(small)]
        case "struct":
            return np.array([(small, small / 7)], [("a", "i4"), ("b", "f8")])[0]
        case "arrays":
            made = np.empty(2, object)
            made[:] = [np.arange(small % 4 + 1), np.full(2, small, np.float32)]
            return made
        case "dict":
            return {"x": number % 1000, "label": np.int32(small), "name": f"n{small}"}
        case "tuple":
            return (number % 1000, np.full(2, small / 3))
        case "nested":
            return {"pair": (small, {"z": np.full((2, 2), small, np.uint16), "a": f"{small}"})}
        case "object":
            return Thing(f"t{small}")
        case "long":
            return f"{small:02}" * 20_000
        case "large":
            return np.full((3, 150, 256), small, np.uint8)
        case "swapped":
            return np.arange(small % 4, dtype=np.dtype(np.int32).newbyteorder())
        case "mixed":
            kinds = ("int", "float", "str", "array", "ragged", "dict", "tuple", "object")
            return _made(kinds[small % len(kinds)], number // 100)
    raise ValueError(f"no kind {kind!r}")
