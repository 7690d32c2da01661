"""Random generators keyed by an element's identity alone.

A function's generator is numpy's ``Philox`` with

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
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.random.bit_generator import ISpawnableSeedSequence

_M32, _M64 = 2**32 - 1, 2**64 - 1

Path = int | tuple[Any, ...]


def path_bits(path: Path) -> tuple[int, int]:
    """Return the two 64-bit words of an origin.

    Examples
    --------
    >>> path_bits(7)
    (7, 0)
    """
    if type(path) is int:
        return path & _M64, path >> 64
    digest = hashlib.blake2b(repr(path).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1 << 63


class _Origin(ISpawnableSeedSequence):
    """The seed sequence of a re-keyed generator, made of its words, so that ``rng.spawn`` depends on the element too."""

    def __init__(self, key: list[int], counter: list[int]) -> None:
        self.key, self.counter = key, counter
        self.children = 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.array(self.key, np.uint64)

    def spawn(self, n_children: int) -> list[SeedSequence]:  # type: ignore[override]
        first, self.children = self.children, self.children + n_children
        words = [*self.key, *self.counter[1:]]
        return [SeedSequence([*words, child]) for child in range(first, first + n_children)]


class ElementRng:
    """The generators of one seeded operator.

    Parameters
    ----------
    seed : int
        The operator's seed.
    number : int
        The operator's number among the plan's seeded operators, counted from the source.
    """

    def __init__(self, seed: int, number: int) -> None:
        self._seed, self._number = seed & _M64, number << 32
        self._make(0)

    def _make(self, pass_: int) -> None:
        # Lists: numpy reads a word of a list in a fraction of the time that a word of an array takes.
        self._counter = [0, 0, 0, 0]
        self._key = [self._seed, 0]
        self._enter(pass_)
        self._origin = _Origin(self._key, self._counter)
        self._bits = Philox(self._origin)  # type: ignore[arg-type]  # numpy's stub wants its own
        self._generator = Generator(self._bits)
        inner = {"counter": self._counter, "key": self._key}
        self._state: Any = {**self._bits.state, "state": inner, "buffer": [0, 0, 0, 0]}

    def _enter(self, pass_: int) -> None:
        self._pass = pass_
        self._key[1] = self._number | (pass_ & _M32)
        self._counter[1] = pass_ >> 32

    def __call__(self, pass_: int, path: Path) -> Generator:
        """Return the generator for an element, valid until the next call unless kept."""
        if type(path) is int and path <= _M64:
            return self.of(pass_, path)
        return self.of(pass_, *path_bits(path))

    def of(self, pass_: int, low: int, high: int = 0) -> Generator:
        """Return the generator for the two words of an origin."""
        # Two references to a generator nobody kept: ours and getrefcount's own; its bit generator and that one's
        # seed sequence have one more, each from the other.
        kept = getrefcount(self._generator) > 2 or getrefcount(self._bits) > 3
        if kept or getrefcount(self._origin) > 3:
            self._make(pass_)
        elif pass_ != self._pass:
            self._enter(pass_)
        counter = self._counter
        counter[2] = low
        counter[3] = high
        self._bits.state = self._state
        self._origin.children = 0
        return self._generator
