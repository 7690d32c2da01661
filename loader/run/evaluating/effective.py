"""The effective plan: options that concern operators are written into each of them."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from tundish.loader.operators.options import options_of

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

_EFFECTIVE: weakref.WeakKeyDictionary[Operator, dict[str, Operator]] = weakref.WeakKeyDictionary()


def effective(node: Operator, policy: str | None = None) -> Operator:
    """Return the plan with ``Options.on_error`` set on every operator that has no policy of its own."""
    policy = policy or options_of(node).on_error
    if policy is None:
        return node
    known = _EFFECTIVE.setdefault(node, {})
    if policy not in known:
        # Once for all iterators: a cache is shared by those of one plan.
        known[policy] = _with_policy(node, policy)
    return known[policy]


def _with_policy(node: Operator, policy: str) -> Operator:
    from tundish.loader.plan.rebuilding import other_inputs  # noqa: PLC0415 - if there is a policy

    done: dict[int, Operator] = {}

    def rebuilt(old: Operator) -> Operator:
        if id(old) not in done:
            changes = other_inputs(old, rebuilt)
            if getattr(old, "on_error", policy) is None:
                changes["on_error"] = policy
            done[id(old)] = replace(old, **changes) if changes else old
        return done[id(old)]

    return rebuilt(node)
