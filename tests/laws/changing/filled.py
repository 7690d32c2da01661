"""Globals that a program fills after it has imported them, with values of every size and of several packages."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image

ARRAY: Any = None
TABLE: dict[int, int] = {}
NAMES: list[str] = []
RECORDS: list[dict[str, int]] = []
KNOWN: set[str] = set()
TEXT = ""
FRAME = pd.DataFrame({"a": [0]})
COLUMNS = pa.table({"a": [0]})
IMAGE = Image.new("L", (2, 2))
BIG = np.zeros(3 << 20)
RATES = np.zeros(9_000)
STEPS = [0, 1]
TRANSFORM: Any = lambda x: x  # noqa: E731 - as users do
POWER: Any = functools.partial(pow, 1)
REGISTRY: dict[str, Any] = {"a": abs}


def same(x: int) -> int:
    return x


def double(x: int) -> int:
    return 2 * x


class Model:
    def call(self, x: int) -> int:
        return x


class Other(Model):
    def call(self, x: int) -> int:
        return x + 100


class Options:
    def __init__(self) -> None:
        self.function = same


KIND = Model
OPTIONS = Options()


def fill(count: int) -> None:
    """Fill each of them."""
    held = globals()
    held["ARRAY"] = np.arange(count)[::-1]
    TABLE.update((i, i + 7) for i in range(count))
    NAMES.extend(f"name {i}" for i in range(count))
    RECORDS.extend({"a": i, "b": -i} for i in range(count))
    KNOWN.update(f"known {i}" for i in range(0, count, 2))
    held["TEXT"] = "0123456789" * count
    held["FRAME"] = pd.DataFrame({"a": np.arange(count), "b": [str(i) for i in range(count)]})
    held["COLUMNS"] = pa.table({"a": np.arange(count) * 2})
    held["IMAGE"] = Image.new("L", (300, 300), 9)
    BIG[:] = 1.5
    RATES[-1] = 0.5
    STEPS[:] = [5, 6]
    held["TRANSFORM"] = lambda x: x * count
    held["POWER"] = functools.partial(pow, 3)
    REGISTRY["a"] = double
    held["same"] = double
    held["KIND"] = Other
    Model.call = lambda self, x: x + 50  # type: ignore[method-assign]
    OPTIONS.function = double


def stepped(x: int, steps: list[int] = STEPS) -> int:
    return steps[x % 2]


def read(x: Any) -> tuple[Any, ...]:
    """Read each of them."""
    i = int(x)
    return (
        -1 if ARRAY is None else int(ARRAY[i]),
        TABLE.get(i),
        NAMES[i] if NAMES else "",
        RECORDS[i]["b"] if RECORDS else 0,
        f"known {i}" in KNOWN,
        TEXT[i : i + 3],
        str(FRAME["b"].iloc[i]) if "b" in FRAME else "",
        int(COLUMNS["a"][i].as_py()) if len(COLUMNS) > 1 else 0,
        IMAGE.getpixel((1, 1)),
        float(BIG[i]),
        float(RATES[-1]),
        stepped(i),
        TRANSFORM(i),
        POWER(i),
        REGISTRY["a"](i),
        same(i),
        KIND().call(i),
        Model().call(i),
        OPTIONS.function(i),
    )
