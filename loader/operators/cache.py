"""cache: elements stored in memory during the first pass, for later passes."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.forked import renewed
from tundish.loader.operators.holding import item_nbytes
from tundish.loader.operators.snapshot import SnapshotMethods
from tundish.loader.plan.node import walk
from tundish.loader.plan.rebuilding import original
from tundish.loader.protocols.failure import is_passing, without_frames
from tundish.loader.protocols.items import End, Failure, Made, NotReady
from tundish.loader.protocols.lineage import as_tuple
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.ownership import private, shared
from tundish.loader.protocols.state_parsing import count
from tundish.spec import map_leaves
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Identity, Machine, Maker, Mark, Value
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.rng import Path


@dataclass(frozen=True, eq=False)
class Cache(Unary):
    """The elements of the first pass, kept in memory for later ones."""

    computing = cuts = dynamic = passes = keeps = one_by_one = distributive = True
    positional = False
    redone = "what a cache had kept is computed again when it is needed"

    @property
    def batching(self) -> Operator | None:
        return self.up.batching

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        return [(0, ref, 0)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity:
        up = of(self.up)

        def pinned(ref: Any, pass_: int) -> tuple[int, Path]:
            # Upstream operators always run as in pass 0, and the pass of a repeat there is part of
            # the origin. Randomness downstream depends on the pass that is being delivered.
            p, path = up(ref, 0)
            return pass_, (p, *as_tuple(path)) if p else path

        return pinned

    def machine(self, builder: Builder, pass_: int) -> Machine:
        store = store_of(self, builder.cache_limit(), builder.context.draws(self.up))
        return Cached(lambda: builder.computed(self.up, 0), store, self.up.cardinality)

    def evaluator(self, maker: Maker) -> Value:
        up = maker.at_hand(maker.value(self.up))
        return lambda item, _: up(item, 0)


class Cached:
    """Serves a pass from memory once another pass has been read completely.

    Parameters
    ----------
    build : callable
        Makes the input's machine, which gives computed items.
    store : CacheStore
        The store of the cache node in this process.
    expected : int
        The number of items that the input should have; negative if it is unknown.
    """

    def __init__(self, build: Callable[[], Machine], store: CacheStore, expected: int = -1) -> None:
        self._build, self._store, self._expected = build, store, expected
        self._count = 0
        self._up: Machine | None = None
        self._filling: Filling | None = None
        self._ahead: list[Any] = []
        self._ended = False  # the input has ended, and is not asked again

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
        while True:
            item = self._read()
            if self._seen > at:
                self._count += 1
                return item

    def _read(self) -> Any:
        """Return the next item of the input, after storing it."""
        item = self._ahead.pop() if self._ahead else self._ask()
        self._seen += 1
        filling, self._filling = self._filling, None  # it lacks an item if that cannot be kept
        if filling is not None and self._store.keep(filling, item):
            self._filling = filling
        if self._seen == self._expected and self._filling is not None:
            # A consumer that takes exactly all items never asks for the end, so ask here. The number
            # alone proves nothing: there may be errors in addition to the expected elements.
            with contextlib.suppress(End, NotReady):
                self._ahead.append(self._ask())
        return item

    def _ask(self) -> Any:
        assert self._up is not None
        if self._ended:
            raise End
        try:
            return self._up.next()
        except End:
            self._ended = True
            if self._filling is not None:
                self._store.finish(self._filling)
                self._filling = None
            raise

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


class Filling:
    """The elements that one pass has stored so far; they are dropped with the pass.

    Attributes
    ----------
    items : list
        The items, in order.
    used : int
        Their size in bytes.
    seen : set of int
        The ids of the objects that are already counted.
    """

    __slots__ = ("__weakref__", "items", "seen", "used")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.used = 0
        self.seen: set[int] = set()


class CacheStore:
    """The elements that one cache node stores in this process: all of them, or none.

    Passes may differ (after a shuffle without a seed, for example), so each fills a list of its own. The
    first pass that is read to its end completes the store. An abandoned pass cannot be told from one that
    pauses, so no pass waits for another. If there is no room for several, the one being read is kept.

    Parameters
    ----------
    limit : int
        The largest size in bytes. If the elements need more, nothing is stored.
    """

    def __init__(self, limit: int) -> None:
        self.items: list[Any] | None = None
        self._limit = limit
        self._fillings: weakref.WeakSet[Filling] = weakref.WeakSet()
        self._used = 0  # bytes of all fillings, including some that no longer exist
        self._full = False
        self._lock = renewed(threading.Lock())

    def begin(self) -> Filling | None:
        """Return a `Filling` for a pass, or None if nothing is to be stored from it."""
        with self._lock:
            if self._full or self.items is not None:
                return None
            filling = Filling()
            self._fillings.add(filling)
            return filling

    def keep(self, filling: Filling, item: Any) -> bool:
        """Store an item; return False if this pass's items were dropped and it should store no more."""
        if type(item) is Failure and is_passing(item.error):
            with self._lock:
                self._fillings.discard(filling)
            warnings.warn(
                f"cache: element {item.ref} failed by a {type(item.error).__name__}, which another pass may not meet, "
                "so nothing is kept of this pass, and the elements are computed again in the next one",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        kept = self.again(item)
        if type(kept) is Made:
            # The receiver copies it, or cannot write to it.
            kept.value = map_leaves(_read_only, kept.value)
            if type(item) is Made:
                item.value = shared(kept.value)
        size = item_nbytes(kept, filling.seen)
        with self._lock:
            if filling not in self._fillings:
                return False
            filling.items.append(kept)
            filling.used += size
            self._used += size
            if self._used <= self._limit:
                return True
            count = len(filling.items)
            if self._make_room(filling):
                return True
        warnings.warn(
            f"cache: {count:,} elements use up its {self._limit:,} bytes, so they are computed again in each "
            "pass (raise Options.memory_budget)",
            RuntimeWarning,
            stacklevel=2,
        )
        return False

    def _make_room(self, filling: Filling) -> bool:
        """Drop the items of other passes, and of this one if it does not fit alone; return True if it fits."""
        # Bytes of the fillings that still exist.
        self._used = sum(other.used for other in self._fillings)
        if self._used > self._limit:
            self._full = filling.used > self._limit
            self._drop(None if self._full else filling)
        return not self._full

    def _drop(self, but: Filling | None) -> None:
        for other in list(self._fillings):
            if other is not but:
                self._fillings.discard(other)
                other.items, other.used = [], 0
        self._used = 0 if but is None else but.used

    def finish(self, filling: Filling) -> None:
        """Complete the store with a pass that was read to its end."""
        with self._lock:
            if filling in self._fillings:
                self.items = filling.items
                self._fillings.discard(filling)
                self._drop(None)

    @staticmethod
    def again(item: Any) -> Failure | Made:
        """Return a copy of an item for another pass, since downstream operators change the refs of items."""
        if type(item) is Failure:
            return Failure(item.ref, without_frames(item.error))
        return Made(item.ref, shared(item.value)) if type(item) is Made else item.again()


def _read_only(leaf: Any) -> Any:
    leaf = (
        leaf.view() if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject else private(leaf)
    )
    if isinstance(leaf, np.ndarray):
        leaf.flags.writeable = False
    return leaf


_STORES: weakref.WeakKeyDictionary[Cache, dict[tuple[Any, ...], CacheStore]]
_STORES = weakref.WeakKeyDictionary()

_MOST_STORES = 2
_storing = renewed(threading.Lock())


def store_of(node: Cache, limit: int, draws: tuple[Any, ...] = ()) -> CacheStore:
    """Return the store of a cache node in this process, which iterators share if their elements at this node are equal.

    A snapshot upstream that is completed in the meantime changes the plan but not the elements, unless the snapshot
    has a `reader_func`.

    Parameters
    ----------
    node : Cache
        The node.
    limit : int
        The largest size of the store in bytes.
    draws : tuple
        How the operators before it draw random numbers (`Context.draws`). Each value has a store of its own, and the
        latest `_MOST_STORES` of them are kept.
    """
    if not any(getattr(below, "reader_func", None) is not None for below in walk(node)):
        node = original(node)
    with _storing:
        stores = _STORES.setdefault(node, {})
        known = list(stores.values())
        store = stores.get(draws)
        if store is None:
            while len(stores) >= _MOST_STORES:
                del stores[next(iter(stores))]
            store = stores[draws] = CacheStore(limit)
    if len(known) == 1 and known[0] is not store and known[0].items is not None:
        warnings.warn(
            "cache: elements are kept that were drawn with other seeds, so these are computed: each dataset object draws others, and each "
            "element of a flat_map. Give the random operators before cache a seed= (list_files shuffles, too), and iterate over "
            "one dataset object; or put cache after flat_map",
            RuntimeWarning,
            stacklevel=callers_level(),
        )
    return store


class CacheMethods(SnapshotMethods):
    """Methods of `Dataset` that store what was computed, in memory or in files."""

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Self:
        """Keep the elements in memory or in files, for later passes.

        Once a whole pass has been read, later passes are served from memory: those of a `repeat`,
        and those of other iterators of this dataset in this process. Operators before the cache
        always run as in the first pass, so later passes have the same order and the same
        augmentations, whether they are read from the cache or computed again.

        Parameters
        ----------
        filename : path, optional
            A folder in which to keep the elements, for later runs too, as
            ``snapshot(filename, compression=None)`` does. By default they are kept in memory.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Returns
        -------
        Dataset

        Notes
        -----
        A cache in memory holds at most as many bytes as the memory budget (16 GiB without workers).
        It is in the consumer's process and does not count towards the budget. If the elements need
        more space, nothing is kept: a warning is issued once, and each pass is computed again.

        The first pass that is read completely fills the cache, even if other passes were partly
        read before it or at the same time. As in tf.data, a ``take(n)`` that takes exactly all
        elements counts as a complete pass if the cardinality is known. A failed element is cached,
        too, and fails in every pass; in tf.data it is missing from later passes. An iterator that
        is restored in another process reads its pass again from the start if the cache is in
        memory; with files it continues where it was.

        tf.data reads a cache file even if the operators before the cache have changed, and refuses
        it while another process writes it. Here the elements of a changed pipeline are kept next to
        those of the old one. While one process writes a cache, another computes its own elements.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(2).cache().repeat(2)
        >>> [int(x) for x in ds]
        [0, 1, 0, 1]
        """
        if not isinstance(filename, (str, os.PathLike)):
            raise TypeError(
                "filename must be a path, or '' for a cache in memory, not "
                f"{type(filename).__name__} ({filename!r})"
            )
        if os.fspath(filename):
            return self.snapshot(filename, compression=None)
        return self._then(Cache)
