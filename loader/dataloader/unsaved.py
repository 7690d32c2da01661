"""A warning about samplers whose order no state holds, since they draw from a generator of the whole process."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from tundish.loader.dataloader.chain import chain_of, is_known
from tundish.loader.dataloader.recipe import is_stateful
from tundish.loader.plan.safe_introspection import attribute_of
from tundish.loader.plan.search import Finding, StateSearch
from tundish.tracebacks import callers_level

_UNHELD = object()
"""In place of the generator of a sampler that has no such attribute."""

_DRAWN = ("drawn", "unseeded", "system")


def warn_of_draws(order: Any, *, drew: bool = False) -> None:
    """Warn if a state cannot lead back to the order of a user's sampler.

    Parameters
    ----------
    order : sampler
        The loader's sampler or batch sampler, with those nested in it.
    drew : bool
        True if torch's generator of the whole process has moved as the sampler was asked.
    """
    chain = [each for each, _ in chain_of(order)]
    if any(map(is_stateful, chain)):
        return
    told = False
    for each in chain:
        held = getattr(each, "generator", _UNHELD)
        if (
            held is None or held is _UNHELD
        ):  # else its state is saved, or is the sampler's own affair
            told |= _warn_of(each, passed=held is _UNHELD)
    if drew and not told:
        unknown = next(each for each in chain if not is_known(each))
        _warn(unknown, "it draws from torch's generator of the whole process")


def _warn_of(sampler: Any, *, passed: bool) -> bool:
    """Warn of what a sampler's code draws from; return False if it shows nothing."""
    search = StateSearch(seeded=False, files=False, passed=passed)
    with contextlib.suppress(Exception):  # of an odd object's own: no reason not to save
        search.value(attribute_of(sampler, "__iter__"), Finding("__iter__"))
        search.run()
    found = [what for kind, what in search.told() if kind in _DRAWN]
    if found:
        _warn(sampler, found[0])
    return bool(found)


def _warn(sampler: Any, why: str) -> None:
    warnings.warn(
        f"the state of this DataLoader does not hold the order of {type(sampler).__name__}: {why}, whose state is not "
        "in it, so a restored loader may give samples twice and leave others out. Draw from a generator that the sampler "
        "has in an attribute (random.Random, NumPy's or torch's), or from one made with a fixed seed for each epoch",
        stacklevel=callers_level(),
    )
