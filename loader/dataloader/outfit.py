"""The objects sent to a loader's workers: the recipe once, and each epoch the consumer's changes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tundish.loader.dataloader.flavour import modules_to_preload
from tundish.loader.run.pool.outfit import crew_of_processes, moment_of
from tundish.loader.run.starting.agreeing import told_of
from tundish.loader.run.starting.payload import pack
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.dataloader.recipe import Recipe
    from tundish.loader.plan.reads import GlobalName
    from tundish.loader.run.pool.outfit import Part
    from tundish.loader.run.starting.moment import Moment
    from tundish.loader.run.starting.payload import Met

_MOST_CHANGED = 32768
_ADVICE = "make it in worker_init_fn=, make it when it is first needed, or use num_workers=0"


class Outfit:
    """The recipe and the changed settings and globals that are sent to a loader's workers.

    Parameters
    ----------
    recipe : Recipe
        The recipe for reading the dataset.
    base_seed : int
        The loader's seed when they start.
    recruiting : callable or None
        Makes the source of workers; None for workers of this machine.

    Attributes
    ----------
    crew : WorkerSpec
        The specification of workers.
    """

    def __init__(self, recipe: Recipe, base_seed: int, recruiting: Any = None) -> None:
        self._recipe, self.base_seed = recipe, base_seed
        self._changed: set[GlobalName] = set()
        self.crew = crew_of_processes(
            "tundish.loader.dataloader.worker:main",
            {"base_seed": base_seed},
            _parts(recipe),
            start=recipe.start,
            pack=partial(pack, advice=_ADVICE),
            preload=lambda payload: modules_to_preload(recipe, payload.modules),
            policy=recipe.globals,
            met=_met_in(recipe),
            recruiting=recruiting,
        )

    @property
    def changes(self) -> Moment:
        """Return the consumer's settings and globals that running workers need, including those sent before."""
        return self._moment.of(self._changed)

    @property
    def _moment(self) -> Moment:
        """Return the consumer's settings and globals when they were last read."""
        moment: Moment = self.crew.config["moment"]
        return moment

    def refresh(self) -> bool:
        """Read the consumer's settings and globals, for running workers and their replacements.

        Returns
        -------
        bool
            False if so much has changed that new workers are needed.
        """
        before, policy = self._moment, self._recipe.globals
        self.crew.config["moment"] = moment_of(self.crew.met, policy)
        told = told_of(before.entries, self._moment.entries, policy)
        self._changed |= self._moment.changes(before)
        for text in told:
            warnings.warn(text, stacklevel=callers_level())
        values = [each.value for each in self.changes.entries]
        return (
            all(each.is_small for each in values)
            and sum(len(each.data) for each in values) < _MOST_CHANGED
        )


def _met_in(recipe: Recipe) -> tuple[Met, ...]:
    """Return the functions and types in objects that are forked, which are not searched further."""
    held = [recipe.dataset, recipe.collate, recipe.worker_init]
    held += getattr(recipe.dataset, "__dict__", {}).values()
    return tuple(each if isinstance(each, FunctionType) else type(each) for each in held)


def _parts(recipe: Recipe) -> list[Part]:
    """Split a recipe into parts for `assemble`, each with its name for errors."""
    bare = replace(recipe, dataset=None, collate=None, worker_init=None, collate_types=[])
    return [
        ("the dataset", recipe.dataset),
        ("collate_fn", recipe.collate),
        ("worker_init_fn", recipe.worker_init),
        ("default_collate_fn_map", recipe.collate_types),
        ("the loader", bare),
    ]
