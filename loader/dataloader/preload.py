"""Which modules a loader's workers need: imported once for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tundish.loader.run.starting.preload import installed, modules_of

if TYPE_CHECKING:
    from tundish.loader.dataloader.recipe import Recipe

__all__ = ["modules_to_preload"]

_OURS = "tundish.loader.dataloader.worker"


def modules_to_preload(recipe: Recipe, known: Iterable[str] = ()) -> tuple[str, ...]:
    """The installed modules that a worker will import when it is given its dataset; and our own.

    Looked for in what the modules of the dataset and of the functions have imported.

    Parameters
    ----------
    recipe : Recipe
        With the dataset and the functions.
    known : iterable of str
        Modules whose classes and functions they are known to refer to.
    """
    roots = [recipe.dataset, recipe.collate, recipe.worker_init]
    inner = getattr(recipe.dataset, "__dict__", {})
    roots += [value for value in inner.values() if not isinstance(value, (str, bytes, int, float))]
    return (_OURS, *installed([*known, *(name for root in roots for name in modules_of(root))]))
