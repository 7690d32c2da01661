"""Who is told how an iterator stands: the process's board, and the user's aggregator."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tundish.loader.run.publishing import EVERY_S, publish, withdraw
from tundish.loader.watch.aggregator import aggregators_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.plan.options import Options
    from tundish.loader.run.context import Context
    from tundish.loader.watch.stats import Stats

_names = itertools.count(1)


class Reporter:
    """Tells how one iterator stands, now and then and at its end.

    Parameters
    ----------
    context, options
        Of the iterator.
    stats : callable
        Gives what is told.
    """

    def __init__(self, context: Context, options: Options, stats: Callable[[], Stats]) -> None:
        self.plan = " -> ".join(node.label for node in context.nodes if not node.transparent)
        self._stats = stats
        self._aggregators = aggregators_of(options.stats.aggregator)
        self._prefixes = (options.stats.prefix or "", options.stats.counter_prefix or "")
        self._name = f"{next(_names)}: {self.plan}"
        self._told = self._done = False

    def tell(self) -> None:
        """Tell; called every half second while elements are asked for."""
        stats = self._stats()
        publish(self, self.plan, lambda: stats)
        self._told = True
        for aggregator in self._aggregators:
            aggregator.take(self._name, stats, *self._prefixes)

    def end(self) -> None:
        """Tell for the last time: nothing will be asked for any more."""
        if self._done:
            return
        self._done = True
        if self._told:
            withdraw(self)
        if not self._aggregators:
            return
        stats = self._stats()
        for aggregator in self._aggregators:
            aggregator.take(self._name, stats, *self._prefixes)
            aggregator.done(self._name)


__all__ = ["EVERY_S", "Reporter"]
