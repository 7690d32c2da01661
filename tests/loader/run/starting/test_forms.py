"""Digests of values: equal in every process, different for different values, and cheap however large the value."""

from __future__ import annotations

import collections
import datetime as dt
import fractions
import functools
import os
import pickle
import re
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from tundish.loader.run.starting.forms import form_of


def samples() -> dict[str, Any]:
    """Return values of many kinds, the same in every process."""
    cycle: list[Any] = [1]
    cycle.append(cycle)
    return {
        "numbers": [None, True, 3, 2.5, 1j],
        "texts": ["a", b"b", "long" * 6_000_000],
        "sets": ({"a", "b", "c"}, frozenset({1, "x", (2, "y")}), {str(i) for i in range(9_000)}),
        "dates": (dt.date(2026, 1, 2), dt.timedelta(3), fractions.Fraction(1, 3)),
        "paths": Path("/a/b"),
        "counter": collections.Counter("abca"),
        "ordered": collections.OrderedDict(a=1, b=[2]),
        "defaults": collections.defaultdict(list, a=[1]),
        "names": types.SimpleNamespace(a=1, b={"c": [2]}),
        "a list of texts": [f"text {i}" for i in range(20_000)],
        "a list of lists": [[i, str(i)] for i in range(9_000)],
        "a cycle": cycle,
        "an array": np.arange(12).reshape(3, 4)[:, ::2],
        "a large array": np.arange(5_000_000),
        "an array of objects": np.array(["a", None, 3], object),
        "records": np.zeros(3, [("a", "<i4"), ("b", "<f8")]),
        "dtypes": (np.dtype("f4"), np.float32, np.float32(1.5)),
        "a frame": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        "a series": pd.Series([1.0, 2.0], index=["a", "b"], name="c"),
        "times": pd.date_range("2026-01-01", periods=3),
        "a table": pa.table({"a": [1, 2], "b": ["x", None]}),
        "an image": Image.new("RGB", (4, 4), (1, 2, 3)),
        "a pattern": re.compile("a+", re.IGNORECASE),
        "functions": [elsewhere, np.mean, np.add, len, functools.partial(pow, 2)],
        "a lambda": lambda x: x + 1,
        "another": lambda x: x + 2,
        "closures": [scaled(2), scaled(np.arange(3))],
    }


def scaled(by: Any) -> Any:
    """Return a function that captures a value."""
    return lambda x: x * by


STATELESS: dict[str, Any] = {
    "a module": os,
    "a lock": threading.Lock(),
    "an open file": sys.stdout,
    "a generator": np.random.default_rng(1),
    "an iterator": iter([1]),
}


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, bytes]:
    """The digests in another process, whose texts have other hashes."""
    script = (
        "import pickle, sys\n"
        "from tests.loader.run.starting.test_forms import form_of, samples\n"
        "found = {name: form_of(value).digest for name, value in samples().items()}\n"
        "sys.stdout.buffer.write(pickle.dumps(found))"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, check=True
    )
    found: dict[str, bytes] = pickle.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", list(samples()))
def test_equal_values_have_one_digest_in_every_process(
    name: str, elsewhere: dict[str, bytes]
) -> None:
    form = form_of(samples()[name])
    assert form is not None
    assert form.digest == elsewhere[name]


def test_different_values_have_different_digests() -> None:
    digests = {form_of(value) for value in samples().values()}
    assert len(digests) == len(samples())


@pytest.mark.parametrize("name", STATELESS)
def test_what_is_no_value_has_no_digest(name: str) -> None:
    assert form_of(STATELESS[name]) is None
    assert form_of([STATELESS[name]]) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (list(range(200_000)), [*range(199_999), 0]),
        ([str(i) for i in range(200_000)], [*(str(i) for i in range(199_999)), ""]),
        ({i: i for i in range(100_000)}, {i: i if i != 70_000 else 0 for i in range(100_000)}),
        (np.zeros(1_000_000), np.eye(1, 1_000_000, 765_432)[0]),
        (pd.DataFrame({"a": np.zeros(9_000)}), pd.DataFrame({"a": np.eye(1, 9_000, 77)[0]})),
        ([[0]] * 4_000, [*[[0]] * 3_999, [1]]),
    ],
)
def test_one_item_tells_values_of_some_megabytes_apart(before: Any, after: Any) -> None:
    assert form_of(before) != form_of(after)


def test_large_values_are_told_apart_by_samples() -> None:
    rng = np.random.default_rng(3)
    values: list[Any] = [
        np.zeros(40_000_000, np.uint8),
        np.ones(40_000_000, np.uint8),
        rng.permutation(4_000_000),
        rng.permutation(4_000_000),
        [[i] for i in range(300_000)],
        [[i] for i in range(300_001)],
        [[-i] for i in range(300_000)],
        "a" * 40_000_000,
        "b" * 40_000_000,
    ]
    assert len({form_of(value) for value in values}) == len(values)
