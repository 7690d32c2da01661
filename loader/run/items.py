"""What travels between the machines of a network.

An *item* names an element of a node's stream before, or after, it has been computed:

* an int or a nested tuple of ints: a *ref*, from which the node's evaluator computes the element;
* `Made`: computed, the value at hand;
* `Row`, `Rows` (in `tundish.loader.run.block`): computed by a worker, in shared memory;
* `Failure`: the element is an error, which rides along until it is delivered;
* a tuple ``(ordinal, item, ...)``: put together from other items (zip, enumerate, batch).

Every computed item keeps its ref: it is what a state saves, and from what it can be made again.
"""

from __future__ import annotations

from typing import Any

Ref = Any
"""An int, or a nested tuple of ints: where an element comes from."""


class End(Exception):  # noqa: N818 - the end of a stream is no error
    """A stream has no more items."""


class NotReady(Exception):  # noqa: N818 - as End
    """The next item is still being computed; ask again after the workers have answered."""


class Made:
    """An element that has been computed, with its value in this process."""

    __slots__ = ("note", "ref", "value")

    def __init__(self, ref: Ref, value: Any, note: Any = None) -> None:
        self.ref = ref
        self.value = value
        self.note = note


class Failure:
    """An element that is an error.

    Parameters
    ----------
    ref : Ref
        Where the element comes from.
    error : BaseException
        What to raise when it is delivered; notes and cause are set.
    """

    __slots__ = ("error", "ref")

    def __init__(self, ref: Ref, error: BaseException) -> None:
        self.ref = ref
        self.error = error


class Dropped:
    """The type of `DROPPED`."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "DROPPED"


DROPPED = Dropped()
"""What an evaluator gives for an element that a filter or an error policy left out."""


def ref_of(item: Any) -> Ref:
    """The ref of any item."""
    if type(item) is int:
        return item
    if type(item) is tuple:
        return tuple([ref_of(x) for x in item])
    return item.ref


def to_json(ref: Ref) -> Any:
    """A ref as JSON."""
    return ref if type(ref) is int else [to_json(x) for x in ref]


def from_json(data: Any) -> Ref:
    """A ref from JSON."""
    return tuple([from_json(x) for x in data]) if isinstance(data, list) else int(data)
