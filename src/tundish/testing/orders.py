"""The orders of shuffles, computed directly from their definitions: for comparison, not for speed.

`shuffle(buffer_size, seed)` draws 32-bit words of Philox 4x32-10 [1]_ and picks from a window
that slides over its input. Seeds are passed to it as in TensorFlow. `shuffle(None, seed)` is a keyed
permutation of our own [2]_.

References
----------
.. [1] J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3. SC 2011.
.. [2] J. Black and P. Rogaway, Ciphers with arbitrary finite domains. CT-RSA 2002.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import deque
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "directed",
    "permutation",
    "permutation_of_units",
    "seed_words",
    "weighted_draws",
    "window_shuffle",
    "window_words",
    "words",
]

T = TypeVar("T")

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
DEFAULT_GRAPH_SEED = 87654321
SEED_MODULUS = 2**31 - 1
SPLITMIX = 0x9E3779B97F4A7C15
FEW = 4096
"""The most elements that are ordered by hashes, so that every order of them is possible."""
STATELESS_KEY = 0x02461E293EC8F720


def words(key: int, stream: int, first: int = 0) -> Iterator[int]:
    """Yield the 32-bit words of Philox 4x32-10 for a 64-bit key.

    Parameters
    ----------
    key : int
        The seed.
    stream : int
        The upper half of the 128-bit counter.
    first : int
        The number of the first word.

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


def seed_words(seed: int, graph_seed: int | None = None) -> tuple[int, int]:
    """Return TensorFlow's two seeds for an operator's seed and that of `set_seed`."""
    key = (DEFAULT_GRAPH_SEED if graph_seed is None else graph_seed) % SEED_MODULUS
    stream = seed % SEED_MODULUS
    return (key, stream) if key or stream else (0, SEED_MODULUS)


def window_words(seed: int, number: int, *, reshuffle: bool = True) -> Iterator[int]:
    """Yield the words that pass `number` of a seeded shuffle draws.

    With `reshuffle` each pass has a generator of its own, whose two seeds are the next two words
    of a generator of seeds.
    """
    key, stream = seed_words(seed)
    if not reshuffle:
        return words(key, stream)
    seeds = words(key, stream, 2 * number)
    return words(next(seeds), next(seeds))


def window_shuffle(items: Iterable[T], size: int, draws: Iterator[int]) -> Iterator[T]:
    """Shuffle in a window: fill it, draw one item, put the oldest in its place, refill.

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


def permutation(count: int, seed: int, number: int) -> list[int]:
    """Return the order of pass `number` of ``shuffle(None, seed)``: the element at each position.

    Its six 64-bit keys are a blake2b digest of the seed and the number of the pass, each made odd. Up to `FEW` elements
    are sorted by a hash of their positions under the first key. With more elements, each position goes through a
    Feistel network of six rounds, which permutes the numbers less than a power of 4: the smallest that is at least
    the number of elements. This is repeated until the result is the number of an element.

    Examples
    --------
    >>> sorted(permutation(5000, 1, 0)) == list(range(5000))
    True
    """
    text = f"tundish permutation {seed} {number}".encode()
    keys = [key | 1 for key in struct.unpack("<6Q", hashlib.blake2b(text, digest_size=48).digest())]
    if count <= FEW:
        return sorted(range(count), key=lambda i: _splitmix(i * SPLITMIX + keys[0]))
    half = math.ceil((count - 1).bit_length() / 2)

    def walked(position: int) -> int:
        left, right = divmod(position, 2**half)
        for key in keys:
            left, right = right, left ^ _splitmix(right + key) % 2**half
        found = left * 2**half + right
        return found if found < count else walked(found)

    return [walked(position) for position in range(count)]


def permutation_of_units(
    sizes: Sequence[int], units: int, seed: int, number: int, shard: tuple[int, int] = (1, 0)
) -> list[int]:
    """Return the order of pass `number` of ``shuffle(None, seed, units=)``: the records of a shard.

    The units follow one another in the order of their `permutation`. A shard is a range of their records; if the
    lengths of shards differ, the first ones have one record more. The range is cut at the beginning of every
    `units`-th unit, and each piece is permuted by itself, with a seed that depends on its first record's number.

    Parameters
    ----------
    sizes : sequence of int
        The sizes of the units.
    units : int
        The number of units that are permuted together.
    seed, number : int
        As for `permutation`.
    shard : (int, int)
        The number of shards, and that of this one.

    Examples
    --------
    >>> permutation_of_units([2, 2, 2], 1, seed=1, number=0)
    [1, 0, 5, 4, 3, 2]
    """
    firsts = [sum(sizes[:unit]) for unit in range(len(sizes))]
    stood = [
        (unit, firsts[unit] + k)
        for unit in permutation(len(sizes), seed, number)
        for k in range(sizes[unit])
    ]
    count, index = shard
    lengths = [len(stood) // count + (each < len(stood) % count) for each in range(count)]
    first = sum(lengths[:index])
    own = stood[first : first + lengths[index]]
    found: list[int] = []
    names = list(dict.fromkeys(unit for unit, _ in own))
    while names:
        together, names = names[:units], names[units:]
        records = [record for unit, record in own if unit in together]
        key = (first + len(found) + 1) * 2**66 + seed
        found += [records[k] for k in permutation(len(records), key, number)]
    return found


def _splitmix(number: int) -> int:
    """Apply the finaliser of splitmix64."""
    number %= 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        number = (number ^ number >> shift) * factor % 2**64
    return number ^ number >> 31


def weighted_draws(
    weights: Sequence[float], draws: Iterator[int], dtype: type = np.float32
) -> Iterator[int]:
    """Yield the input chosen by each weighted draw, without end.

    A draw takes two words as a seed. They are scrambled to the key and the stream of a generator,
    whose first two words give the 52 bits of a number u in [0, 1). Chosen is the first input
    where the sum of weights, relative to the largest, exceeds u times their total.

    Parameters
    ----------
    weights : sequence of float
        None of them 0; taken to logarithms in `dtype`.
    draws : iterator of int
        32-bit words.
    dtype : type
        TensorFlow's weights are float32.

    Examples
    --------
    >>> found = weighted_draws([0.5, 0.5], window_words(42, 0, reshuffle=False))
    >>> [next(found) for _ in range(6)]
    [1, 1, 1, 1, 0, 1]
    """
    logs = [float(np.log(dtype(weight))) for weight in weights]
    sums, total = [], 0.0
    for log in logs:
        total += math.exp(log - max(logs))
        sums.append(total)
    while True:
        seed = next(draws) | next(draws) << 64
        mixed = _block(seed, STATELESS_KEY)
        generator = words(mixed[0] | mixed[1] << 32, mixed[2] | mixed[3] << 32)
        high, low = next(generator), next(generator)
        bits = 1023 << 52 | (high & 0xFFFFF) << 32 | low
        u = struct.unpack("<d", struct.pack("<Q", bits))[0] - 1.0
        yield next((at for at, most in enumerate(sums) if most > u * total), len(sums) - 1)


def directed(inputs: Sequence[Iterable[T]], choices: Iterable[int], *, stop: bool) -> Iterator[T]:
    """Take items from the inputs in the order of `choices`.

    Parameters
    ----------
    inputs : sequence of iterables
        The inputs.
    choices : iterable of int
        The index of the next input to take an item from. A choice of an input that has ended is skipped.
    stop : bool
        True to end as soon as a chosen input has ended.

    Examples
    --------
    >>> list(directed(["ab", "xyz"], [0, 1, 0, 0, 1, 1], stop=False))
    ['a', 'x', 'b', 'y', 'z']
    """
    left = dict(enumerate(map(iter, inputs)))
    for which in choices:
        if which not in left:
            continue
        try:
            yield next(left[which])
        except StopIteration:
            del left[which]
            if stop or not left:
                return
