"""The plan that is run: what its options say of every operator is said at each."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.loader.plan.options import options_of
from tundish.loader.plan.rebuilding import other_inputs

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node

_EFFECTIVE: weakref.WeakKeyDictionary[Node, dict[str, Node]] = weakref.WeakKeyDictionary()


def effective(node: Node, policy: str | None = None) -> Node:
    """The plan with ``Options.on_error`` given to every operator that says nothing itself."""
    policy = policy or options_of(node).on_error
    if policy is None:
        return node
    known = _EFFECTIVE.setdefault(node, {})
    if policy not in known:
        # Once for all iterators: a cache is shared by those of one plan.
        known[policy] = _with_policy(node, policy)
    return known[policy]


def _with_policy(node: Node, policy: str) -> Node:
    done: dict[int, Node] = {}

    def rebuilt(old: Node) -> Node:
        if id(old) not in done:
            changes = other_inputs(old, rebuilt)
            if getattr(old, "on_error", policy) is None:
                changes["on_error"] = policy
            done[id(old)] = replace(old, **changes) if changes else old
        return done[id(old)]

    return rebuilt(node)
