"""From a plan to a network of machines.

Items stay uncomputed refs as long as only their order is decided: a `map` on the way is not run
where it stands but when an item has to be computed (it commutes with index operators, since a
failed element is an element). Items are computed by *stages*:

* where operators drop elements (filter, ``on_error="skip"``): what remains depends on values;
* below `batch`, `unbatch` and `cache`, and at the end.

A stage evaluates the whole run of map and filter below it at once. How it does so is the
subclass's: `InlinePlanner` in this process, `tundish.loader.run.coordinator` in workers.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.batching import Batch, Unbatch
from tundish.loader.plan.elementwise import Enumerate, Filter, FlatMap, Map
from tundish.loader.plan.options import Options, options_of
from tundish.loader.plan.order import (
    Concatenate,
    Repeat,
    Shard,
    ShardByProcess,
    Shuffle,
    Skip,
    Take,
)
from tundish.loader.plan.sources import Generator, Zip
from tundish.loader.plan.storing import Cache
from tundish.loader.run.caching import Cached, store_of
from tundish.loader.run.chains import ELEMENTWISE, chain_base, defers
from tundish.loader.run.inline import FlatMapped, InlineBatches, InlineStage, Unbatched
from tundish.loader.run.items import End
from tundish.loader.run.machines import (
    Chosen,
    Concatenated,
    Enumerated,
    Generated,
    Machine,
    Positions,
    ProcessShare,
    Repeated,
    Zipped,
)
from tundish.loader.run.values import compile_inner, compile_values
from tundish.loader.run.windowing import WindowShuffle

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.context import Context


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

    def rebuild(old: Node) -> Node:
        if id(old) in done:
            return done[id(old)]
        changes: dict[str, Any] = {}
        if isinstance(old, (Map, Filter)) and old.on_error is None:
            changes["on_error"] = policy
        for field in ("up", "first", "second"):
            if hasattr(old, field):
                new = rebuild(getattr(old, field))
                if new is not getattr(old, field):
                    changes[field] = new
        if isinstance(old, Zip):
            ups = tuple(rebuild(up) for up in old.ups)
            if any(new is not up for new, up in zip(ups, old.ups, strict=True)):
                changes["ups"] = ups
        done[id(old)] = replace(old, **changes) if changes else old
        return done[id(old)]

    return rebuild(node)


class Planner:
    """Builds networks; what computes is left to subclasses."""

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- how things are computed ---------------------------------------------------------------

    def stage(self, node: Node, base: Node, up: Machine, pass_: int) -> Machine:
        """A machine that computes a stream's items: from `base`'s items to `node`'s elements."""
        raise NotImplementedError

    def batches(self, node: Batch, up: Machine, pass_: int) -> Machine:
        """A machine that stacks computed items."""
        raise NotImplementedError

    def flat_mapped(self, node: FlatMap, up: Machine, base: Node, pass_: int) -> Machine:
        """A machine that reads the inner datasets."""
        raise NotImplementedError

    def repeated(self, node: Repeat, pass_: int) -> Machine:
        """A machine that goes through its input again and again."""
        return Repeated(node, self.build, pass_)

    def cache_limit(self) -> int:
        """Bytes that a cache may keep."""
        raise NotImplementedError

    # -- the network ---------------------------------------------------------------------------

    def computed(self, node: Node, pass_: int) -> Machine:
        """The stream of a node, all of it computed."""
        base, dropping = chain_base(node)
        if dropping or not self.is_computed(node):
            return self.stage(node, base, self.build(base, pass_), pass_)
        return self.build(node, pass_)

    def is_computed(self, node: Node) -> bool:
        """Whether `build` gives only computed items for a node."""
        base, dropping = chain_base(node)
        if dropping:
            return True
        if defers(node):
            return False
        if isinstance(base, (Unbatch, FlatMap, Cache, Generator)):
            return True
        if isinstance(base, Batch):
            return not base.positional
        if isinstance(base, (Repeat, Shard, ShardByProcess, Skip, Take, Concatenate)):
            return not base.positional and all(self.is_computed(up) for up in base.inputs)
        return False  # a restored shuffle's window holds refs

    def build(self, node: Node, pass_: int) -> Machine:
        """The stream of a node; its items may have to be computed yet."""
        if node.positional:
            return Positions(node, pass_, self.context)
        if isinstance(node, ELEMENTWISE):
            base, dropping = chain_base(node)
            up = self.build(base, pass_)
            return self.stage(node, base, up, pass_) if dropping else up
        if isinstance(node, Generator):
            return Generated(node, pass_, self.context)
        if isinstance(node, Shuffle):
            return WindowShuffle(node, self.build(node.up, pass_), pass_, self.context)
        if isinstance(node, Repeat):
            return self.repeated(node, pass_)
        if isinstance(node, Concatenate):
            return Concatenated(node, self.build, pass_)
        if isinstance(node, Zip):
            return Zipped([self.build(up, pass_) for up in node.ups])
        if isinstance(node, ShardByProcess):
            return ProcessShare(node, self.build(node.up, pass_))
        if isinstance(node, Batch):
            return self.batches(node, self.computed(node.up, pass_), pass_)
        if isinstance(node, Unbatch):
            return Unbatched(self.computed(node.up, pass_), self.context.label(node))
        if isinstance(node, FlatMap):
            base, dropping = chain_base(node.up)
            if dropping:
                base = node.up
            return self.flat_mapped(node, self.build(node.up, pass_), base, pass_)
        if isinstance(node, Cache):
            store = store_of(node, self.cache_limit())
            return Cached(lambda: self.computed(node.up, 0), store)
        up = self.build(node.inputs[0], pass_)
        if isinstance(node, Enumerate):
            return Enumerated(up)
        if isinstance(node, Shard):
            return Chosen(up, node.index, node.count, None)
        if isinstance(node, Skip):
            return Chosen(up, max(0, node.count), 1, 0 if node.count < 0 else None)
        if isinstance(node, Take):
            return up if node.count < 0 else Chosen(up, 0, 1, node.count)
        raise AssertionError(f"no machine for {type(node).__name__}")


class InlinePlanner(Planner):
    """Everything is computed in this process, when it is asked for."""

    def __init__(self, context: Context, options: Options, cache_bytes: int = 2**34) -> None:
        super().__init__(context)
        self.options = options
        self._cache_bytes = cache_bytes

    def cache_limit(self) -> int:
        return self._cache_bytes

    def stage(self, node: Node, base: Node, up: Machine, pass_: int) -> Machine:
        value, identity = compile_values(node, self.context, self.open_inner)
        chain = chain_base(node)[1] or defers(node)
        return InlineStage(up, value, identity, pass_, self.context, chain=chain)

    def batches(self, node: Batch, up: Machine, pass_: int) -> Machine:
        return InlineBatches(node, up, self.context.label(node))

    def flat_mapped(self, node: FlatMap, up: Machine, base: Node, pass_: int) -> Machine:
        dataset, identity = compile_inner(node, self.context, self.open_inner)
        return FlatMapped(
            up, dataset, identity, pass_, open_inner=self.open_inner, context=self.context
        )

    def open_inner(self, plan: Node, origin: tuple[Any, ...], skip: int) -> Machine:
        """A network over the dataset that a flat_map's function returned."""
        plan = effective(plan, self.options.on_error)
        return open_inline(self.context.inner(plan, origin), self.options, skip, self._cache_bytes)


def open_inline(
    context: Context, options: Options, skip: int = 0, cache_bytes: int = 2**34
) -> Machine:
    """An in-process network over a whole plan, the first `skip` items left out."""
    planner = InlinePlanner(context, options, cache_bytes)
    node = context.root
    base, dropping = chain_base(node)
    if skip and not dropping:
        # Maps above the base need not run for what is left out.
        up = planner.build(base, context.iteration)
        for _ in range(skip):
            try:
                up.next()
            except End:
                break
        return up if planner.is_computed(node) else planner.stage(node, base, up, context.iteration)
    network = planner.computed(node, context.iteration)
    for _ in range(skip):
        try:
            network.next()
        except End:
            break
    return network
