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

from tundish.testing.compare import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Become",
    "Draw",
    "Emit",
    "Fail",
    "Inner",
    "Keep",
    "OddError",
    "Pause",
    "Records",
    "Tag",
    "Thing",
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
    """Augment: change every leaf by what `rng` says, after a number of draws that differs."""

    k: int = 1

    def __call__(self, *element: Any, rng: np.random.Generator) -> Any:
        value = _one(element)
        rng.random(_number(value, self.k) % 4)
        return _change(value, int(rng.integers(1 << 40)))


@dataclass(frozen=True)
class Fail:
    """Raise for `percent` of the elements; the others pass unchanged."""

    k: int = 1
    percent: int = 20

    def __call__(self, *element: Any) -> Any:
        value = _one(element)
        number = _number(value, self.k)
        if number % 100 < self.percent:
            raise _error(number // 100)
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
class Become:
    """Make an element of a given kind from any element.

    The kinds: ``int, float, small, str, bytes, array, image, ragged, words, dict, tuple, nested,
    object, swapped, mixed``. Elements of ``ragged`` and ``swapped`` differ in shape, the latter's
    bytes are in the other order; elements of ``mixed`` differ in everything.
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
class Inner:
    """For `flat_map`: a dataset of none to four elements made from the element.

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
    if isinstance(value, tuple):
        return tuple([_change(part, k) for part in value])
    if isinstance(value, str):
        return f"{value[-20:]}{k % 10}"
    if isinstance(value, bytes):
        return value[-20:] + bytes([k % 256])
    if isinstance(value, Thing):
        return Thing(value.name, (*value.parts[-3:], k % 1000))
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
        case "dict":
            return {"x": number % 1000, "label": np.int32(small), "name": f"n{small}"}
        case "tuple":
            return (number % 1000, np.full(2, small / 3))
        case "nested":
            return {"pair": (small, {"z": np.full((2, 2), small, np.uint16), "a": f"{small}"})}
        case "object":
            return Thing(f"t{small}")
        case "swapped":
            return np.arange(small % 4, dtype=np.dtype(np.int32).newbyteorder())
        case "mixed":
            kinds = ("int", "float", "str", "array", "ragged", "dict", "tuple", "object")
            return _made(kinds[small % len(kinds)], number // 100)
    raise ValueError(f"no kind {kind!r}")
