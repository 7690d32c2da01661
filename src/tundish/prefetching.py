"""`Prefetcher`: takes elements ahead of the loop, while the state stays that of the loop.

It is the common part of the bridges to devices, which begin to copy an element before the loop asks for
it. So each element waits together with the state that the source had after giving it; the prefetcher's
own state is that of the last element the loop was given.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from tundish.loader.protocols.raised import is_interrupt

_NOT_YET: Any = object()
_STATEFUL = ("state_dict", "load_state_dict")


@dataclass(frozen=True, slots=True)
class _Taken:
    """The result of one call of the source, and the source's state after it."""

    begun: Any
    error: BaseException | None
    state: Any


class Prefetcher:
    """Takes elements from a source ahead of the loop.

    Parameters
    ----------
    source : iterator or iterable
        ``iter()`` is called on it once, now. The iterator's ``state_dict`` and
        ``load_state_dict``, or else those of the iterable (as of a DataLoader), are used if
        it has them.
    depth : int
        The number of elements to take beyond the one that the loop is given.

    Notes
    -----
    An error of the source is raised in its element's place; elements after it may
    have been taken by then. An interrupt (any exception that is not an `Exception`) is raised at once.
    """

    def __init__(self, source: Iterable[Any], depth: int) -> None:
        self._depth = check_depth(depth)
        self._source = source
        self._iterator: Any = iter(source)
        self._ahead: deque[_Taken] = deque()
        self._state: Any = _NOT_YET
        self._end: Any = None
        self._exhausted = self._closed = self._doubt = False
        self._lock = threading.RLock()  # calls from several threads are put in a row

    # -- what a bridge fills in ----------------------------------------------------------------

    def _begin(self, element: Any) -> Any:
        """Begin to transfer an element, without waiting."""
        return element

    def _finish(self, begun: Any) -> Any:
        """Return the element whose transfer `_begin` began."""
        return begun

    def _drop(self) -> None:
        """Abandon transfers that were begun and not finished."""

    # -- elements ------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return self._next()

    def _next(self) -> Any:
        if self._closed:
            raise StopIteration
        if self._doubt:
            self._heal()
        while len(self._ahead) <= self._depth and not self._exhausted:
            self._take()
        if not self._ahead:
            self._state = self._end
            raise StopIteration
        first = self._ahead[0]
        if first.error is not None:
            self._ahead.popleft()
            self._state = first.state
            raise first.error
        element = self._finish(first.begun)
        self._ahead.popleft()
        self._state = first.state
        return element

    def _take(self) -> None:
        if self._state is _NOT_YET:
            self._state = self._source_state()
        begun, error = None, None
        try:
            begun = self._begin(next(self._iterator))
        except StopIteration:
            self._end = self._source_state()
            self._exhausted = True
            return
        except BaseException as problem:
            if is_interrupt(problem):
                # The source may have given an element that is lost by now: begin again after the
                # last one that is here.
                self._doubt = True
                raise
            error = problem  # the element's, raised at its place
        self._ahead.append(_Taken(begun, error, self._source_state()))

    def _heal(self) -> None:
        if self._stateful is not None:
            self._go(self._ahead[-1].state if self._ahead else self._state)
        self._doubt = False

    # -- state ---------------------------------------------------------------------------------

    @property
    def _stateful(self) -> Any:
        """Return the object with the state: the iterator, else the iterable."""
        for candidate in (self._iterator, self._source):
            if all(callable(getattr(candidate, name, None)) for name in _STATEFUL):
                return candidate
        return None

    def _check_stateful(self) -> None:
        if self._stateful is None:
            kind = type(self._source).__name__
            raise TypeError(f"{kind} has no state_dict and load_state_dict")

    def _source_state(self) -> Any:
        stateful = self._stateful
        return None if stateful is None else stateful.state_dict()

    def state_dict(self) -> Any:
        """Return the source's state after the last element that the loop was given.

        Raises
        ------
        TypeError
            The source has no state.
        """
        self._check_stateful()
        return self._source_state() if self._state is _NOT_YET else self._state

    def load_state_dict(self, state: Any) -> None:
        """Load a state, dropping the elements taken ahead."""
        self._check_stateful()
        self._ahead.clear()
        self._drop()
        self._go(state)
        self._state = _NOT_YET
        self._closed = self._doubt = False

    def _go(self, state: Any) -> None:
        stateful = self._stateful
        if stateful is self._iterator:
            stateful.load_state_dict(state)
        else:  # a loader's state counts from its next iterator on
            close_quietly(self._iterator)
            self._iterator = None
            stateful.load_state_dict(state)
            self._iterator = iter(stateful)
        self._exhausted = False

    # -- end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Drop the elements taken ahead and close the source; the loop's elements stay valid."""
        self._closed = True
        self._ahead.clear()
        self._drop()
        close_quietly(self._iterator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_depth(depth: int) -> int:
    """Check a number of elements to take ahead.

    Raises
    ------
    TypeError, ValueError
        It is not an int, or is negative.
    """
    number = operator.index(depth)
    if number < 0:
        raise ValueError(f"depth must be at least 0, not {number}")
    return number


def close_quietly(iterator: Any) -> None:
    """Close an iterator that has a ``close``; others end when they are collected."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
