"""The memory of `cache`: a pass that was read whole is served again."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.plan.storing import Cache
from tundish.loader.run.failure import without_frames
from tundish.loader.run.items import End, Failure, Made
from tundish.loader.run.stated import count
from tundish.spec import flatten, map_leaves

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.machines import Machine, Mark
    from tundish.loader.run.values import Make, Maker, Value


class Cached:
    """Serve a pass from memory once a whole one has been read.

    Parameters
    ----------
    build : callable
        Makes the input stream, of computed items.
    store : CacheStore
        Of the cache node in this process.
    """

    def __init__(self, build: Callable[[], Machine], store: CacheStore) -> None:
        self._build, self._store = build, store
        self._count = 0
        self._up: Machine | None = None
        self._filling: list[Any] | None = None

    def next(self) -> Any:
        at = self._count
        kept = self._store.items
        if self._up is None and kept is not None:
            if at >= len(kept):
                raise End
            self._count += 1
            return self._store.again(kept[at])
        if self._up is None:
            self._open()
        assert self._up is not None
        while True:
            try:
                item = self._up.next()
            except End:
                if self._filling is not None:
                    self._store.finish(self._filling)
                    self._filling = None
                raise
            self._seen += 1
            if self._filling is not None and not self._store.keep(self._filling, item):
                self._filling = None
            if self._seen > at:
                self._count += 1
                return item

    def _open(self) -> None:
        self._up = self._build()
        self._seen = 0  # a restored position is reached by reading the pass again
        self._filling = self._store.begin()

    def mark(self) -> Mark:
        return self._count

    def dump(self, mark: Mark) -> Any:
        return {"n": mark}

    def load(self, state: Any) -> None:
        self._count = count(state, "n")


class CacheStore:
    """What one cache node keeps in this process: complete, or nothing.

    Parameters
    ----------
    limit : int
        Bytes; past them nothing is kept.
    """

    def __init__(self, limit: int) -> None:
        self.items: list[Any] | None = None
        self._limit = limit
        self._used = 0
        self._busy = False
        self._full = False

    def begin(self) -> list[Any] | None:
        """A list to fill, or None where another pass is filling one or it would not fit."""
        if self._busy or self._full or self.items is not None:
            return None
        self._busy, self._used = True, 0
        return []

    def keep(self, filling: list[Any], item: Any) -> bool:
        """Keep an item; False when there is no more room: what was kept is dropped."""
        kept = self.again(item)
        if type(kept) is Made:
            kept.value = map_leaves(_read_only, kept.value)
            if type(item) is Made:
                item.value = kept.value  # shared: so the consumer gets a copy of it
        self._used += item_nbytes(kept)
        if self._used > self._limit:
            self._full, self._busy = True, False
            count = len(filling)
            filling.clear()
            warnings.warn(
                f"cache: {count:,} elements use up its {self._limit:,} bytes; they are computed "
                "anew in each pass (Options.memory_budget allows more)",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        filling.append(kept)
        return True

    def finish(self, filling: list[Any]) -> None:
        """A whole pass has been read."""
        self.items, self._busy = filling, False

    @staticmethod
    def again(item: Any) -> Failure | Made:
        """An item of its own for another pass: refs are rewritten on the way up."""
        if type(item) is Failure:
            return Failure(item.ref, without_frames(item.error))
        return Made(item.ref, item.value) if type(item) is Made else item.again()


def item_nbytes(item: Failure | Made) -> int:
    """About how many bytes keeping an item takes."""
    if isinstance(item, Failure):
        return 1024
    leaves = flatten(item.value)[0]
    return 200 + sum(x.nbytes if isinstance(x, np.ndarray) else sys.getsizeof(x) for x in leaves)


def _read_only(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


_STORES: weakref.WeakKeyDictionary[Cache, CacheStore] = weakref.WeakKeyDictionary()


def store_of(node: Cache, limit: int) -> CacheStore:
    """What a cache node keeps in this process; shared by the iterators of a plan."""
    store = _STORES.get(node)
    if store is None:
        store = _STORES[node] = CacheStore(limit)
    return store


def _kept(maker: Maker, node: Cache) -> Value:
    up = maker.at_hand(maker.value(node.up))
    return lambda item, _: up(item, 0)


VALUES: dict[type[Node], Make] = {Cache: _kept}
