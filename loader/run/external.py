"""State in a plan that cannot be saved, so that a restored iterator may give different elements.

The search covers what functions capture, their defaults, the globals that they read, the object of
a method, the attributes that it reads, and the user's functions that they call.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields

from tundish.errors import ExternalStateError
from tundish.loader.operators.options import options_of
from tundish.loader.plan.groups import ExternalStatePolicy
from tundish.loader.plan.node import walk
from tundish.loader.plan.safe_introspection import is_of
from tundish.loader.plan.search import Finding, StateSearch
from tundish.loader.protocols.operator import Operator
from tundish.tracebacks import callers_level

_DRAW = "{draw}"
_REMEDIES = {
    "drawn": ("its state belongs to this process, and each worker has its own", _DRAW),
    "generator": ("what was drawn from it is not in the state", _DRAW),
    "unseeded": ("it starts from another state each time", _DRAW),
    "system": ("it returns something else each time", _DRAW),
    "iterator": (
        "its position is not in the state",
        "make it inside the function; or make a dataset of it and use Dataset.zip",
    ),
    "file": (
        "its position is not in the state",
        "open it inside the function, or take the place in it from the element",
    ),
    "socket": (
        "what was received is not in the state",
        "connect inside the function, and ask for what the element names",
    ),
}


@dataclass(frozen=True)
class ExternalState:
    """Something in a plan that is not part of an iterator's state.

    Parameters
    ----------
    node : str
        The operator, with its number in the plan: ``map#1``.
    what : str
        The state, and where it was found.
    why : str
        What is missing from the iterator's state.
    instead : str
        Advice on what to do instead.
    """

    node: str
    what: str
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}: {self.why}. Instead: {self.instead}"


_KNOWN: weakref.WeakKeyDictionary[Operator, tuple[ExternalState, ...]] = weakref.WeakKeyDictionary()
_TOLD: weakref.WeakSet[Operator] = weakref.WeakSet()


def external_state(root: Operator) -> tuple[ExternalState, ...]:
    """Return the state in a plan that cannot be saved; the search is cached.

    Parameters
    ----------
    root : Operator
        The plan.
    """
    known = _KNOWN.get(root)
    if known is None:
        known = _KNOWN[root] = tuple(dict.fromkeys(_of_each(root)))
    return known


def heed_external_state(root: Operator, doing: str) -> None:
    """Apply `Options.external_state_policy` before a plan, or a position in it, is saved.

    Parameters
    ----------
    root : Operator
        The plan.
    doing : str
        The operation, for the message.

    Raises
    ------
    ExternalStateError
        There is such state, and the policy is FAIL.

    Warns
    -----
    UserWarning
        There is such state, and the policy is WARN, the default; once for each plan.
    """
    if root in _TOLD:
        return
    policy = options_of(root).external_state_policy or ExternalStatePolicy.WARN
    found = () if policy is ExternalStatePolicy.IGNORE else external_state(root)
    if found and policy is ExternalStatePolicy.FAIL:
        raise ExternalStateError(doing, tuple(map(str, found)))
    _TOLD.add(root)
    for each in found:
        warnings.warn(
            f"{doing} does not include everything that the elements depend on. {each}. (Or set "
            "Options.external_state_policy to 'ignore', or 'fail'.)",
            stacklevel=callers_level(),
        )


def _of_each(root: Operator) -> Iterator[ExternalState]:
    for at, node in enumerate(walk(root)):
        # Otherwise records are read by number, and the position of a file does not matter.
        files = node.records is None
        search = StateSearch(seeded=getattr(node, "seed", None) is not None, files=files)
        with contextlib.suppress(Exception):  # an unusual object's error must not prevent saving
            _look_into(node, search)
            search.run()
        for kind, what in search.told():
            why, instead = _REMEDIES[kind]
            yield ExternalState(
                f"{node.label}#{at}", what, why, instead.replace(_DRAW, node.draw_instead)
            )


def _look_into(node: Operator, search: StateSearch) -> None:
    if node.records is not None:
        search.source(node.records)
        return
    for each in fields(node):
        value = getattr(node, each.name)
        if not is_of(value, Operator):
            search.value(value, Finding(each.name))
