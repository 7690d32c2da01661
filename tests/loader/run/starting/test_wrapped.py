"""Objects around functions arrive: caches, generic functions and weak tables of a script."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.run.starting.payload import pack, unpack

ROOT = Path(__file__).parents[4]

SCRIPT = """
import functools
import tundish as td

@functools.lru_cache(maxsize=8)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def total(x):
    return 0

@total.register
def _(x: int):
    return x

@total.register(list)
def _(x):
    return sum(total(each) for each in x)

class Data:
    factor = 3

    def __len__(self):
        return 4

    @functools.cached_property
    def ten_times(self):
        return self.factor * 10

    @functools.cache
    def plus(self, i):
        return i + self.factor

    @functools.singledispatchmethod
    def kind(self, x):
        return 0

    @kind.register
    def _(self, x: int):
        return 1000

    def __getitem__(self, i):
        return fibonacci(i + 5) + total([i, [i]]) + self.ten_times + self.plus(i) + self.kind(i)

def doubled(rows):
    return [total(row) + fibonacci(row) for row in rows]

def numbers(loader):
    return [batch.tolist() for batch in loader]

if __name__ == "__main__":
    data = Data()
    print(numbers(td.DataLoader(data, 2)) == numbers(td.DataLoader(data, 2, num_workers=1)))
    print(list(td.DataLoader(range(4), 2, num_workers=1, collate_fn=doubled)))
    print([int(x) for x in td.Dataset.range(4).map(fibonacci, num_parallel_calls=1)])
"""


@pytest.mark.slow
def test_a_script_s_cached_and_generic_functions_work_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stdout.splitlines() == ["True", "[[0, 2], [3, 5]]", "[0, 1, 1, 2]"], found.stderr


class Thing:
    """Something to point to."""


def arrived(value: object) -> Any:
    payload = pack([("it", value)])
    try:
        return unpack(payload.fd)[0]
    finally:
        payload.close()


def local_cache() -> Any:
    @functools.lru_cache(maxsize=3, typed=True)
    def thrice(x: int) -> int:
        """Multiply by three."""
        return 3 * x

    thrice.unit = "m"  # type: ignore[attr-defined]
    return thrice


def test_a_cache_keeps_its_settings_and_attributes() -> None:
    cache = arrived(local_cache())

    assert cache(2) == 6
    assert cache.cache_parameters() == {"maxsize": 3, "typed": True}
    assert cache.cache_info().currsize == 1
    assert (cache.__name__, cache.__doc__, cache.unit) == ("thrice", "Multiply by three.", "m")
    assert cache.__qualname__ == "local_cache.<locals>.thrice"


@functools.cache
def known(x: int) -> int:
    return x


def test_what_can_be_imported_travels_by_name() -> None:
    assert arrived(known) is known


class Marked(functools.cached_property[int]):
    """A kind of one's own, with an attribute."""

    unit = ""


def test_a_cached_property_of_one_s_own() -> None:
    made = Marked(local_cache().__wrapped__)
    made.unit = "m"

    assert arrived(made).unit == "m"
    assert arrived(made).func(2) == 6


def test_weak_tables_and_references_point_to_what_came_along() -> None:
    thing, gone = Thing(), Thing()
    lost = weakref.ref(gone)
    del gone
    keys: Any = weakref.WeakKeyDictionary({thing: 1})
    values: Any = weakref.WeakValueDictionary({"a": thing})
    things, ones, named, several, one, none, view = arrived(
        [[thing], keys, values, weakref.WeakSet([thing]), weakref.ref(thing), lost, None]
    )
    assert view is None
    assert dict(ones) == {things[0]: 1}
    assert dict(named) == {"a": things[0]}
    assert set(several) == set(things)
    assert one() is things[0]
    assert none() is None


def test_a_view_of_a_dict_is_of_the_same_dict() -> None:
    table = {"a": 1}
    inside, view = arrived([table, types.MappingProxyType(table)])
    inside["b"] = 2

    assert view == {"a": 1, "b": 2}


@pytest.mark.parametrize("made", [np.random.default_rng, np.random.RandomState])
def test_a_method_of_a_compiled_class_is_called_in_workers(made: Any) -> None:
    with Dataset.range(1, 4).map(made(1).permutation).iterator(workers=2) as it:
        assert [sorted(element.tolist()) for element in it] == [[0], [0, 1], [0, 1, 2]]


MODULES = """
import sys
import types
import email
import tundish as td

class Odd(types.ModuleType):
    pass

odd = sys.modules["email.charset"]
odd.__class__ = Odd  # as torch.classes and torch.ops are

def name(x):
    charset = email.charset.Charset  # cloudpickle finds the module by this name
    return charset.__name__

if __name__ == "__main__":
    print(*td.Dataset.range(2).map(name).iterator(workers=1))
"""


def test_a_module_of_a_class_of_its_own_goes_by_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(MODULES.replace("import email\n", "import email.charset\n"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.split() == ["Charset", "Charset"], done.stderr


def plugin() -> type:
    class Plugin:
        def __init_subclass__(cls, /, name: str) -> None:
            cls.name = name  # type: ignore[attr-defined]

    class Mine(Plugin, name="mine"):
        pass

    return Mine


def test_a_class_whose_base_wants_keywords_of_it() -> None:
    made = plugin()
    with Dataset.range(1).map(lambda _: made().name).iterator(workers=1) as it:
        assert next(it) == "mine"


POOL = """
import concurrent.futures, multiprocessing
import tundish as td

def square(x):
    return x * x

def sum_of_squares(x):
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return sum(pool.map(square, range(int(x))))

print([int(x) for x in td.Dataset.range(3, 5).map(sum_of_squares).iterator(workers=1)])
kept = next(td.Dataset.range(1).map(lambda x: {"f": square}).iterator(workers=1))
print(kept["f"] is square)
"""


@pytest.mark.slow
def test_a_pool_within_a_worker_finds_the_functions_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(POOL, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stdout.splitlines() == ["[5, 14]", "True"], found.stderr
