"""The two faces of the loader, batches of numpy arrays or of torch tensors, and the modules that their workers need."""

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
    """The last step that is done to every batch before it is delivered."""

    def lend(self, slot: int, nbytes: int) -> None:
        """Take note of a slot that a batch lies in."""
        ...

    def __call__(self, batch: Any) -> Any:
        """Return the batch as it is to be delivered."""
        ...


@dataclass(frozen=True)
class Flavour:
    """The differences between the two.

    Parameters
    ----------
    tensors : bool
        Whether a batch is of torch tensors.
    collate, convert : tuple of callable
        Functions that, given as ``collate_fn``, mean the default rules for batches, for samples.
    to_samples : callable
        The default rule for samples that are not put together.
    generator : callable
        Gives the process's generator, which the base seed is drawn from.
    collate_types : callable
        Gives what the caller has added to torch's ``default_collate_fn_map``.
    """

    tensors: bool
    collate: tuple[Any, ...]
    convert: tuple[Any, ...]
    to_samples: Callable[[Any], Any]
    generator: Callable[[], Any]
    collate_types: Callable[[], list[tuple[Any, Any]]]


NUMPY = Flavour(
    tensors=False,
    collate=(default_collate,),
    convert=(default_convert,),
    to_samples=default_convert,
    generator=default_generator,
    collate_types=list,
)


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
