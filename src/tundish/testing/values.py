"""Values as users have them: array-likes, unusual arrays, tables, mutable objects.

`Give` makes a value of a kind from any element, `Given` is a source of such values, and `given` returns a list of them.
Each entry of `VALUES` is one kind; ``framework`` varies among the installed frameworks (pandas, polars, xarray, torch,
JAX). The reference (`tundish.testing.nests.normal`), which shares no code with the loader, defines the element that
each value becomes.
"""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import tempfile
import time
from array import array
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tundish.testing.compare import digest
from tundish.testing.nests import MOST_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FRAMEWORKS", "VALUES", "Box", "Give", "Given", "Like", "given"]

ALIGNED = np.dtype([("a", "u1"), ("b", "f8"), ("c", [("x", "u1"), ("y", "i4")], (2,))], align=True)


class Like:
    """An array-like with ``__array__``, a dtype and a shape; its ``__array__`` may raise.

    Parameters
    ----------
    values : numpy.ndarray or Exception
        The array that ``__array__`` returns, or the error that it raises.
    """

    def __init__(self, values: Any) -> None:
        self.values = values
        self.dtype, self.shape = getattr(values, "dtype", None), getattr(values, "shape", ())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if isinstance(self.values, Exception):
            raise self.values
        found: np.ndarray = self.values
        return found


class Tracked(Like):
    """An object like a tensor with a gradient: only what is detached from it is an array."""

    requires_grad = True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("it requires grad")

    def detach(self) -> Like:
        return Like(self.values)


class Frame:
    """A table: it has columns, and an ``__array__`` that should not be used.

    Parameters
    ----------
    columns : dict
        The columns by name.
    """

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    columns = property(lambda self: list(self._columns))
    shape = property(lambda self: (3, len(self._columns)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(list(self._columns.values()), object)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


@dataclass
class Box:
    """A mutable object."""

    items: list[int]


class Sizes(tuple[int, ...]):
    """A tuple of a class of its own, as torch.Size is: a leaf."""

    __slots__ = ()


def _mapped(values: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        file.write(values.tobytes())
        file.flush()
        return np.memmap(file, values.dtype, "r", shape=values.shape)


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def _aligned(values: np.ndarray) -> np.ndarray:
    """Return structs with nonzero padding, as memory that was reused may have."""
    raw = bytearray(b"\xc7" * (3 * ALIGNED.itemsize))
    made: np.ndarray = np.frombuffer(raw, ALIGNED)
    for name in ALIGNED.names or ():
        made[name] = values[0] % 100 if name != "c" else np.zeros(2, ALIGNED["c"].base)
    return made


def _shared(values: np.ndarray) -> np.ndarray:
    memory = mmap.mmap(-1, values.nbytes)
    memory.write(values.tobytes())
    found: np.ndarray = np.frombuffer(memory, values.dtype)
    return found


def _of_framework(values: np.ndarray) -> Any:
    there = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    if not there:
        return Like(values)
    name = there[int(values[0]) // 7 % len(there)]
    return FRAMEWORKS[name](importlib.import_module(name), values)


VALUES: dict[str, Callable[[np.ndarray], Any]] = {
    "like": Like,
    "like_scalar": lambda v: Like(np.array(v[1])),
    "like_words": lambda v: Like(v.astype(str)),
    "tracked": Tracked,
    "raising": lambda v: Like(TypeError("it lies on a device", int(v[0]))),
    "masked": lambda v: np.ma.masked_greater(v, v[1]),
    "like_masked": lambda v: Like(np.ma.masked_greater(v, v[1])),
    "read_only": _read_only,
    "mapped": _mapped,
    "shared": _shared,
    "strided": lambda v: np.repeat(v, 2)[::-2],
    "transposed": lambda v: np.stack([v, v + 1]).T,
    "big_endian": lambda v: v.astype(">i4"),
    "zero_dim": lambda v: np.array(v[0]),
    "deep32": lambda v: v[:1].reshape((1,) * 32),
    "deep": lambda v: v[:1].reshape((1,) * MOST_DIMENSIONS),
    "almost_deep": lambda v: v[:1].reshape((1,) * (MOST_DIMENSIONS - 1)),
    "aligned": _aligned,
    "struct": lambda v: _aligned(v)[0],
    "fields": lambda v: _aligned(v)[["a", "c"]],
    "memoryview": lambda v: memoryview(v.tobytes()),
    "typed_view": lambda v: v.data,
    "array.array": lambda v: array("h", v.astype("h").tolist()),
    "bytearray": lambda v: bytearray(v.astype("u1").tobytes()),
    "mutable": lambda v: Box(v.tolist()),
    "arrow": pa.array,
    "chunked": lambda v: pa.chunked_array([v[:1], v[1:]]),
    "null": lambda v: pa.array([int(v[0]), None]),
    "table": lambda v: pa.table({"x": v, "y": [str(x) for x in v]}),
    "frame": lambda v: Frame({"x": Like(v), "y": v.astype(">f4")}),
    "framework": _of_framework,
    "any": lambda v: list(VALUES.values())[v[0] % 31](
        v
    ),  # always of the same ones: versions are compared
    "units": lambda v: np.datetime64("2024-02-29").astype(f"M8[{'sD'[v[0] % 2]}]"),
    "spans": lambda v: np.array([int(v[0])], f"m8[{'sD'[v[0] % 2]}]"),
    "exception": lambda v: ValueError("an element", int(v[0])),
    "wide": lambda v: [2**63 + int(v[0]), int(v[1])],
    "gapped": lambda v: [int(v[0]), None, "x"],
    "wide_alone": lambda v: [2**63 - 1 + int(v[0]) % 2],
    "unsigned": lambda v: [np.uint64(2**53 + int(v[0])), int(v[1])],
    "masked_within": lambda v: [[np.ma.masked_greater(v, v[1 + v[0] % 2])]],
    "framework_within": lambda v: [_of_framework(v)],
    "swapped_times": lambda v: v.astype(">M8[s]"),
    "ordered": lambda v: OrderedDict(b=int(v[0]), a=(v, "s")),
    "sizes": lambda v: Sizes(v.tolist()),
    "time": lambda v: time.gmtime(int(v[0])),
    "defaulted": lambda v: defaultdict(list, a=[v[0]], b=OrderedDict(c=v)),
}
"""The kinds of values, each made of three numbers."""

FRAMEWORKS: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "pandas": lambda pd, v: (
        pd.Series(v), pd.Index(v), pd.Series(v, dtype="Int64"), pd.Series(["a", None]),
        pd.Series([1, None], dtype="Int64"), pd.DataFrame({"x": v, "y": [str(x) for x in v]}),
    )[v[0] % 6],
    "polars": lambda pl, v: (
        pl.Series(v), pl.Series([1, None]), pl.DataFrame({"x": v, "y": [str(x) for x in v]}),
    )[v[0] % 3],
    "xarray": lambda xr, v: xr.DataArray(v),
    "torch": lambda torch, v: torch.tensor(v.astype("f4"), requires_grad=bool(v[0] % 2)),
    "jax": lambda jax, v: jax.numpy.asarray(v.astype("i4")),
}  # fmt: skip
"""Kinds of values of a framework, made of it and of three numbers."""


def _value(kind: str, number: int, within: str) -> Any:
    base = number % 97
    made = VALUES[kind](np.array([base, base + 1, base + 2]))
    match within:
        case "dict":
            return {"v": made, "n": number % 1000}
        case "tuple":
            return (number % 1000, (made, "s"))
        case "both":
            return {"v": (made, made)}
    return made


@dataclass(frozen=True)
class Give:
    """Make a value of a kind from any element.

    Parameters
    ----------
    kind : str
        One of `VALUES`.
    within : {"", "dict", "tuple", "both"}
        The nest of which the value is a leaf; "" for the value alone.
    """

    kind: str
    within: str = ""

    def __call__(self, *element: Any) -> Any:
        return _value(self.kind, int(digest(element)[:15], 16), self.within)


@dataclass(frozen=True)
class Given:
    """A source with random access: `n` values of a kind, as of `Give`."""

    n: int
    kind: str
    within: str = ""

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.n:
            raise IndexError(index)
        return _value(self.kind, index * 7, self.within)


def given(n: int, kind: str, within: str = "") -> list[Any]:
    """A list of `n` values of a kind, as of `Give`."""
    return [_value(kind, k * 7, within) for k in range(n)]
