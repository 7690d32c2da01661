"""Iterables of every form that Python allows, as used for datasets, samplers and batch samplers.

Whatever the shape, one pass is what Python's ``for`` makes of it: ``iter()`` once, then ``next()``
until the first `StopIteration`, and nothing else is asked of the object. `pulled` is that rule as a
function; a loader over a shape has to give the same, pass after pass.
"""

from __future__ import annotations

import array
import io
import itertools
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np

__all__ = ["SHAPES", "Raised", "Shape", "Watched", "batches", "pulled"]


@dataclass(frozen=True)
class Shape:
    """One form of iterable.

    Parameters
    ----------
    name : str
        What it is called in a test.
    make : callable
        ``make(items)`` gives an iterable of these items.
    takes : {"any", "hashable", "numbers"}
        The items that it can have.
    """

    name: str
    make: Callable[[Sequence[Any]], Iterable[Any]]
    takes: str = "any"

    def __str__(self) -> str:
        return self.name


class Raised(str):
    """The name of an error's type, in place of the error."""

    __slots__ = ()


def pulled(iterable: Any, limit: int = 20) -> list[Any]:
    """Make one pass; an error becomes a `Raised` in its place, and the pass continues after it.

    Parameters
    ----------
    iterable : iterable
        A shape, or a loader over one.
    limit : int
        The largest number of outcomes to take.

    Examples
    --------
    >>> pulled([1, 2])
    [1, 2]
    >>> pulled(Stumbling([1, 2, 3]))
    [1, 'ValueError', 3]
    >>> pulled(5)
    ['TypeError']
    """
    found: list[Any] = []
    try:
        iterator = iter(iterable)
    except Exception as error:  # noqa: BLE001 - the outcome
        return [Raised(type(error).__name__)]
    while len(found) < limit:
        try:
            found.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001 - the outcome
            found.append(Raised(type(error).__name__))
    return found


def batches(outcomes: Sequence[Any], size: int | None, *, drop_last: bool = False) -> list[Any]:
    """Batch outcomes; an error takes the place of its batch, with the items before it.

    Examples
    --------
    >>> batches([0, 1, 2, Raised("ValueError"), 4], 2)
    [[0, 1], 'ValueError', [4]]
    """
    if size is None:
        return list(outcomes)
    found: list[Any] = []
    batch: list[Any] = []
    for outcome in outcomes:
        batch.append(outcome)
        if isinstance(outcome, Raised):
            found.append(outcome)
            batch = []
        elif len(batch) == size:
            found.append(batch)
            batch = []
    return found if not batch or drop_last else [*found, batch]


class Held:
    """The base of iterables that hold items; subclasses define how they are iterated."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)


class Generating(Held):
    """``__iter__`` is a generator function."""

    def __iter__(self) -> Iterator[Any]:
        yield from self.items


class Once(Held):
    """``__iter__`` returns self: one pass, and then no more."""

    at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.at == len(self.items):
            return self._end()
        self.at += 1
        return self.items[self.at - 1]

    def _end(self) -> Any:
        raise StopIteration


class Fresh(Held):
    """``__iter__`` returns a new iterator."""

    def __iter__(self) -> Iterator[Any]:
        return Once(self.items)


class Resetting(Once):
    """``__iter__`` goes back to the beginning and returns self."""

    def __iter__(self) -> Self:
        self.at = 0
        return self


class Unready(Held):
    """``__iter__`` makes what ``__next__`` needs, and returns self."""

    def __iter__(self) -> Self:
        self.rest = list(reversed(self.items))
        return self

    def __next__(self) -> Any:
        if not self.rest:
            raise StopIteration
        return self.rest.pop()


class Anew(Once):
    """Begins again by itself once it has ended."""

    def _end(self) -> NoReturn:
        self.at = 0
        raise StopIteration


class Touchy(Once):
    """An iterator that must not be used again after its end."""

    over = False

    def _end(self) -> NoReturn:
        if self.over:
            raise AssertionError("asked again after its end")
        self.over = True
        raise StopIteration


class Stumbling(Resetting):
    """The second item is an error; the others come."""

    def __next__(self) -> Any:
        item = super().__next__()
        if self.at == 2:
            raise ValueError(item)
        return item


class Broken(Held):
    """A generator that raises in the place of the third item, which ends it."""

    def __iter__(self) -> Iterator[Any]:
        yield from self.items[:2]
        raise LookupError(self.items[2])


class Counted(Held):
    """Each pass begins with another item: a pass too many shows."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        at = self.passes % len(self.items)
        return iter([*self.items[at:], *self.items[:at]])


class Steps:
    """An iterator that is no iterable: it has no ``__iter__``."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.rest = list(reversed(items))

    def __next__(self) -> Any:
        if not self.rest:
            raise StopIteration
        return self.rest.pop()


class Bare(Held):
    """``__iter__`` returns an iterator that has none itself."""

    def __iter__(self) -> Any:
        return Steps(self.items)


class ItemsOnly(Held):
    """An iterable without ``__iter__``, but with items from 0 on until an `IndexError`."""

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Lying(Generating):
    """Says that it has two items."""

    def __len__(self) -> int:
        return 2


class Boasting(Generating):
    """Says that it has a thousand items."""

    def __len__(self) -> int:
        return 1000

    def __length_hint__(self) -> int:
        return 2000


class Hinting(Generating):
    """An iterable without a length, and with a hint that is wrong."""

    def __length_hint__(self) -> int:
        return 1


class Unsized(Generating):
    """An iterable with a length that it does not know, as torch advises for some samplers."""

    def __len__(self) -> int:
        raise TypeError("nobody knows")


class Prickly(Generating):
    """Answers nothing but ``iter()``."""

    __hash__ = None  # type: ignore[assignment]

    def _refuse(self, *_: Any) -> NoReturn:
        raise AssertionError("only to be iterated")

    __len__ = __length_hint__ = __bool__ = __eq__ = __ne__ = __contains__ = __reversed__ = _refuse


class Empty(Generating):
    """An iterable that has items, and is false."""

    def __bool__(self) -> bool:
        return False


class Obliging(Generating):
    """An iterable with every attribute; each is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class Refusing(Held):
    """``__iter__`` raises."""

    def __iter__(self) -> NoReturn:
        raise LookupError("not now")


class Mistaken(Held):
    """``__iter__`` returns what is no iterator."""

    def __iter__(self) -> Any:
        return self.items


class Endless(Held):
    """An iterable that has no end."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(self.items)


class Watched(Held):
    """Counts the calls of its methods.

    Attributes
    ----------
    asked : Counter
        How often each special method was called.

    Examples
    --------
    >>> watched = Watched([1, 2])
    >>> _ = list(watched)
    >>> dict(watched.asked)
    {'iter': 1, 'len': 1, 'next': 3}
    """

    def __init__(self, items: Sequence[Any]) -> None:
        super().__init__(items)
        self.asked: Counter[str] = Counter()

    def __iter__(self) -> Self:
        self.asked["iter"] += 1
        self._iterator = iter(self.items)
        return self

    def __next__(self) -> Any:
        self.asked["next"] += 1
        return next(self._iterator)

    def __len__(self) -> int:
        self.asked["len"] += 1
        return len(self.items)

    def __bool__(self) -> bool:
        self.asked["bool"] += 1
        return True

    def __eq__(self, other: object) -> bool:
        self.asked["eq"] += 1
        return self is other

    def __hash__(self) -> int:
        self.asked["hash"] += 1
        return 0


def _yielding(items: Sequence[Any]) -> Iterator[Any]:
    yield from items


def _called(items: Sequence[Any]) -> Iterator[Any]:
    """An iterator of a function that is called until it returns None."""
    return iter(partial(next, iter(items), None), None)


def _lines(items: Sequence[Any]) -> Iterable[str]:
    return io.StringIO("".join(f"{item}\n" for item in items))


_CLASSES: tuple[Callable[[Sequence[Any]], Any], ...] = (
    *(Generating, Fresh, Resetting, Unready, Once, Anew, Touchy, Stumbling, Broken, Counted, Bare),
    *(
        ItemsOnly,
        Lying,
        Boasting,
        Hinting,
        Unsized,
        Prickly,
        Empty,
        Obliging,
        Refusing,
        Mistaken,
        Endless,
    ),
)

SHAPES = (
    *(Shape(str(getattr(kind, "__name__", kind)).lower(), kind) for kind in _CLASSES),
    Shape("list", list),
    Shape("tuple", tuple),
    Shape("deque", deque),
    Shape("dict", dict.fromkeys, takes="hashable"),
    Shape(
        "mappingproxy", lambda items: types.MappingProxyType(dict.fromkeys(items)), takes="hashable"
    ),
    Shape("set", set, takes="hashable"),
    Shape("range", lambda items: range(len(items)), takes="numbers"),
    Shape("memoryview", lambda items: memoryview(bytes(items)), takes="numbers"),
    Shape("array", lambda items: array.array("q", items), takes="numbers"),
    Shape("ndarray", np.array, takes="numbers"),
    Shape("file", _lines, takes="numbers"),
    Shape("generator", _yielding),
    Shape("iterator", iter),
    Shape("reversed", reversed),
    Shape("called", _called),
    Shape("map", lambda items: map(tuple if isinstance(items[0], list) else int, items)),
    Shape("filter", lambda items: filter(lambda item: item is not None, items)),
    Shape("zip", lambda items: zip(items, strict=False)),
    Shape("chain", lambda items: itertools.chain(items[:1], items[1:])),
    Shape("islice", lambda items: itertools.islice(items, 2)),
    Shape("cycle", itertools.cycle),
)
"""Every shape."""
