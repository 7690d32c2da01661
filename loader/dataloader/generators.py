"""Any generator that a user gives, ours or torch's, behind the same draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from tundish.loader.dataloader.borrowed import BorrowedGenerator
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Generator", "as_generator", "is_generator"]


class Generator(Protocol):
    """What samplers draw from: a `TorchGenerator`, or torch's own behind the same methods."""

    def manual_seed(self, seed: int) -> Self:
        """Start the stream that belongs to a seed."""

    def seed(self) -> int:
        """Start a stream that nobody can know, and return its seed."""

    def initial_seed(self) -> int:
        """The seed that the stream began with."""

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as JSON."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""

    def int64(self) -> int:
        """A number in [0, 2**63): what torch makes seeds of."""

    def randperm(self, n: int) -> np.ndarray:
        """A random order of ``range(n)``."""

    def randint(self, high: int, size: int) -> np.ndarray:
        """Integers in [0, high)."""

    def uniform64(self, size: int) -> np.ndarray:
        """Numbers in [0, 1)."""

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> np.ndarray:
        """Indices of weights, each as likely as its weight."""


def is_generator(value: Any) -> bool:
    """Whether `as_generator` takes a value, None aside."""
    return isinstance(value, (TorchGenerator, BorrowedGenerator)) or BorrowedGenerator.fits(value)


def as_generator(generator: Any) -> Generator:
    """What draws from the generator that a user gave.

    Parameters
    ----------
    generator : None, TorchGenerator or torch.Generator
        None is `default_generator`. A ``torch.Generator`` is itself advanced, as torch would.

    Returns
    -------
    Generator

    Raises
    ------
    TypeError
        Something else.
    """
    if generator is None:
        return default_generator()
    if isinstance(generator, (TorchGenerator, BorrowedGenerator)):
        return generator
    if BorrowedGenerator.fits(generator):
        return BorrowedGenerator(generator)
    raise TypeError(
        "generator must be a TorchGenerator, a torch.Generator or None, "
        f"not {type(generator).__name__}"
    )
