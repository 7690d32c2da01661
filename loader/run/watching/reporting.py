"""Who is told how an iterator stands: the process's board, and the user's aggregator."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tundish.loader.run.watching.notice import notice
from tundish.loader.run.watching.publishing import EVERY_S, publish, withdraw
from tundish.loader.watch.adding import continued
from tundish.loader.watch.aggregator import aggregators_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
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
        self._told = self._done = self._goes_on = False

    def goes_on(self) -> None:
        """The engine is about to be closed, and another one goes on: it is still the same iterator."""
        self._goes_on = True

    def follow(self, stats: Callable[[], Stats], earlier: Stats | None) -> None:
        """Tell of another engine of the same iterator, behind what it did before."""
        self._stats = stats if earlier is None else lambda: continued(earlier, stats())
        self._done = self._goes_on = False

    def tell(self) -> None:
        """Tell; called every half second while elements are asked for."""
        stats = self._stats()
        publish(self, self.plan, lambda: stats)
        self._told = True
        self._tell_aggregators(stats, end=False)

    def end(self) -> None:
        """Tell for the last time: nothing will be asked for any more."""
        if self._done or self._goes_on:
            return
        self._done = True
        if self._told:
            withdraw(self)
        if self._aggregators:
            self._tell_aggregators(self._stats(), end=True)

    def _tell_aggregators(self, stats: Stats, *, end: bool) -> None:
        for aggregator in self._aggregators:
            try:
                aggregator.take(self._name, stats, *self._prefixes)
                if end:
                    aggregator.done(self._name)
            except Exception as error:  # noqa: BLE001 - a class of the user's: its errors are not the pipeline's
                self._aggregators = tuple(a for a in self._aggregators if a is not aggregator)
                said = f"{type(error).__name__}: {error}"
                what = f"a {type(aggregator).__name__}"
                notice(f"{what} is told no more of the iterator {self._name}: it raised {said}")


__all__ = ["EVERY_S", "Reporter"]
