"""A keyed permutation of positions by arithmetic, without a table of all positions.

The permutation is a Feistel network. Its round function depends on a round's key and half of a position's bits, so
a table of ``2 ** half`` entries can replace its arithmetic: 8 KB a key for a million positions.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

_SMALL = 4096
_ROUNDS = 6
_TABLED = 16  # bits of the largest half that gets tables: of six keys, 3 MB
_BLOCK = 2**15  # positions at once: they stay in a core's cache
# Up to this many positions wait for the next block: a call for them alone costs too much.
_REST = _BLOCK // 8


def _mix(x: np.ndarray, key: int) -> np.ndarray:
    """Apply splitmix64's finaliser to x + key; uint64 arithmetic wraps."""
    z: np.ndarray = x + np.uint64(key)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@lru_cache(maxsize=64)
def _keys(seed: int, pass_: int) -> tuple[int, ...]:
    text = f"tundish permutation {seed} {pass_}".encode()
    digest = hashlib.blake2b(text, digest_size=8 * _ROUNDS).digest()
    return tuple(int.from_bytes(digest[8 * k : 8 * k + 8], "little") | 1 for k in range(_ROUNDS))


@lru_cache(maxsize=16)
def _small(n: int, seed: int, pass_: int) -> np.ndarray:
    # A small domain is ordered by hashes: any of the n! orders can come.
    hashes = _mix(
        np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), _keys(seed, pass_)[0]
    )
    return np.argsort(hashes, kind="stable").astype(np.int64)


class _Network:
    """A keyed Feistel network over all numbers of ``2 * half`` bits.

    It builds tables once it has been asked for as many numbers as a table has entries; by then they cost no more than
    the arithmetic.
    """

    def __init__(self, half: int, seed: int, pass_: int) -> None:
        self._half, self._mask = half, (1 << half) - 1
        self._keys = _keys(seed, pass_)
        self._tables: list[np.ndarray] = []
        self._without = 1 << half if half <= _TABLED else None

    def expect(self, count: int) -> None:
        """Build tables if they pay off for `count` more numbers."""
        if self._tables or self._without is None:
            return
        self._without -= count
        if self._without <= 0:
            entries = np.arange(1 << self._half)
            self._tables = [self._mixed(entries, key) for key in self._keys]

    def _mixed(self, x: np.ndarray, key: int) -> np.ndarray:
        return _mix(x.view(np.uint64), key).view(x.dtype) & self._mask

    def __call__(self, x: np.ndarray) -> np.ndarray:
        left, right = x >> self._half, x & self._mask
        mixed = np.empty_like(x)
        tables = self._tables
        for k, key in enumerate(self._keys):
            if tables:  # nothing is beyond a table: clipping only spares a check
                tables[k].take(right, out=mixed, mode="clip")
            else:
                mixed = self._mixed(right, key)
            left ^= mixed
            left, right = right, left
        left <<= self._half
        left |= right
        return left


@lru_cache(maxsize=8)
def _network(half: int, seed: int, pass_: int) -> _Network:
    return _Network(half, seed, pass_)


def permute(positions: np.ndarray, n: int, seed: int, pass_: int) -> np.ndarray:
    """Map positions by a keyed permutation of ``range(n)``, in O(sqrt(n)) memory, 3 MB at most.

    A Feistel network over the next even power of two, applied until the result is below n; for fewer than 4,096
    elements, the order of keyed hashes.

    Parameters
    ----------
    positions : (k,) int64 ndarray
        Positions in ``range(n)``.
    n, seed, pass_ : int
        The domain and the key.

    Returns
    -------
    (k,) int64 ndarray

    Examples
    --------
    >>> sorted(permute(np.arange(5), 5, seed=1, pass_=0).tolist())
    [0, 1, 2, 3, 4]
    """
    if n <= _SMALL:
        return np.take(_small(n, seed, pass_), positions)
    half = ((n - 1).bit_length() + 1) // 2
    network = _network(half, seed, pass_)
    # Signed numbers index tables without a conversion; only the largest domain needs the sign's bit.
    found = np.array(positions, np.int64 if half < 32 else np.uint64)
    count = len(found)
    network.expect(count)
    x, todo = found[:0], np.empty(0, np.int64)
    for first in range(0, count, _BLOCK):
        block = network(found[first : first + _BLOCK])
        found[first : first + _BLOCK] = block
        out = np.flatnonzero(block >= n)
        x, todo = np.concatenate((x, block.take(out))), np.concatenate((todo, out + first))
        enough = 0 if first + _BLOCK >= count else _REST
        while len(x) > enough:
            x = network(x)
            found[todo] = x
            out = np.flatnonzero(x >= n)
            x, todo = x.take(out), todo.take(out)
    return found.view(np.int64)
