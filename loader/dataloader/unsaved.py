"""A warning about samplers whose order no state holds, since they draw from a generator of the whole process."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

from tundish.loader.dataloader.chain import chain_of
from tundish.loader.dataloader.recipe import is_stateful
from tundish.loader.plan.safe_introspection import attribute_of
from tundish.loader.plan.search import Finding, StateSearch
from tundish.tracebacks import callers_level

_UNHELD = object()
"""In place of the generator of a sampler that has no such attribute."""

_DRAWN = ("drawn", "unseeded", "system")


def warn_of_draws(order: Any) -> None:
    """Warn if a state cannot lead back to the order of a user's sampler.

    Parameters
    ----------
    order : sampler
        The loader's sampler or batch sampler, with those nested in it.
    """
    chain = [each for each, _ in chain_of(order)]
    if any(map(is_stateful, chain)):
        return
    for each in chain:
        held = getattr(each, "generator", _UNHELD)
        if (
            held is None or held is _UNHELD
        ):  # else its state is saved, or is the sampler's own affair
            _warn_of(each, passed=held is _UNHELD)


def _warn_of(sampler: Any, *, passed: bool) -> None:
    search = StateSearch(seeded=False, files=False, passed=passed)
    with contextlib.suppress(Exception):  # of an odd object's own: no reason not to save
        search.value(attribute_of(sampler, "__iter__"), Finding("__iter__"))
        search.run()
    found = [what for kind, what in search.told() if kind in _DRAWN]
    if found:
        warnings.warn(
            f"the state of this DataLoader does not hold the order of {type(sampler).__name__}: {found[0]}, whose state is not "
            "in it, so a restored loader may give samples twice and leave others out. Draw from a generator with a fixed "
            "seed, or from a torch.Generator in an attribute called `generator`",
            stacklevel=callers_level(),
        )
