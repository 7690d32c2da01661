"""Randomness that depends on nothing but an element's identity.

The generator a function is given is numpy's ``Philox`` with

* key = ``(seed, number << 32 | pass modulo 2**32)``, where *number* counts the seeded operators
  from the source, and *pass* is the iteration, or the pass of the `repeat` around the operator
  (for nested repeats the mixed-radix number of their passes);
* counter = ``(0, pass >> 32, index modulo 2**64, index >> 64)``, where *index* is the element's
  origin: its position in the source, or for a path of positions (a flat_map's element) 127 bits of
  its blake2b digest with the top bit set.

Both are injective, so no two elements, passes or operators share numbers, and anybody can rebuild
one: ``Generator(Philox(key=..., counter=...))``. The generator is re-keyed for the next element
(0.6 us), not rebuilt (20 us), unless the function kept it.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence

_M32, _M64 = 2**32 - 1, 2**64 - 1

Path = int | tuple[Any, ...]


def path_bits(path: Path) -> tuple[int, int]:
    """The two 64-bit words of an origin.

    Examples
    --------
    >>> path_bits(7)
    (7, 0)
    """
    if type(path) is int:
        return path & _M64, path >> 64
    digest = hashlib.blake2b(repr(path).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1 << 63


def derive_seed(*parts: Any) -> int:
    """A 63-bit seed from anything with a stable ``repr``."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class _Origin(ISpawnableSeedSequence):
    """The seed sequence of a re-keyed generator; ``rng.spawn`` is keyed by the element too."""

    def __init__(self, key: np.ndarray) -> None:
        self.key = key
        self.low = self.high = self.children = 0
        self.pass_ = 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self.key.copy()

    def spawn(self, n_children: int) -> list[SeedSequence]:  # type: ignore[override]
        first, self.children = self.children, self.children + n_children
        words = [int(self.key[0]), int(self.key[1]), self.pass_ >> 32, self.low, self.high]
        return [SeedSequence([*words, child]) for child in range(first, first + n_children)]


class ElementRng:
    """The generators of one seeded operator.

    Parameters
    ----------
    seed : int
        The operator's seed.
    number : int
        Which of the plan's seeded operators, counted from the source.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._key = np.array([seed & _M64, number << 32], np.uint64)
        self._number = number << 32
        self._make()

    def _make(self) -> None:
        self._origin = _Origin(self._key.copy())
        self._bits = Philox(self._origin)  # type: ignore[arg-type]  # numpy's stub wants its own
        self._generator = Generator(self._bits)
        # Lists: of them numpy takes a word in a fraction of the time that it takes one of an array in.
        self._counter: list[int] = [0, 0, 0, 0]
        self._words: list[int] = self._key.tolist()
        inner = {"counter": self._counter, "key": self._words}
        self._state: Any = {**self._bits.state, "state": inner, "buffer": [0, 0, 0, 0]}
        self._pass = -1

    def __call__(self, pass_: int, path: Path) -> Generator:
        """The generator for an element, as new; valid until the next call unless kept."""
        # Two references to a generator nobody kept: ours and getrefcount's own; the bit generator
        # has one more, from the generator.
        if sys.getrefcount(self._generator) > 2 or sys.getrefcount(self._bits) > 3:
            self._make()
        if type(path) is int and path <= _M64:
            low, high = path, 0
        else:
            low, high = path_bits(path)
        counter, origin = self._counter, self._origin
        if pass_ != self._pass:
            self._pass = origin.pass_ = pass_
            self._words[1] = self._number | (pass_ & _M32)
            origin.key[1] = self._words[1]
            counter[1] = pass_ >> 32
        counter[2] = low
        counter[3] = high
        self._bits.state = self._state
        origin.low, origin.high, origin.children = low, high, 0
        return self._generator
