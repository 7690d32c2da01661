"""Iterators whose callers limit the wait for workers, to some time or to none, since they wait for other things as well."""

from __future__ import annotations

from operator import length_hint
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.node import global_seed, set_seed
from tundish.loader.protocols.items import NotReady
from tundish.loader.run.iterator import Iterator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.engine import Engine
    from tundish.loader.watch.stats import Stats

__all__ = ["NotReady", "PolledIterator", "next_within"]


def next_within(iterator: Iterator, seconds: float) -> Any:
    """Return an iterator's next element, if workers have computed it in time.

    Raises
    ------
    NotReady
        They have not; the next call waits for the same element.
    """
    iterator._engine.until = monotonic() + seconds  # noqa: SLF001 - the same folder's, here and below
    try:
        return next(iterator)
    finally:
        iterator._engine.until = None  # noqa: SLF001 - of the engine that is there now


class PolledIterator:
    """An iterator whose caller waits for its workers.

    Parameters
    ----------
    node : Operator
        The plan.
    iteration, seed, graph_seed, position
        Where it begins: what a state holds. A position of None is the start.
    """

    def __init__(
        self,
        node: Operator,
        *,
        iteration: int,
        seed: int,
        graph_seed: int | None,
        position: Any,
    ) -> None:
        self._since: float | None = None  # when it was found that nothing is ready
        before = global_seed()
        if before != graph_seed:
            set_seed(graph_seed)
        try:
            self._iterator = Iterator(node, iteration=iteration, base_seed=seed, position=position)
        finally:
            if before != graph_seed:
                set_seed(before)

    def next(self) -> Any:
        """Return the next element.

        Raises
        ------
        NotReady
            Workers have not computed it yet: wait until `wakes` is readable, then ask again.
        StopIteration
            There is none.
        """
        engine = self._engine
        engine.until = 0.0
        since, self._since = self._since, None
        if since is not None:  # the tuner counts it as a wait for workers
            engine._ledger.waited(perf_counter() - since)  # noqa: SLF001
        try:
            return next(self._iterator)
        except NotReady:
            self._since = perf_counter()
            raise

    @property
    def _engine(self) -> Engine:
        return self._iterator._engine  # noqa: SLF001

    @property
    def stats(self) -> Stats:
        """The iterator's counts so far."""
        return self._iterator.stats

    @property
    def failed_element(self) -> bool:
        """True if the error that `next` raised last stood in the place of an element."""
        return self._engine.given < 0

    def pump(self) -> None:
        """Take in what workers have answered, and hand out more."""
        self._iterator.pump()

    def wakes(self) -> int | None:
        """Return a descriptor that is readable when `pump` has something to do; None if there is none."""
        return self._engine.wakes()

    def marked(self) -> Callable[[], Any]:
        """Return a function that returns the position after the last element, at any later time."""
        it = self._iterator
        return self._engine.marked(it._left + length_hint(it._ready))  # noqa: SLF001

    def close(self) -> None:
        """End the workers."""
        self._iterator.close()
