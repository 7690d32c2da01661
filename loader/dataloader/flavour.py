"""The differences between numpy's and torch's DataLoader, and the modules that their workers import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.dataloader.collate import default_collate, default_convert
from tundish.loader.dataloader.torchrandom import default_generator
from tundish.loader.run.starting.preload import installed, modules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tundish.loader.dataloader.recipe import Recipe


class Finish(Protocol):
    """The last step before a batch is delivered."""

    def lend(self, slot: int, nbytes: int) -> None:
        """Register a slot that contains a batch."""
        ...

    def __call__(self, batch: Any) -> Any:
        """Return the batch to deliver."""
        ...


@dataclass(frozen=True)
class Flavour:
    """The differences between numpy's and torch's DataLoader.

    Parameters
    ----------
    tensors : bool
        True if a batch consists of torch tensors.
    collate, convert : tuple of callable
        Functions that, as ``collate_fn``, mean the default rules for batches, and for samples.
    to_samples : callable
        The default rule for samples that are not batched.
    generator : callable
        Returns the process's generator, from which the base seed is drawn.
    """

    tensors: bool
    collate: tuple[Any, ...]
    convert: tuple[Any, ...]
    to_samples: Callable[[Any], Any]
    generator: Callable[[], Any]


NUMPY = Flavour(
    tensors=False,
    collate=(default_collate,),
    convert=(default_convert,),
    to_samples=default_convert,
    generator=default_generator,
)


_OURS = "tundish.loader.dataloader.worker"


def modules_to_preload(recipe: Recipe, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the modules that a worker will import for its dataset: installed ones, and this library's.

    They are found in what the modules of the dataset and of the functions have imported.

    Parameters
    ----------
    recipe : Recipe
        The recipe, with the dataset and the functions.
    known : iterable of str
        Modules whose classes and functions are known to be needed.
    """
    roots = [recipe.dataset, recipe.collate, recipe.worker_init]
    inner = getattr(recipe.dataset, "__dict__", {})
    roots += [value for value in inner.values() if not isinstance(value, (str, bytes, int, float))]
    return (_OURS, *installed([*known, *(name for root in roots for name in modules_of(root))]))
