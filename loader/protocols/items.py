"""Items: what machines pass to each other.

An *item* stands for an element of a node's stream, computed or not:

* an int or a nested tuple of ints: a *ref*, from which the node's evaluator computes the element;
* `Made`: a computed element, with its value in this process;
* `Row`, `Rows` (in `tundish.loader.protocols.rows`): computed by a worker, in shared memory;
* `Failure`: an error in the element's place, which is passed on until it is delivered;
* a tuple ``(ordinal, item, ...)``: composed of other items (zip, enumerate, batch).

Every computed item keeps its ref: states store the ref, and the element can be recomputed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tundish.loader.protocols.raised import carried

Ref = Any
"""An int, or a nested tuple of ints, that names an element within its node."""

_SHORT = 2  # entries: a tuple of no more is not worth a number
_FAR = 2**63
_DIGITS = 9


class End(Exception):  # noqa: N818 - the end of a stream is no error
    """Raised when a stream has no more items."""


class NotReady(Exception):  # noqa: N818 - as End
    """Raised when the next item is still being computed; ask again after workers have answered."""


class Made:
    """An element that has been computed, with its value in this process."""

    __slots__ = ("note", "ref", "value")

    def __init__(self, ref: Ref, value: Any, note: Any = None) -> None:
        self.ref = ref
        self.value = value
        self.note = note


class Failure:
    """An error in the place of an element.

    Parameters
    ----------
    ref : Ref
        The ref of the element.
    error : BaseException
        The error to raise on delivery, with notes and cause.
    """

    __slots__ = ("error", "ref")

    def __init__(self, ref: Ref, error: BaseException) -> None:
        self.ref = ref
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        from tundish.loader.protocols.failure import dumps_exception  # noqa: PLC0415 - rare

        return _failure, (self.ref, dumps_exception(self.error))


def _failure(ref: Ref, data: bytes) -> Failure:
    from tundish.loader.protocols.failure import loads_exception  # noqa: PLC0415 - rare

    return Failure(ref, carried(loads_exception(data)))


class Dropped:
    """The type of `DROPPED`."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "DROPPED"


DROPPED = Dropped()
"""The value of an evaluator for an element that a filter or an error policy has dropped."""


def ref_of(item: Any) -> Ref:
    """Return the ref of any item."""
    kind = type(item)
    if kind is not tuple:
        return item if kind is int else item.ref
    return tuple([x if type(x) is int else ref_of(x) for x in item])


def to_json(ref: Ref) -> Any:
    """Convert a ref, or a tuple of refs, to JSON.

    The rows of a batch repeat its ref. So a tuple of more than two entries is written where it first appears, and
    repeated as a string, its number.

    Examples
    --------
    >>> to_json((((0, (4, 5, 6)), 0), ((0, (4, 5, 6)), 1)))
    [[[0, [4, 5, 6]], 0], [[0, '0'], 1]]
    """
    return _written(ref, {})


def _written(ref: Ref, known: dict[Ref, int]) -> Any:
    if type(ref) is int:
        return ref
    if len(ref) <= _SHORT:
        return [_written(x, known) for x in ref]
    at = known.get(ref)
    if at is not None:
        return str(at)
    data = [x if type(x) is int else _written(x, known) for x in ref]
    known[ref] = len(known)
    return data


def from_json(data: Any) -> Ref:
    """Convert JSON back to a ref, or a tuple of refs.

    Raises
    ------
    ValueError
        Something in it is not a 64-bit int, a list, or the number of an earlier tuple.
    """
    return _read(data, [])


def _read(data: Any, known: list[Ref]) -> Ref:
    if isinstance(data, str):
        if not data.isdecimal() or len(data) > _DIGITS or int(data) >= len(known):
            raise ValueError(f"{data:.20} is not the number of a list before it")
        return known[int(data)]
    if not isinstance(data, (list, tuple)):
        if type(data) is not int or not -_FAR <= data < _FAR:
            raise ValueError(f"{data!r:.40} is not a 64-bit integer")
        return data
    ref = tuple([_read(x, known) for x in data])
    if len(ref) > _SHORT:
        known.append(ref)
    return ref


def rewrap(item: Any, wrap: Callable[[Ref], Ref]) -> Any:
    """Convert an item's ref to an outer node's ref; a computed item keeps its value."""
    kind = type(item)
    if kind is int or kind is tuple:
        return wrap(item)
    item.ref = wrap(item.ref)
    return item
