"""A process that is interrupted all the time, as by somebody who leans on Ctrl-C.

Run with the seconds between interrupts, the number of workers and the names of pipelines. It prints a
line for each: how many interrupts there were, and how its elements differ from those of a run that
nobody interrupts.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tundish import Dataset
from tundish.testing.registry import CASES

ELEMENT_S = 0.002


def slowly(*parts: Any) -> Any:
    """An element that takes a while."""
    time.sleep(ELEMENT_S)
    return parts[0] if len(parts) == 1 else parts


def numbers() -> Iterator[int]:
    """Numbers, each of which takes a while: what is replayed takes longer than an interrupt is away."""
    for number in range(9):
        time.sleep(ELEMENT_S)
        yield number


def add(state: int, number: Any) -> Any:
    """A sum, which takes a while."""
    time.sleep(ELEMENT_S)
    return state + number, state


PIPELINES: dict[str, Callable[[], Dataset]] = {
    "generator": lambda: Dataset.from_generator(numbers),
    "generator, map": lambda: Dataset.from_generator(numbers).map(slowly),
    "running sum": lambda: Dataset.range(9).scan(0, add),
} | {case.name: lambda case=case: case.build().map(slowly) for case in CASES}


class _Collecting:
    """The outcomes of an iterator that is interrupted; what hits between its calls does not count."""

    def __init__(self, iterator: Any, every_s: float) -> None:
        self.found: list[str] = []
        self.interrupts = 0
        self._asking = False
        self._iterator, self._every_s = iterator, every_s

    def run(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, self._every_s, self._every_s)
        while self._went_on():
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _went_on(self) -> bool:
        element: Any = None
        error: BaseException | None = None
        self._asking = True
        try:
            element = next(self._iterator)
        except BaseException as problem:  # noqa: BLE001 - it is what is compared
            error = problem
        self._asking = False
        if isinstance(error, StopIteration):
            return False
        if isinstance(error, KeyboardInterrupt):
            self.interrupts += 1
        else:
            self.found.append(repr(element if error is None else error))
        return True

    def _interrupt(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename == __file__:
            if frame.f_code is _Collecting._went_on.__code__:  # the element is here
                return
            frame = frame.f_back
        if self._asking:
            raise KeyboardInterrupt


def main() -> None:
    every_s, workers = float(sys.argv[1]), int(sys.argv[2])
    for name in sys.argv[3:]:
        dataset = PIPELINES[name]()
        calm = _Collecting(dataset.iterator(workers=0), 0.0)
        calm.run()
        with dataset.iterator(workers=workers) as iterator:
            hurried = _Collecting(iterator, every_s)
            hurried.run()
        same = "same" if hurried.found == calm.found else f"{hurried.found} != {calm.found}"
        print(f"{name}: {hurried.interrupts} interrupts, {same}", flush=True)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
