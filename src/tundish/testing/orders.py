"""The orders of tf.data, from their description: for comparison, not for speed.

`shuffle(buffer_size, seed)` draws 32-bit words of Philox 4x32-10 [1]_ and picks from a window
that slides over its input. Seeds reach it as they do in TensorFlow.

References
----------
.. [1] J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["window_shuffle", "window_words", "words"]

T = TypeVar("T")

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
DEFAULT_GRAPH_SEED = 87654321
SEED_MODULUS = 2**31 - 1


def words(key: int, stream: int, first: int = 0) -> Iterator[int]:
    """The 32-bit words of Philox 4x32-10 for a 64-bit key.

    Parameters
    ----------
    key : int
        The seed.
    stream : int
        The upper half of the 128-bit counter.
    first : int
        Which word to begin with.

    Examples
    --------
    >>> numbers = words(0, 0)
    >>> [hex(next(numbers)) for _ in range(4)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    counter = ((stream % 2**64) << 64) + first // 4
    skip = first % 4
    while True:
        yield from _block(counter % 2**128, key % 2**64)[skip:]
        counter, skip = counter + 1, 0


def _block(counter: int, key: int) -> list[int]:
    block = [counter >> shift & WORD for shift in (0, 32, 64, 96)]
    keys = [key & WORD, key >> 32]
    for _ in range(10):
        low, high = MULTIPLIERS[0] * block[0], MULTIPLIERS[1] * block[2]
        block = [
            high >> 32 ^ block[1] ^ keys[0],
            high & WORD,
            low >> 32 ^ block[3] ^ keys[1],
            low & WORD,
        ]
        keys = [(k + w) & WORD for k, w in zip(keys, WEYL, strict=True)]
    return block


def window_words(seed: int, number: int, *, reshuffle: bool = True) -> Iterator[int]:
    """The words that pass `number` of a seeded shuffle draws.

    With `reshuffle` each pass has a generator of its own, whose two seeds are the next two words
    of a generator of seeds.
    """
    key, stream = DEFAULT_GRAPH_SEED, seed % SEED_MODULUS
    if not reshuffle:
        return words(key, stream)
    seeds = words(key, stream, 2 * number)
    return words(next(seeds), next(seeds))


def window_shuffle(items: Iterable[T], size: int, draws: Iterator[int]) -> Iterator[T]:
    """Shuffle in a window: fill, draw one, put the oldest in its place, fill again.

    Examples
    --------
    >>> list(window_shuffle(range(5), 5, window_words(7, 0)))
    [2, 4, 0, 3, 1]
    """
    window: deque[T] = deque()
    source = iter(items)
    ended = False
    while True:
        while not ended and len(window) < size:
            try:
                window.append(next(source))
            except StopIteration:
                ended = True
        if not window:
            return
        chosen = next(draws) % len(window)
        yield window[chosen]
        window[chosen] = window[0]
        window.popleft()
