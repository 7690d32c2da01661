"""Replacing nodes of a plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from tundish.loader.plan.node import Node

AnyNode = TypeVar("AnyNode", bound=Node)


def other_inputs(node: Node, rebuilt: Callable[[Any], Node]) -> dict[str, Any]:
    """Return the fields of a node that hold inputs, with rebuilt inputs; unchanged fields are left out."""
    changes: dict[str, Any] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            new: Any = rebuilt(value)
            if new is not value:
                changes[part.name] = new
        elif part.name == "ups":
            new = tuple([rebuilt(up) for up in value])
            if any(a is not b for a, b in zip(new, value, strict=True)):
                changes[part.name] = new
    return changes


def exchanging(
    others: Mapping[int, Node], change: Callable[..., Any] = replace
) -> Callable[[Any], Any]:
    """Make a function that rebuilds a plan with some nodes replaced.

    Parameters
    ----------
    others : dict
        The replacement of each node, by the node's id.
    change : callable
        ``change(node, **inputs)`` returns the node with other inputs.
    """
    done: dict[int, Any] = dict(others)

    def exchanged(node: Any) -> Any:
        if id(node) not in done:
            changes = other_inputs(node, exchanged)
            done[id(node)] = change(node, **changes) if changes else node
        return done[id(node)]

    return exchanged


_CHANGED: weakref.WeakKeyDictionary[Node, dict[Any, Any]] = weakref.WeakKeyDictionary()


def changed(node: AnyNode, **inputs: Any) -> AnyNode:
    """Return a node with other inputs; the same object every time, since caches are kept by node."""
    known = _CHANGED.setdefault(node, {})
    key = tuple([(name, _identities(value)) for name, value in inputs.items()])
    if key not in known:
        known[key] = new = replace(node, **inputs)
        _ORIGINALS[new] = weakref.ref(node)
    found: AnyNode = known[key]
    return found


_ORIGINALS: weakref.WeakKeyDictionary[Node, weakref.ref[Any]] = weakref.WeakKeyDictionary()


def original(node: AnyNode) -> AnyNode:
    """Return the node from which another was `changed`, as its user made it; else the node itself."""
    while node in _ORIGINALS:
        before = _ORIGINALS[node]()
        if before is None:
            break
        node = before
    return node


def _identities(value: Any) -> Any:
    return tuple(map(id, value)) if isinstance(value, tuple) else id(value)
