"""Probes that look at every element: checks and dumps that are switched on for a whole pipeline.

An iterator takes the probes that are active when it is made; they travel to its workers. With any,
what computes many elements at once is off: each element of each operator is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tundish.loader.protocols.items import DROPPED, ref_of

Value = Callable[[Any, int], Any]
Identity = Callable[[Any, int], tuple[int, Any]]

Look = Callable[[str, Value, Callable[[], Identity]], Value]
"""``look(label, value, identity)``: an evaluator in the place of a node's (`tundish.loader.run.evaluating.values`)."""


class Probe(Protocol):
    """Looks at elements; it is pickled to workers."""

    def bound(self, context: Any) -> Probe:
        """Return what looks at the elements of one `Context`: asked once, when the context is made."""
        ...

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None) -> None:
        """Look at an element that a node gave; what this raises is the element's error.

        Parameters
        ----------
        label : str
            The node: ``map#2``. An element that the iterator delivers is seen once more, as of
            the plan's last node.
        element : nest
            The element; it is not to be changed, nor kept.
        origin : (int, path) or None
            The number of the pass and the origin; None where it is delivered.
        """


_ACTIVE: list[Probe] = []


def activate(probe: Probe, *, first: bool = False) -> None:
    """Have iterators that are made from now on use a probe; one that is active is not added again.

    Parameters
    ----------
    probe : Probe
        Looks at elements.
    first : bool
        It looks before those that are active: it sees what they refuse, too.
    """
    if probe not in _ACTIVE:
        _ACTIVE.insert(0 if first else len(_ACTIVE), probe)


def deactivate(probe: Probe) -> None:
    """Have iterators that are made from now on do without a probe."""
    if probe in _ACTIVE:
        _ACTIVE.remove(probe)


def active() -> tuple[Probe, ...]:
    """The active probes."""
    return tuple(_ACTIVE)


def seeing(probe: Probe) -> Look:
    """Have a probe see what evaluators give."""
    see = probe.see

    def look(label: str, value: Value, identity: Callable[[], Identity]) -> Value:
        origin = identity()

        def seen(item: Any, pass_: int) -> Any:
            element = value(item, pass_)
            if element is not DROPPED:
                see(label, element, origin(item if type(item) is int else ref_of(item), pass_))
            return element

        return seen

    return look
