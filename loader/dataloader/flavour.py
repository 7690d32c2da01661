"""The two faces of the loader: batches of numpy arrays, or of torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tundish.loader.dataloader.collate import default_collate, default_convert
from tundish.loader.dataloader.torchrandom import default_generator

__all__ = ["NUMPY", "Finish", "Flavour"]


class Finish(Protocol):
    """What is done to every batch before it is delivered."""

    def lend(self, slot: int, nbytes: int) -> None:
        """Take note of a slot that a batch lies in."""
        ...

    def __call__(self, batch: Any) -> Any:
        """The batch as it is to be delivered."""
        ...


@dataclass(frozen=True)
class Flavour:
    """What differs between the two.

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


def _none_added() -> list[tuple[Any, Any]]:
    return []


NUMPY = Flavour(
    tensors=False,
    collate=(default_collate,),
    convert=(default_convert,),
    to_samples=default_convert,
    generator=default_generator,
    collate_types=_none_added,
)
