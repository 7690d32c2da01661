"""Passes over the innermost of nested samplers: drawn again as they were, and given to the samplers around it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

from tundish.loader.dataloader.chain import copy_of, generator_of, global_of, kind_of
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.streaming import begun, pulled


class Passes:
    """The passes of one epoch over a sampler, which may draw from the process's generator.

    Parameters
    ----------
    core : iterable
        The sampler.
    record : dict
        The epoch's record: what is drawn is noted there, and what is there already is drawn again.
    """

    def __init__(self, core: Any, record: dict[str, Any]) -> None:
        self._core, self._record = core, record
        self._iter: Any = getattr(type(core), "__iter__", None)
        self._number = 0

    def drawing(self) -> Callable[[], Iterator[Any]] | None:
        """Return what begins a pass of a sampler that draws from the process's generator; None for any other."""
        draw = {"random": self._seeded, "drawn": self._drawn}.get(kind_of(self._core))
        if draw is None:
            return None
        # At the first index, not before: that is where the sampler itself draws.
        return lambda: chain.from_iterable(each() for each in [draw])

    def plain(self) -> Any:
        """Begin a pass of the sampler as it is."""
        return self._iter(self._core)

    def _seeded(self) -> Any:
        """Begin a pass of a sampler that draws a seed from the process's generator."""
        source = global_of(self._core)
        seed = copy_of(source).int64()
        told = self._told("seed", seed)
        if told == seed:
            source.int64()
        return self._from(generator_of(self._core).manual_seed(told))

    def _drawn(self) -> Any:
        """Begin a pass of a sampler that draws its order from the process's generator."""
        now = global_of(self._core).state_dict()
        told = self._told("drawn", now)
        if told == now:
            return self.plain()
        generator = generator_of(self._core)
        as_generator(generator).load_state_dict(told)
        return self._from(generator)

    def _told(self, name: str, now: Any) -> Any:
        """Return what the record has for this pass; if nothing yet, `now`, which is recorded.

        One pass is the rule. A sampler around the innermost one may begin it again and again, and its epoch never ends.
        """
        number, self._number = self._number, self._number + 1
        if not number:
            return self._record.setdefault(name, now)
        later: list[Any] = self._record.setdefault("later", [])
        if number > len(later):
            later.append(now)
        return later[number - 1]

    def _from(self, generator: Any) -> Any:
        core = copy.copy(self._core)
        core.generator = generator
        return self._iter(core)


class Innermost:
    """A stand-in for the innermost sampler."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


def lending(sampler: Any, core: Any, passes: Callable[[], Any]) -> Iterator[Any]:
    """Yield the batches of a sampler that we do not know, with other passes over the innermost one.

    It is asked itself, since a copy would forget what it changes as it is iterated. It may hold the innermost one by
    any name. So that one has a class with these passes, for as long as the other is asked.
    """
    own = type(core)
    named = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    lent = type(own.__name__, (own,), {"__iter__": lambda _: passes(), **named})

    def lend(ask: Callable[[], Any]) -> Any:
        core.__class__ = lent
        try:
            return ask()
        finally:
            core.__class__ = own

    stream = pulled(lend(lambda: begun(sampler)))
    return pulled(map(lend, repeat(lambda: next(stream))))
