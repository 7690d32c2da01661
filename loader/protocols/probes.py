"""Probes, which see every element: checks and dumps that are switched on for a whole pipeline.

An iterator uses the probes that are active when it is made, and sends them to its workers. Any probe turns off code
that computes many elements at once, so that each element of each operator is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tundish.loader.protocols.items import DROPPED, ref_of

Value = Callable[[Any, int], Any]
Identity = Callable[[Any, int], tuple[int, Any]]

Look = Callable[[str, Value, Callable[[], Identity]], Value]
"""``look(label, value, identity)`` wraps a node's evaluator (`tundish.loader.run.evaluating.values`)."""


class Probe(Protocol):
    """Observes elements; it is pickled to workers."""

    def bound(self, context: Any) -> Probe:
        """Return the probe for one `Context`; called once, when the context is made."""
        ...

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None) -> None:
        """Observe an element that a node gave; an error raised here becomes the element's.

        Parameters
        ----------
        label : str
            The node: ``map#2``. An element that the iterator delivers is seen once more, under the label of the plan's
            last node.
        element : nest
            The element, which must not be changed or kept.
        origin : (int, path) or None
            The number of the pass and the origin; None on delivery.
        """


_ACTIVE: list[Probe] = []


def activate(probe: Probe, *, first: bool = False) -> None:
    """Make iterators that are created from now on use a probe; an active one is not added twice.

    Parameters
    ----------
    probe : Probe
        The probe.
    first : bool
        True to put it before the active ones, so that it also sees elements that they reject.
    """
    if probe not in _ACTIVE:
        _ACTIVE.insert(0 if first else len(_ACTIVE), probe)


def deactivate(probe: Probe) -> None:
    """Make iterators that are created from now on run without a probe."""
    if probe in _ACTIVE:
        _ACTIVE.remove(probe)


def active() -> tuple[Probe, ...]:
    """The active probes."""
    return tuple(_ACTIVE)


def seeing(probe: Probe) -> Look:
    """Return a wrapper of evaluators that shows their elements to a probe."""
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
