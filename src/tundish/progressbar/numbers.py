"""The numbers that are shown of a loop: elements, rate, rows, the time left, and whether your code waits for the input."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from dataclasses import dataclass
from operator import length_hint
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.watch.stats import Stats
from tundish.loader.watch.verdict import explain
from tundish.loader.watch.wording import rate_text, seconds_text

if TYPE_CHECKING:
    from tundish.progressbar.bar import TqdmBar
    from tundish.progressbar.line import TextLine

_VERDICT_S = 2.0
"""Seconds that a verdict covers."""
_UPDATES = 20
"""The number of updates over which the rate is averaged."""


@dataclass(frozen=True)
class Shown:
    """The numbers that are shown at one moment."""

    count: int
    total: int | None
    seconds: float
    rate: float
    unit: str
    rows: int
    waits: str

    def text(self, width: int | None = None) -> str:
        """Return all the numbers as text, or those of most use that fit a width."""
        several = f"{self.unit}es" if self.unit == "batch" else f"{self.unit}s"
        if (self.count if self.total is None else self.total) == 1:
            several = self.unit
        of = "" if self.total is None else f" of {self.total:,}"
        count = f"{self.count:,}{of} {several} in {seconds_text(self.seconds)}"
        rate = rate_text(self.rate) if self.rate else ""
        left = 0 if self.total is None else self.total - self.count
        time_left = f"{seconds_text(left / self.rate)} left" if left and self.rate else ""
        parts = [count, rate, self.rows_text, self.waits, time_left]
        if width is not None:
            parts[3] = self.waits_text
        for dropped in (2, 4):
            if width is not None and len(_joined(parts)) > width:
                parts[dropped] = ""
        return _joined(parts)

    @property
    def rows_text(self) -> str:
        """The rows a second."""
        return rate_text(self.rate * self.rows).replace("/s", " rows/s") if self.rows else ""

    @property
    def waits_text(self) -> str:
        """The `waits` in fewer words."""
        return self.waits.removeprefix("your code ").removesuffix(" for your code")


def _joined(parts: list[str]) -> str:
    return ", ".join(filter(None, parts))


class LoopCount:
    """The count of an iterator's elements, shown now and then.

    Without a reference to the iterator, so that it lives no longer than the loop.

    Parameters
    ----------
    display : TqdmBar or TextLine
        Where the numbers are shown.
    source : iterator
        The iterator.
    iterable : iterable
        What the iterator is of.
    total : int, optional
        The number of elements, if the user gave one.
    """

    def __init__(
        self, display: TqdmBar | TextLine, source: Any, iterable: Any, total: int | None
    ) -> None:
        self._display, self._total, self._iterable = display, total, iterable
        self.count = self._rows = 0
        self._left = self._remaining(source)
        self._began = perf_counter()
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)], _UPDATES)
        self._waits, self._asked, self._since = "", self._began, _stats(source)
        self._unit = "batch" if _gives_batches(source, iterable) else "element"
        self._owner = os.getpid()

    def show(self, element: Any, source: Any) -> None:
        """Show the numbers after an element; after the first there is no rate, and only its rows are noted."""
        if self._unit == "batch":
            self._rows = _rows_of(element)
        if self.count == 1:
            return
        self._judge(source)
        if _is_ours(source):  # a state may have been loaded meanwhile
            left = self._remaining(source)
            self._left = None if left is None else self.count + left
        self._display.show(self._now())

    def end(self) -> None:
        """Show the last numbers."""
        if os.getpid() == self._owner:
            self._display.end(self._now() if self.count else None)

    def _remaining(self, source: Any) -> int | None:
        """Return how many elements are still to come, if that is known."""
        if _is_ours(source):
            with contextlib.suppress(TypeError):
                return len(source)
            return None
        # A loader's length is that of an epoch, of which some batches may have come before a state.
        before = getattr(getattr(source, "_progress", None), "batches", 0)
        for each in (self._iterable, source):
            with contextlib.suppress(TypeError, AttributeError, NotImplementedError):
                return len(each) - (before if isinstance(before, int) else 0)
        left = length_hint(source, -1)
        return left if left >= 0 else None

    def _now(self) -> Shown:
        now = perf_counter()
        at, before = self._seen[0]
        self._seen.append((now, self.count))
        rate = (self.count - before) / (now - at) if now > at else 0.0
        total = self._left if self._total is None else self._total
        total = None if total is None else max(total, self.count)
        took = now - self._began
        return Shown(self.count, total, took, rate, self._unit, self._rows, self._waits)

    def _judge(self, source: Any) -> None:
        """Update whether your code or the input waits, if the last time was long ago."""
        now = perf_counter()
        if self._since is None or now - self._asked < _VERDICT_S:
            return
        with contextlib.suppress(Exception):  # a failure to show numbers must not end the training
            ask = getattr(source, "explain", None)
            found = ask(self._since) if ask else explain(source.stats, None, self._since)
            self._waits = found.waits
            self._since, self._asked = _stats(source), now


def _is_ours(source: Any) -> bool:
    module = sys.modules.get("tundish.loader.run.iterator")
    return isinstance(source, getattr(module, "Iterator", ()))


def _stats(source: Any) -> Stats | None:
    found = getattr(source, "stats", None)
    return found if isinstance(found, Stats) else None


def _gives_batches(source: Any, iterable: Any) -> bool:
    if _is_ours(source):
        from tundish.loader.run.watching.viewing import view_of  # noqa: PLC0415 - it is there by now

        return view_of(source._engine.context).unit[0] == "batch"  # noqa: SLF001 - our own
    batched = getattr(iterable, "_auto_collation", None)  # torch's name, which ours have as well
    if batched is None:
        batched = getattr(getattr(source, "_recipe", None), "batched", False)
    return batched is True


def _rows_of(batch: Any) -> int:
    """Return the number of rows of a batch, by its first leaf."""
    while isinstance(batch, (dict, tuple, list)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else 0
