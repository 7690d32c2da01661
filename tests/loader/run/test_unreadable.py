"""Elements whose class comes from the user's script, or cannot be unpickled: each keeps its place, and nothing waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tundish as td

WORKERS = 2


class Refusing:
    """An object that can be pickled; one in three cannot be unpickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return refusing, (self.number,)


def refusing(number: int) -> Refusing:
    if number % 3 == 1:
        raise KeyError(f"no {number}")
    return Refusing(number)


def made(number: Any) -> Refusing:
    return Refusing(int(number))


def in_text(number: Any) -> dict[str, Any]:
    return {"text": str(number), "object": Refusing(int(number))}


def inner(number: Any) -> td.Dataset:
    return td.Dataset.range(4 * number, 4 * number + 4).map(made)


def outcomes(ds: Any) -> list[Any]:
    """The numbers delivered, and in the place of an error what it says."""
    found: list[Any] = []
    with ds.iterator(workers=WORKERS) as it:
        while True:
            try:
                element = next(it)
            except StopIteration:
                return found
            except KeyError as error:
                found.append((*error.args, *error.__notes__))
            else:
                each = element["object"] if isinstance(element, dict) else element
                found.append([x.number for x in each] if hasattr(each, "shape") else each.number)


@pytest.mark.parametrize("function", [made, in_text])
def test_an_element_that_cannot_be_unpickled_is_an_error_at_its_place(function: Any) -> None:
    found = outcomes(td.Dataset.range(200).map(function))

    assert [k for k in found if isinstance(k, int)] == [k for k in range(200) if k % 3 != 1]
    assert found[4] == ("no 4", "tundish: element 4, as it was unpickled in the consumer")
    assert len(found) == 200


def test_it_fails_its_batch() -> None:
    found = outcomes(td.Dataset.range(64).map(made).batch(4))

    assert [batch[0] for batch in found[:3]] == ["no 1", "no 4", "no 7"]
    assert found[0][1] == "tundish: element 1, as it was unpickled in the consumer"


def test_of_inner_datasets_too() -> None:
    found = outcomes(td.Dataset.range(6).flat_map(inner))

    assert [k for k in found if isinstance(k, int)] == [k for k in range(24) if k % 3 != 1]
    place = "tundish: element 0 of the dataset made of 1, as it was unpickled in the consumer"
    assert found[4] == ("no 4", place)


class Odd:
    """An object of which every other cannot be unpickled in a worker."""

    def __init__(self, number: int, home: int) -> None:
        self.number, self.home = number, home

    def __reduce__(self) -> Any:
        return made_at_home, (self.number, self.home)


def made_at_home(number: int, home: int) -> Odd:
    if number % 2 and os.getpid() != home:
        raise KeyError(f"no {number}")
    return Odd(number, home)


def odd() -> Iterator[Odd]:
    return (Odd(number, os.getpid()) for number in range(8))


def locks() -> Iterator[Any]:
    return (threading.Lock() if k % 2 else k for k in range(8))


def number_of(value: Any) -> int:
    return value.number if isinstance(value, Odd) else int(value)


def two_of(value: Any) -> td.Dataset:
    return td.Dataset.from_tensor_slices([number_of(value)] * 2)


def lock_or_number(number: Any) -> Any:
    return {"value": threading.Lock() if number % 2 else number}


def file_or_number(k: int) -> Any:
    """Return what cloudpickle would make a `StringIO` of, for odd numbers."""
    return {"value": Path(__file__).open(encoding="utf-8") if k % 2 else k}


@pytest.mark.parametrize(
    ("ds", "expected", "error", "told"),
    [
        (
            td.Dataset.from_generator(odd).map(number_of),
            [0, 2, 4, 6],
            "no 1",
            "element 1, as it was unpickled in a worker, for map#1",
        ),
        (
            td.Dataset.from_generator(odd).flat_map(two_of),
            [0, 0, 2, 2, 4, 4, 6, 6],
            "no 1",
            "the opening of the dataset made of 1, as it was unpickled in a worker, for flat_map#1",
        ),
        (
            td.Dataset.from_generator(locks).map(number_of),
            [0, 2, 4, 6],
            "element 1, an argument of map#1, cannot be sent to a worker: it is or holds a _thread.lock",
            "element 1, before it was sent to a worker",
        ),
        (
            td.Dataset.from_generator(locks).flat_map(two_of),
            [0, 0, 2, 2, 4, 4, 6, 6],
            "the dataset made of 1, an argument of flat_map#1, cannot be sent to a worker: it is or holds a _thread.lock",
            "the dataset made of 1, before it was sent to a worker",
        ),
        (
            td.Dataset.range(8).map(lock_or_number),
            [{"value": k} for k in (0, 2, 4, 6)],
            "element 1 of map#1 cannot be sent from a worker: it is or holds a _thread.lock",
            "element 1, in worker ",
        ),
        (
            td.Dataset.range(8).map(file_or_number),
            [{"value": k} for k in (0, 2, 4, 6)],
            "element 1 of map#1 cannot be sent from a worker: it is or holds a _io.TextIOWrapper",
            "element 1, in worker ",
        ),
    ],
    ids=["unpickled", "unpickled, inner", "pickled", "pickled, inner", "result", "open file"],
)
def test_pickle_costs_no_worker_and_no_other_element(
    ds: Any, expected: list[Any], error: str, told: str
) -> None:
    found: list[Any] = []
    failed: list[Exception] = []
    with ds.iterator(workers=WORKERS) as it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                break
            except (KeyError, TypeError) as problem:
                failed.append(problem)
        assert it.stats.restarts == 0
    assert found == expected
    assert len(failed) == 4
    assert str(failed[0].args[0]).startswith(error)
    assert failed[0].__notes__[0].startswith(f"tundish: {told}")


SLOTTED = """
import abc, dataclasses, typing
import tundish as td

@dataclasses.dataclass(slots=True)
class Point:
    x: int
    y: str = "a"

@dataclasses.dataclass(slots=True, weakref_slot=True)
class Weak(Point):
    z: float = 1.0

class Base(abc.ABC):
    __slots__ = {"a": "documented"}
    def __init__(self, a):
        self.a = a

class Private(Base):
    __slots__ = ("__b",)
    def __init__(self, a):
        super().__init__(a)
        self.__b = a
    def b(self):
        return self.__b

class Both(Base):
    __slots__ = ("__dict__",)

class Pair(typing.NamedTuple):
    x: int

class Longer(Pair):
    __slots__ = ()

def in_a_function():
    class Local:
        __slots__ = ("a",)
        def __init__(self, a):
            self.a = a
    return Local

CLASSES = (Point, Weak, Private, Both, Pair, Longer, in_a_function())

def make(number):
    return tuple([cls(int(number)) for cls in CLASSES]), tuple([hasattr(cls(1), "__dict__") for cls in CLASSES])

def shown(element):
    objects, dicts = element
    same = [type(each) is cls for each, cls in zip(objects, CLASSES)]
    values = [getattr(each, "x", None) or getattr(each, "a", None) for each in objects]
    return same, values, [hasattr(each, "__dict__") for each in objects], list(dicts), objects[2].b()

if __name__ == "__main__":
    ds = td.Dataset.range(1, 9).map(make)
    assert list(map(shown, ds.iterator(workers=2))) == list(map(shown, ds.iterator(workers=0)))
    print("equal")
"""


def test_classes_of_a_script_keep_their_slots(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLOTTED, encoding="utf-8")

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert done.stdout == "equal\n", done.stderr
