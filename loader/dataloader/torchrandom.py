"""torch's random generator of the CPU, draw for draw, on numpy alone.

torch draws from a Mersenne Twister seeded with the low 32 bits of the seed, like numpy's legacy
generator; they differ in how draws become numbers, which is implemented here. Normal numbers,
of which torch's generator caches a second half, are not.
"""

from __future__ import annotations

import base64
import operator
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any, Self, SupportsIndex

import numpy as np

from tundish.errors import CheckpointError
from tundish.loader.dataloader.permutation import HUGE, inside_out, multinomial, swapping
from tundish.loader.plan.node import global_seed, seedings

__all__ = ["HUGE", "WORDS", "TorchGenerator", "TwisterState", "default_generator"]

WORDS = 624
_DEFAULT_SEED = 67280421310721  # that of a torch.Generator nobody has seeded
_KIND = "torch mt19937"
_LARGE_RANGE = 2**28  # from here on an integer takes two draws


class TorchGenerator:
    """The generator that ``torch.Generator()`` makes, without torch.

    Every method returns what torch's returns at the same position of the same seed's stream, and leaves the
    stream at the same position.

    Parameters
    ----------
    seed : int
        As for `manual_seed`. By default that of ``torch.Generator()``.

    Examples
    --------
    >>> g = TorchGenerator().manual_seed(0)
    >>> g.randperm(8).tolist()  # torch.randperm(8, generator=torch.Generator().manual_seed(0))
    [4, 0, 7, 3, 2, 5, 1, 6]

    A state is JSON, and small:

    >>> state = g.state_dict()
    >>> first = g.randint(100, 3).tolist()
    >>> g.load_state_dict(state)
    >>> g.randint(100, 3).tolist() == first
    True
    """

    def __init__(self, seed: SupportsIndex = _DEFAULT_SEED) -> None:
        self._bits = np.random.MT19937(0)
        self.manual_seed(seed)

    def manual_seed(self, seed: SupportsIndex) -> Self:
        """Start the stream that belongs to a seed.

        Parameters
        ----------
        seed : int
            From -2**63 to 2**64 - 1; a negative one stands for itself + 2**64. As in torch, seeds
            with the same low 32 bits have the same stream.

        Returns
        -------
        TorchGenerator
            Itself.

        Raises
        ------
        TypeError
            Not an integer (torch: RuntimeError).
        ValueError
            Out of range.
        """
        number = operator.index(seed)
        if not -(2**63) <= number < 2**64:
            raise ValueError(f"seed must lie between -2**63 and 2**64 - 1, not be {number}")
        self._seed = number % 2**64
        # numpy's legacy way of seeding is torch's.
        np.random.RandomState(self._bits).seed(self._seed & 0xFFFFFFFF)
        return self

    def seed(self) -> int:
        """Start a stream seeded by the system.

        Returns
        -------
        int
            The seed, for `manual_seed`.
        """
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed of the stream."""
        return self._seed

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the stream.

        Returns
        -------
        dict
            JSON of about 3.4 KB; a torch.Generator's, through `as_generator`, has the same form.
        """
        state: Any = self._bits.state["state"]
        return TwisterState(self._seed, int(state["pos"]), np.asarray(state["key"])).to_json()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state.

        Parameters
        ----------
        state : dict
            From `state_dict`.

        Raises
        ------
        CheckpointError
            It is not such a state.
        """
        loaded = TwisterState.from_json(state)
        self._seed = loaded.seed
        self._bits.state = {
            "bit_generator": "MT19937",
            "state": {"key": loaded.words, "pos": loaded.position},
        }

    def random_raw32(self, size: int) -> np.ndarray:
        """Draw from the Twister itself.

        Parameters
        ----------
        size : int
            The number of draws.

        Returns
        -------
        (size,) uint64 ndarray
            Each below 2**32.
        """
        raw: np.ndarray = self._bits.random_raw(size)
        return raw

    def _raw64(self, size: int) -> np.ndarray:
        """Draw 64-bit numbers, of two draws each, the high half first."""
        raw = self.random_raw32(2 * size)
        pairs: np.ndarray = (raw[0::2] << np.uint64(32)) | raw[1::2]
        return pairs

    def int64(self) -> int:
        """Draw a number in [0, 2**63): ``torch.empty((), dtype=torch.int64).random_().item()``."""
        return int(self._raw64(1)[0]) % 2**63

    def randperm(self, n: int) -> np.ndarray:
        """Draw a random order of ``range(n)``: ``torch.randperm(n)``.

        Parameters
        ----------
        n : int
            From 214,748,364 on torch uses another shuffle, with twice the draws; so does this.

        Returns
        -------
        (n,) int64 ndarray
        """
        if n < 0:
            raise RuntimeError(f"a permutation of {n} numbers cannot be")
        return swapping(n, self.random_raw32) if n < HUGE else inside_out(n, self._raw64)

    def randint(self, high: int, size: int) -> np.ndarray:
        """Draw integers in [0, high): ``torch.randint(high, (size,))``.

        Parameters
        ----------
        high, size : int
            As in torch.

        Returns
        -------
        (size,) int64 ndarray
        """
        if high <= 0:
            raise RuntimeError(f"there is no integer from 0 to below {high}")
        draws = self.random_raw32(size) if high < _LARGE_RANGE else self._raw64(size)
        return (draws % np.uint64(high)).astype(np.int64)

    def uniform64(self, size: int) -> np.ndarray:
        """Draw numbers in [0, 1): ``torch.rand(size, dtype=torch.float64)``.

        Parameters
        ----------
        size : int
            The number of draws.

        Returns
        -------
        (size,) float64 ndarray
        """
        return (self._raw64(size) & np.uint64(2**53 - 1)).astype(np.float64) * 2.0**-53

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> np.ndarray:
        """Draw indices by weights: ``torch.multinomial`` of a float64 vector.

        Parameters
        ----------
        weights : (n,) array_like
            Not below 0, finite, with a sum above 0.
        num_samples : int
            The number of draws.
        replacement : bool
            True if an index may come more than once.

        Returns
        -------
        (num_samples,) int64 ndarray

        Notes
        -----
        It is that of torch releases that no longer let Intel's library draw exponential
        numbers (2.13 still does). If more indices are drawn without replacement than have a weight
        above 0, the remaining ones are ordered by number.
        """
        return multinomial(
            np.asarray(weights, np.float64), num_samples, replacement, self.uniform64
        )


@dataclass(frozen=True, eq=False)
class TwisterState:
    """The state of a Mersenne Twister.

    Parameters
    ----------
    seed : int
        The seed it began with.
    position : int
        The number of its words that have been drawn; 624 makes new ones.
    words : (624,) uint32 ndarray
        The words.
    """

    seed: int
    position: int
    words: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON of about 3.4 KB, which cannot be compressed since the words are random."""
        return {
            "kind": _KIND,
            "seed": self.seed,
            "position": self.position,
            "words": base64.b64encode(self.words.astype("<u4").tobytes()).decode(),
        }

    @classmethod
    def from_json(cls, state: Any) -> TwisterState:
        """Parse the result of `to_json`.

        Raises
        ------
        CheckpointError
            It is something else.
        """
        try:
            kind, seed, position = state["kind"], int(state["seed"]), int(state["position"])
            words = np.frombuffer(base64.b64decode(state["words"], validate=True), "<u4")
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"not a generator's state: {error!r}") from error
        if kind != _KIND or len(words) != WORDS or not 0 <= position <= WORDS:
            raise CheckpointError(
                f"not a state of {_KIND!r}: kind {kind!r}, {len(words)} words, position {position}"
            )
        return cls(seed, position, words.astype(np.uint32))


def default_generator() -> TorchGenerator:
    """Return the generator that is used where none is given, in place of torch's global one.

    It follows `tundish.set_seed`: after ``tundish.set_seed(S)`` its stream is that of torch's
    after ``torch.manual_seed(S)``; without a seed it starts from the system's entropy (torch's, from
    a constant). No random state of Python, numpy or torch is touched.

    Returns
    -------
    TorchGenerator
        Always the same object.

    Examples
    --------
    >>> import tundish as td
    >>> td.set_seed(0)
    >>> default_generator().randperm(4).tolist()  # torch.manual_seed(0); torch.randperm(4)
    [0, 1, 3, 2]
    >>> td.set_seed(None)
    """
    return _DEFAULT.current()


@dataclass
class _Default:
    """The process's generator, and the last call of `set_seed` that it follows."""

    generator: TorchGenerator | None = None
    followed: int = -1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def current(self) -> TorchGenerator:
        with self.lock:
            if self.generator is None:
                self.generator = TorchGenerator()
            if self.followed != seedings():
                self.followed, seed = seedings(), global_seed()
                if seed is None:
                    self.generator.seed()
                else:
                    self.generator.manual_seed(seed)
            return self.generator


_DEFAULT = _Default()
