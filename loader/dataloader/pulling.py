"""One pass over what a user gives to be iterated: what Python's ``for`` asks of it, and no more.

An object's ``__iter__`` may begin anew each time that it is called, and an iterator may begin anew
once it has ended, have no ``__iter__``, or go on after an error. So `begun` calls ``iter()`` once,
and nothing calls it again of what that gave: `pulled` only calls ``next()``, until the first
`StopIteration`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from types import GeneratorType
from typing import Any

__all__ = ["begun", "pulled", "raising"]

# Iterators that are ended for good once they have ended: nothing need stand between.
_STEADY = {GeneratorType, type(iter(())), type(iter([])), type(iter(range(0)))}


def begun(iterable: Any) -> Any:
    """Call ``iter()``, the one time in a pass.

    Raises
    ------
    RuntimeError
        ``__iter__`` raised StopIteration, which would end the pass silently.
    """
    try:
        return iter(iterable)
    except StopIteration as error:
        raise RuntimeError(f"iter() of a {type(iterable).__name__} raised StopIteration") from error


def pulled(iterator: Any) -> Iterator[Any]:
    """Call ``next()`` until the first StopIteration; an error is raised, and what follows it comes.

    All of it is C: `chain` forgets what has ended, and keeps what has raised.

    Examples
    --------
    >>> list(pulled(iter("ab")))
    ['a', 'b']
    """
    return iterator if type(iterator) in _STEADY else chain(map(next, repeat(iterator)))


def raising(error: BaseException) -> Iterator[Any]:
    """Give an error in place of one item.

    Examples
    --------
    >>> list(raising(ValueError("no")))
    Traceback (most recent call last):
    ValueError: no
    """
    return map(_raise, [error])


def _raise(error: BaseException) -> Any:
    raise error
