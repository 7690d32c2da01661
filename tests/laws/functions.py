"""Functions that workers run for the tests of the laws; a worker imports this module, not a test."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

DEATHS = ("SIGKILL", "SIGSEGV", "os._exit(0)", "os._exit(3)")


class Record(dict[str, Any]):
    """A dict whose keys are attributes, too, as many a project has one: no attribute is missing politely."""

    __getattr__ = dict.__getitem__


class Sized:
    """Something whose attributes are not what they are called."""

    dtype = np.dtype("f4")
    nbytes = None

    def __eq__(self, other: object) -> bool:
        return type(other) is Sized

    __hash__ = None  # type: ignore[assignment]  # it is not asked for one


def strange(x: Any) -> Any:
    """An object whose attributes raise, or are none."""
    return Record(a=int(x)) if x % 2 else Sized()


@dataclass(frozen=True)
class Die:
    """Pass an element on; but at element `at` end the process, the first `times` times."""

    folder: str
    how: str
    at: int = 5
    times: int = 1

    def __call__(self, element: Any) -> Any:
        if element == self.at:
            for turn in range(self.times):
                try:
                    Path(self.folder, str(turn)).touch(exist_ok=False)
                except FileExistsError:
                    continue
                end(self.how)
        return element * 2


def end(how: str) -> NoReturn:
    match how:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "SIGSEGV":
            ctypes.string_at(0)
        case "os._exit(0)":
            os._exit(0)
        case "os._exit(3)":
            os._exit(3)
    raise AssertionError(how)


def leave() -> NoReturn:
    os._exit(3)


def sleep_for_ever(element: Any) -> Any:
    while True:
        time.sleep(3600)


def pure(element: Any) -> Any:
    return element * 3


def megabyte(element: Any) -> Any:
    return np.full(1 << 20, int(element) % 251, np.uint8)


def labelled(element: Any) -> Any:
    """A large array and a small one beside it."""
    return {
        "image": np.full((64, 1024), int(element) % 251, np.uint8),
        "label": np.full(8, element),
    }


def stop_iteration(element: Any) -> Any:
    if element == 3:
        raise StopIteration("enough")
    return element


class OtherArgumentsError(Exception):
    """One that pickle alone could not make again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class HoldsALockError(Exception):
    """One that cannot leave its process."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def raises_other_arguments(element: Any) -> Any:
    if element == 3:
        raise OtherArgumentsError(1, 2)
    return element


def raises_unpicklable(element: Any) -> Any:
    if element == 3:
        raise HoldsALockError
    return element


def returns_unpicklable(element: Any) -> Any:
    return threading.Lock() if element == 3 else element


def fails_at_three(element: Any) -> Any:
    if element == 3:
        raise LookupError("no three", 3)
    return element


def widens_at_three(element: Any) -> Any:
    return np.ones(1 if element == 3 else 2, np.float32)


def casts_at_three(element: Any) -> Any:
    return 1.5 if element == 3 else int(element)


CALLS = [0]


def counted(element: Any) -> Any:
    """Impure: keyed by the number of its calls in this process."""
    CALLS[0] += 1
    return int(element) * 1000 + CALLS[0]


def shows_its_process(element: Any) -> Any:
    """Impure: another value in each process."""
    return (element, os.getpid())


def draws_globally(element: Any) -> Any:
    """Impure: moves numpy's global random state."""
    return element + np.random.randint(2)  # noqa: NPY002 - what must be found


class Tagged(np.ndarray):
    """An array of a class of one's own."""


def derived(x: Any) -> Any:
    """Arrays of classes derived from numpy's."""
    rows = np.asarray([[x, 1]])
    return rows.view(np.matrix), np.ma.array(rows), rows.view(Tagged)


def masked(x: Any) -> Any:
    """An array with a mask: the second one's is in use."""
    return np.ma.array([x, x, x], mask=[x == 1, False, False])
