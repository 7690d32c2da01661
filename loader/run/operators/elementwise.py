"""map and filter: a function of each element, with its generator, its signature and its error policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.elementwise import Filter, Map
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import DROPPED, ref_of
from tundish.loader.protocols.ownership import of_results, owned
from tundish.loader.protocols.results import checked, checker, truth
from tundish.loader.protocols.rng import ElementRng

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator, Value
    from tundish.loader.run.values import Make, Maker


def _mapped(maker: Maker, node: Map) -> Value:
    hand = of_results(maker.hand)
    up = maker.below(node, node.up)
    label = maker.context.label(node)
    call = _caller(maker, node, node.function, up)
    check = None if node.signature is None else checker(node.signature)

    def value(item: Any, pass_: int) -> Any:
        try:
            result = call(item, pass_)
            if type(result) is np.int64 and check is None:
                return result
            if check is not None:
                result = checked(result)
                check(result)
            return hand(result, result := None)
        except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
            raise_from(error, label)

    return value


def _filtered(maker: Maker, node: Filter) -> Value:
    up = maker.below(node, node.up)
    label = maker.context.label(node)
    tally = maker.context.watch.tally(label)
    kept: list[Any] = []

    def remember(item: Any, pass_: int) -> Any:
        kept.append(up(item, pass_))
        return kept[-1]

    call = _caller(maker, node, node.predicate, remember)

    def value(item: Any, pass_: int) -> Any:
        kept.clear()
        try:
            keep = call(item, pass_)
            if keep is DROPPED:
                return DROPPED
            if truth(keep):
                return kept.pop()
        except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
            raise_from(error, label)
        finally:
            kept.clear()
        tally[0] += 1
        return DROPPED

    return value


def _caller(maker: Maker, node: Map | Filter, function: Callable[..., Any], up: Value) -> Value:
    """``function(element)`` with rng, unpacking, and the node's error policy."""
    label, events = maker.context.label(node), maker.context.events
    tally = maker.context.watch.tally(label)
    rng = identity = None
    if isinstance(node, Map) and node.seed is not None:
        rng = ElementRng(node.seed, maker.context.number(node))
        identity = maker.identity(node.up)

    def once(element: Any, item: Any, pass_: int) -> Any:
        if rng is None:
            return function(*element) if type(element) is tuple else function(element)
        ref = item if type(item) is int else ref_of(item)
        g = rng(*identity(ref, pass_))  # type: ignore[misc]  # set together with rng
        if type(element) is tuple:
            return function(*element, rng=g)
        return function(element, rng=g)

    policy, retries = node.on_error, node.retries

    def call(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        if element is DROPPED:
            return DROPPED
        tries = retries if policy == "retry" else 0
        while True:
            try:
                if tries:  # it may change its argument before it fails
                    return once(owned(element), item, pass_)
                return once(element, item, pass_)
            except Exception:
                if tries:
                    tries -= 1
                    events.append(f"{label} retried")
                    continue
                if policy == "skip":
                    events.append(f"{label} skipped")
                    tally[0] += 1
                    return DROPPED
                raise

    if policy in ("skip", "retry"):
        return call
    if rng is not None:

        def plain(item: Any, pass_: int) -> Any:
            element = up(item, pass_)
            return DROPPED if element is DROPPED else once(element, item, pass_)

        return plain

    def fast(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        if type(element) is tuple:
            return function(*element)
        return DROPPED if element is DROPPED else function(element)

    return fast


VALUES: dict[type[Operator], Make] = {Map: _mapped, Filter: _filtered}
