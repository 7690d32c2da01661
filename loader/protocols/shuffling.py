"""The draws of tf.data's shuffle: blocks of Philox, and the seeds of each pass."""

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
    """Blocks of Philox4x32-10: of 128-bit counters and 64-bit keys, in 32-bit words as uint64.

    Returns
    -------
    tuple of four (blocks,) uint64 ndarray
        Each block's first words, second words, ...
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
    """Blocks of tf.random's Philox4x32-10 stream: key `seed`, high counter `seed2`.

    Returns
    -------
    (blocks * 4,) uint64 ndarray
        32-bit numbers, from number ``4 * first``. The counter has 128 bits, of which `seed2` is the upper half.
    """
    begin = np.uint64(first % 2**64)
    counter = np.arange(blocks, dtype=np.uint64) + begin
    upper = np.uint64((seed2 + (first >> 64)) % 2**64) + (counter < begin)  # where it has wrapped
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    words: np.ndarray = np.empty((blocks, 4), np.uint64)
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = philox_block(
        (counter & _LOW, counter >> _32, upper & _LOW, upper >> _32), key
    )
    return words.ravel()


def seed_pair(seed: int, graph_seed: int | None = None) -> tuple[int, int]:
    """The two seeds tf.data makes of an operator's seed and the global one."""
    first = (_GRAPH_SEED if graph_seed is None else graph_seed) % _M31
    second = seed % _M31
    return (0, _M31) if first == 0 and second == 0 else (first, second)


def pair_of_pass(pair: tuple[int, int], pass_: int | None) -> tuple[int, int]:
    """The two seeds of one pass: drawn from a generator of seeds; None: those of each pass."""
    if pass_ is None:
        return pair
    block, at = divmod(2 * pass_, 4)
    four = philox32(*pair, block, 1)
    return (int(four[at]), int(four[at + 1]))


class Draws:
    """The stream of draws of one pass of a window shuffle; any draw can be had first.

    Parameters
    ----------
    pair : (int, int)
        Of `seed_pair`.
    pass_ : int or None
        Which pass reshuffles; None where each pass has the same order.
    """

    def __init__(self, pair: tuple[int, int], pass_: int | None) -> None:
        self._pair = pair_of_pass(pair, pass_)

    def numbers(self, first: int, count: int) -> np.ndarray:
        """Draws from a number on.

        Returns
        -------
        (count,) uint64 ndarray
            Of 32 bits.
        """
        block, skip = divmod(first, 4)
        return philox32(*self._pair, block, -(-(skip + count) // 4))[skip : skip + count]
