"""Ctrl-C wherever Python may raise it while an iterator is asked: nothing is lost or comes twice."""

from __future__ import annotations

import contextlib
import inspect
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from collections.abc import Iterator as Iterates
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.laws.functions import pure, sleep_for_ever

from tundish import DataLoader, Dataset

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
            self.strike()

    def strike(self) -> None:
        raise KeyboardInterrupt


class LateError(Exception):
    """An exception that a handler of SIGALRM raises to bound a step."""


class Alarm(Interrupt):
    """Lets the handler of SIGALRM raise a `LateError` there."""

    def strike(self) -> None:
        signal.raise_signal(signal.SIGALRM)


def outcomes(iterator: Any, interrupt: Interrupt | None = None) -> list[str]:
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
        except (KeyboardInterrupt, LateError):
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


@pytest.fixture
def alarm() -> Iterates[None]:
    def late(*_: Any) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["map", "errors", "windows"])
def test_an_exception_of_a_handler_loses_nothing_with_workers(name: str, alarm: None) -> None:
    """It is no element's error, though it is an `Exception`."""
    expected = outcomes(PIPELINES[name]().iterator(workers=0))
    for at in range(0, 300, 23):
        with PIPELINES[name]().iterator(workers=1) as iterator:
            assert outcomes(iterator, Alarm(at)) == expected, at


def test_a_loader_goes_on_after_an_exception_of_a_handler(alarm: None) -> None:
    """A batch is lost only where `next` was about to return it."""
    expected = outcomes(iter(DataLoader(range(12), 2)))
    for at in range(0, 400, 23):
        iterator = iter(DataLoader(range(12), 2, num_workers=1))
        with contextlib.closing(iterator):
            found = outcomes(iterator, Alarm(at))
        assert found == [each for each in expected if each in found], at
        assert len(found) >= len(expected) - 1, at


HURRIED = (
    "generator",  # replayed from its start each time, which takes longer than an interrupt is away
    "generator, map",
    "running sum",
    "shuffle-errors",
    "flat_map-errors",
    "from_generator-shuffle",
    "interleave",
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_who_is_interrupted_all_the_time_goes_on_nevertheless(workers: int) -> None:
    module = "tests.laws.interrupted"
    told = subprocess.run(
        [sys.executable, "-m", module, "0.01", str(workers), *HURRIED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    lines = told.stdout.splitlines()
    assert len(lines) == len(HURRIED), (told.stdout, told.stderr)
    assert all(line.endswith(" interrupts, same") for line in lines), told.stdout
    counts = [int(line.split(": ")[1].split()[0]) for line in lines]
    assert sum(counts) > len(HURRIED)


@contextlib.contextmanager
def interrupted_in(seconds: float) -> Generator[None, None, None]:
    """One interrupt, after a while, unless the block is done before."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_each_interrupt_comes_soon(workers: int) -> None:
    """One that comes while another is healed is held back, but not for long."""
    with Dataset.range(5).map(sleep_for_ever).iterator(workers=workers) as iterator:
        took = []
        for _ in range(3):
            since = time.monotonic()
            with pytest.raises(KeyboardInterrupt), interrupted_in(0.05):
                next(iterator)
            took.append(time.monotonic() - since)

    assert max(took) < 1.0, took


def numbers_that_never_come() -> Any:
    time.sleep(60)
    yield 0


def test_an_iterator_that_is_begun_is_interrupted() -> None:
    """Its generator runs in the consumer's process, and has been asked for the first elements."""
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_in(0.1):
        next(Dataset.from_generator(numbers_that_never_come).map(pure).iterator(workers=1))

    assert time.monotonic() - since < 10.0
