"""Random generators given by the user, this library's or torch's, with the same draws."""

from __future__ import annotations

import sys
from typing import Any, Self, TypeAlias

import numpy as np

from tundish.errors import CheckpointError
from tundish.loader.dataloader.torchrandom import (
    WORDS,
    TorchGenerator,
    TwisterState,
    default_generator,
)

# The bytes of torch's own state of the CPU's generator. What follows is kept for normal numbers.
_LAYOUT = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),  # how many draws until new words are made, plus one
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("words", "<u8", WORDS),
        ("rest", "u1", 40),
    ]
)


class BorrowedGenerator:
    """Draws from a torch.Generator by torch's own functions, so that it advances as in torch.

    Parameters
    ----------
    generator : torch.Generator
        A CPU generator, which stays the caller's.
    """

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    @staticmethod
    def fits(generator: Any) -> bool:
        """Return True for an object like a torch.Generator, without importing torch."""
        return "torch" in sys.modules and all(
            callable(getattr(generator, name, None)) for name in ("get_state", "manual_seed")
        )

    @property
    def _torch(self) -> Any:
        return sys.modules["torch"]  # it is there: somebody made the generator

    def manual_seed(self, seed: int) -> Self:
        """Start the stream that belongs to a seed."""
        self.generator.manual_seed(seed)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream, in the form of `TorchGenerator.state_dict`."""
        state = self._state()[0]
        words = state["words"].astype(np.uint32)
        return TwisterState(int(state["seed"]), WORDS + 1 - int(state["left"]), words).to_json()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state, which may be a `TorchGenerator`'s."""
        loaded = TwisterState.from_json(state)
        raw = self._state()
        raw["seed"], raw["left"], raw["seeded"] = loaded.seed, WORDS + 1 - loaded.position, 1
        raw["next"], raw["words"], raw["rest"] = loaded.position, loaded.words, 0
        self.generator.set_state(self._torch.from_numpy(raw.view(np.uint8)))

    def _state(self) -> np.ndarray:
        raw = self.generator.get_state().numpy()
        if raw.nbytes != _LAYOUT.itemsize:
            raise CheckpointError(
                f"the state of {self.generator!r} has {raw.nbytes} bytes, not the "
                f"{_LAYOUT.itemsize} of a generator of the CPU"
            )
        return np.frombuffer(bytearray(raw.tobytes()), _LAYOUT)

    def int64(self) -> int:
        """Draw a number in [0, 2**63), as torch does for seeds."""
        torch = self._torch
        drawn = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self.generator)
        return int(drawn.item())

    def randperm(self, n: int) -> np.ndarray:
        """Draw a random order of ``range(n)``."""
        torch = self._torch
        order: np.ndarray = torch.randperm(
            n, generator=self.generator, dtype=torch.int64, device="cpu"
        ).numpy()
        return order

    def randint(self, high: int, size: int) -> np.ndarray:
        """Draw integers in [0, high)."""
        torch = self._torch
        drawn: np.ndarray = torch.randint(
            high=high, size=(size,), generator=self.generator, dtype=torch.int64, device="cpu"
        ).numpy()
        return drawn

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> np.ndarray:
        """Draw indices with probabilities proportional to weights."""
        torch = self._torch
        vector = torch.from_numpy(np.array(weights, np.float64))  # a copy: torch warns of read-only
        drawn: np.ndarray = torch.multinomial(
            vector, num_samples, replacement, generator=self.generator
        ).numpy()
        return drawn


Generator: TypeAlias = TorchGenerator | BorrowedGenerator
"""The generators that samplers draw from: a `TorchGenerator`, or torch's own behind the same methods."""


def is_generator(value: Any) -> bool:
    """Return True if `as_generator` accepts a value other than None."""
    return isinstance(value, (TorchGenerator, BorrowedGenerator)) or BorrowedGenerator.fits(value)


def as_generator(generator: Any) -> Generator:
    """Return an object that draws from the user's generator.

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
        It is something else.
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
