"""Ctrl-C wherever Python may raise it while an iterator is asked: nothing is lost or comes twice."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.laws.functions import pure

from tundish import Dataset, Iterator

PIPELINES: dict[str, Callable[[], Dataset]] = {
    "numbers": lambda: Dataset.range(7).shuffle(3, seed=1),
    "map": lambda: Dataset.range(7).map(pure),
    "errors": lambda: Dataset.range(9).map(odd).padded_batch(2),
    "windows": lambda: Dataset.range(6).window(3, shift=2).flat_map(lambda w: w.batch(2)),
    "scan": lambda: Dataset.range(6).scan(0, add),
    "packed": lambda: Dataset.range(1, 7).map(np.arange).pack(4, method="first_fit"),
}


def odd(n: Any) -> Any:
    if n == 4:
        raise ValueError("four")
    return n


def add(state: Any, n: Any) -> Any:
    return state + n, state


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place where Python looks for signals.

    It looks when a function of Python is entered, and when one of C has returned.
    """

    def __init__(self, at: int) -> None:
        self.left = at
        self.hit = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "c_return") or self.hit:
            return
        if not frame.f_globals.get("__name__", "").startswith("tundish."):
            return
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return  # it may be one that is being closed, where Python only reports what is raised
        if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            return
        self.left -= 1
        if self.left < 0:
            self.hit = True
            raise KeyboardInterrupt


def outcomes(iterator: Iterator, interrupt: Interrupt | None = None) -> list[str]:
    found: list[str] = []
    while True:
        if interrupt is not None and not interrupt.hit:
            sys.setprofile(interrupt)
        try:
            element = next(iterator)
        except StopIteration:
            # Else the garbage collector ends it, perhaps where the next one is interrupted: Python only
            # reports what is raised in a finalizer.
            sys.setprofile(None)
            iterator.close()
            return found
        except KeyboardInterrupt:
            continue
        except Exception as error:  # noqa: BLE001 - it is what is compared
            found.append(repr(error))
        else:
            found.append(repr(element))
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("name", PIPELINES)
def test_an_interrupt_anywhere_loses_nothing(name: str) -> None:
    expected = outcomes(PIPELINES[name]().iterator(workers=0))
    at = 0
    while True:
        interrupt = Interrupt(at)
        assert outcomes(PIPELINES[name]().iterator(workers=0), interrupt) == expected, at
        if not interrupt.hit:
            return
        at += 1 + at // 40


@pytest.mark.parametrize("name", ["map", "errors", "windows"])
def test_an_interrupt_anywhere_loses_nothing_with_workers(name: str) -> None:
    expected = outcomes(PIPELINES[name]().iterator(workers=0))
    for at in range(0, 300, 37):
        with PIPELINES[name]().iterator(workers=1) as iterator:
            assert outcomes(iterator, Interrupt(at)) == expected, at
