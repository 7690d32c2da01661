"""Random draws of tf.data's shuffle: Philox blocks, and the seeds of each pass."""

from __future__ import annotations

import numpy as np

_GRAPH_SEED = 87654321
_M31 = 2**31 - 1


_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


Words = np.ndarray | int


def philox_block(
    counter: tuple[np.ndarray, np.ndarray, Words, Words], key: tuple[Words, Words]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute blocks of Philox4x32-10 from 128-bit counters and 64-bit keys; 32-bit words are held in uint64.

    Returns
    -------
    tuple of four (blocks,) uint64 ndarray
        The first words of all blocks, their second words, ...
    """
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = (np.asarray(k, np.uint64) for k in key)
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ k0,
            p1 & _LOW,
            (p0 >> _32) ^ c3 ^ k1,
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def philox32(seed: int, seed2: int, first: int, blocks: int) -> np.ndarray:
    """Compute blocks of tf.random's Philox4x32-10 stream with key `seed` and high counter `seed2`.

    Returns
    -------
    (blocks * 4,) uint64 ndarray
        32-bit numbers, starting at number ``4 * first``. `seed2` is the upper half of the 128-bit counter.
    """
    begin = np.uint64(first % 2**64)
    counter = np.arange(blocks, dtype=np.uint64) + begin
    # It is one more where the counter has wrapped around.
    upper = np.uint64((seed2 + (first >> 64)) % 2**64) + (counter < begin)
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    words: np.ndarray = np.empty((blocks, 4), np.uint64)
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = philox_block(
        (counter & _LOW, counter >> _32, upper & _LOW, upper >> _32), key
    )
    return words.ravel()


def seed_pair(seed: int, graph_seed: int | None = None) -> tuple[int, int]:
    """Return the two seeds that tf.data derives from an operator's seed and the global one."""
    first = (_GRAPH_SEED if graph_seed is None else graph_seed) % _M31
    second = seed % _M31
    return (0, _M31) if first == 0 and second == 0 else (first, second)


def pair_of_pass(pair: tuple[int, int], pass_: int | None) -> tuple[int, int]:
    """Return the two seeds of one pass, drawn from a generator of seeds; if `pass_` is None, the pair itself."""
    if pass_ is None:
        return pair
    block, at = divmod(2 * pass_, 4)
    four = philox32(*pair, block, 1)
    return (int(four[at]), int(four[at + 1]))


class Draws:
    """The draws of one pass of a window shuffle, with random access.

    Parameters
    ----------
    pair : (int, int)
        The seeds from `seed_pair`.
    pass_ : int or None
        The number of the pass; None if every pass has the same order.
    """

    def __init__(self, pair: tuple[int, int], pass_: int | None) -> None:
        self._pair = pair_of_pass(pair, pass_)

    def numbers(self, first: int, count: int) -> np.ndarray:
        """Return `count` draws, starting at number `first`.

        Returns
        -------
        (count,) uint64 ndarray
            32-bit numbers.
        """
        block, skip = divmod(first, 4)
        return philox32(*self._pair, block, -(-(skip + count) // 4))[skip : skip + count]
