"""torch's samplers, which determine the order of samples.

Each gives what torch's gives for the same generator, draw for draw, and leaves the generator at the same
position. Orders are kept as int64 arrays, 8 bytes a sample; Python ints are made a block at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.streaming import begun, pulled
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

T_co = TypeVar("T_co", covariant=True)

_BLOCK = 4096
_DRAWN_TOGETHER = 32  # with replacement; torch's number, which shows in a shared generator


def as_ints(indices: np.ndarray) -> Iterator[int]:
    """Yield the numbers of an array as Python ints, creating only a few at a time.

    Examples
    --------
    >>> list(as_ints(np.array([3, 1, 2])))
    [3, 1, 2]
    """
    for start in range(0, len(indices), _BLOCK):
        yield from indices[start : start + _BLOCK].tolist()


class Sampler(Generic[T_co]):
    """Base of all samplers: something to iterate over, once an epoch, with or without a length.

    Examples
    --------
    >>> class Backwards(Sampler[int]):
    ...     def __init__(self, data):
    ...         self.data = data
    ...
    ...     def __iter__(self):
    ...         return reversed(range(len(self.data)))
    >>> list(Backwards("abc"))
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Every index, from the first to the last.

    Parameters
    ----------
    data_source : Sized
        Only its length is used.

    Examples
    --------
    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, or drawn with replacement.

    Parameters
    ----------
    data_source : Sized
        The data; only its length is used, which is read in each epoch.
    replacement : bool
        True if each index is drawn from all; False for consecutive permutations.
    num_samples : int, optional
        The number of indices; by default the length of the data.
    generator : TorchGenerator or torch.Generator, optional
        The generator to draw from, which advances. By default each epoch has its own, seeded with one number of
        `default_generator`.

    Notes
    -----
    Without replacement torch ends an epoch with a permutation of which it takes the remainder,
    even if that is empty, and so does this: a generator is at the same position afterwards.

    Examples
    --------
    >>> list(RandomSampler(range(5), generator=TorchGenerator(0)))
    [4, 0, 1, 3, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            # Worded as programs that look into torch's message expect.
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        count: Any = self.num_samples
        if not isinstance(count, int) or count <= 0:
            raise ValueError(_not_positive("num_samples", count))

    @property
    def num_samples(self) -> int:
        """The number of samples of an epoch: as given, or the data's present length."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        if self.generator is None:
            generator = as_generator(TorchGenerator(default_generator().int64()))
        else:
            generator = as_generator(self.generator)
        if self.replacement:
            for _ in range(self.num_samples // _DRAWN_TOGETHER):
                yield from generator.randint(n, _DRAWN_TOGETHER).tolist()
            yield from generator.randint(n, self.num_samples % _DRAWN_TOGETHER).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from as_ints(generator.randperm(n))
            yield from as_ints(generator.randperm(n)[: self.num_samples % n])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order.

    Parameters
    ----------
    indices : Sequence
        The indices to shuffle; items are given as they are.
    generator : TorchGenerator or torch.Generator, optional
        The generator to draw from, which advances; by default `default_generator`.

    Examples
    --------
    >>> list(SubsetRandomSampler([10, 20, 30], generator=TorchGenerator(0)))
    [30, 10, 20]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = as_generator(self.generator).randperm(len(self.indices))
        for i in as_ints(order):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices at random, with probabilities proportional to weights.

    Parameters
    ----------
    weights : Sequence of float
        A weight for each index; their sum need not be 1.
    num_samples : int
        The number of indices in an epoch.
    replacement : bool
        True if an index may come more than once.
    generator : TorchGenerator or torch.Generator, optional
        The generator to draw from, which advances; by default `default_generator`.

    Attributes
    ----------
    weights : (n,) float64 ndarray
        torch keeps a tensor.

    Examples
    --------
    >>> weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6]
    >>> list(WeightedRandomSampler(weights, 5, generator=TorchGenerator(0)))
    [5, 4, 4, 5, 4]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        if not _is_positive_int(num_samples):
            raise ValueError(_not_positive("num_samples", num_samples))
        if not isinstance(replacement, bool):
            raise ValueError(  # noqa: TRY004 - torch's type
                f"replacement must be True or False, not {replacement!r}"
            )
        vector = _float64(weights)
        if vector.ndim != 1:
            raise ValueError(f"weights must have one dimension; their shape is {vector.shape}")
        self.weights = vector
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = as_generator(self.generator)
        yield from as_ints(generator.multinomial(self.weights, self.num_samples, self.replacement))

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of another sampler's items.

    Parameters
    ----------
    sampler : Iterable
        Any iterable; `len` of this needs its `len`.
    batch_size : int
        The number of items in a list.
    drop_last : bool
        True to leave out a last, shorter list.

    Examples
    --------
    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    >>> list(BatchSampler(range(5), batch_size=2, drop_last=True))
    [[0, 1], [2, 3]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not _is_positive_int(batch_size):
            raise ValueError(_not_positive("batch_size", batch_size))
        if not isinstance(drop_last, bool):
            raise ValueError(  # noqa: TRY004 - torch's type
                f"drop_last must be True or False, not {drop_last!r}"
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return grouped(self.sampler, self.batch_size, drop_last=self.drop_last)

    def __len__(self) -> int:
        sampler: Any = self.sampler
        short = 0 if self.drop_last else self.batch_size - 1
        return int((len(sampler) + short) // self.batch_size)


def grouped(items: Any, size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    """Yield lists of `size` items of an iterable.

    Examples
    --------
    >>> list(grouped("abc", 2, drop_last=False))
    [['a', 'b'], ['c']]
    """
    stream = pulled(begun(items))
    while group := list(itertools.islice(stream, size)):
        if len(group) < size and drop_last:
            return
        yield group


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _not_positive(name: str, value: Any) -> str:
    return f"{name} should be a positive integer, but {name}={value!r}"


def _float64(values: Any) -> np.ndarray:
    """Return an array, also from a tensor on another device or with a gradient."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values, np.float64)
