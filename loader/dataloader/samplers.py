"""torch's samplers: which sample comes when, and to which process.

Each gives what torch's gives for the same generator, draw for draw, and leaves it at the same
place. Orders are kept as int64 arrays, 8 bytes a sample; Python ints are made a block at a time.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, Literal, TypeVar, get_args

import numpy as np

from tundish.errors import SpecError
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

__all__ = [
    "BatchSampler",
    "DistributedSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "Uneven",
    "WeightedRandomSampler",
    "as_ints",
]

T_co = TypeVar("T_co", covariant=True)
Uneven = Literal["pad", "drop", "mask", "error"]

_BLOCK = 4096
_DRAWN_TOGETHER = 32  # with replacement; torch's number, which shows in a shared generator


def as_ints(indices: np.ndarray) -> Iterator[int]:
    """The numbers of an array as Python ints, few of which exist at a time.

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
    """Indices in random order, or at random.

    Parameters
    ----------
    data_source : Sized
        Only its length is used, anew in each epoch.
    replacement : bool
        Whether each index is drawn from all; else permutations follow each other.
    num_samples : int, optional
        How many; by default as many as there are.
    generator : TorchGenerator or torch.Generator, optional
        Drawn from, and so advanced. By default each epoch has its own, seeded with one number of
        `default_generator`.

    Notes
    -----
    Without replacement torch ends an epoch with a permutation of which it takes the remainder,
    even where that is nothing, and so does this: a generator stands at the same place afterwards.

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
        """How many an epoch has: as given, or the length that the data has now."""
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
        What is shuffled; its items are given as they are.
    generator : TorchGenerator or torch.Generator, optional
        Drawn from, and so advanced; by default `default_generator`.

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
    """Indices at random, each as likely as its weight.

    Parameters
    ----------
    weights : Sequence of float
        One an index; their sum need not be 1.
    num_samples : int
        How many an epoch has.
    replacement : bool
        Whether an index can come more than once.
    generator : TorchGenerator or torch.Generator, optional
        Drawn from, and so advanced; by default `default_generator`.

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
    """Lists of what another sampler gives.

    Parameters
    ----------
    sampler : Iterable
        Any iterable; `len` of this needs its `len`.
    batch_size : int
        How many a list has.
    drop_last : bool
        Whether a last, shorter list is left out.

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
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        sampler: Any = self.sampler
        short = 0 if self.drop_last else self.batch_size - 1
        return int((len(sampler) + short) // self.batch_size)


class DistributedSampler(Sampler[int]):
    """One process's share of an order that all processes know: every R-th index, from its own on.

    Parameters
    ----------
    dataset : Sized
        Only its length is used.
    num_replicas, rank : int, optional
        How many processes, and which is this one. By default those of ``torch.distributed`` where
        this process has initialised it, else ``WORLD_SIZE`` and ``RANK`` of the environment, which
        ``torchrun`` sets.
    shuffle : bool
        Whether an epoch's order is the permutation of seed + epoch, or the dataset's own.
    seed : int
        The same in all processes.
    drop_last : bool
        Torch's rule for counts that R does not divide: leave out the end of the order, or (False)
        fill up with its beginning.
    uneven : {"pad", "drop", "mask", "error"}, optional
        Ours: what is done about such counts. "pad" and "drop" are torch's two rules, and None lets
        `drop_last` choose. "mask" fills up too and says by `valid` which places are real, so that
        an evaluation counts every sample once. "error" refuses.

    Attributes
    ----------
    epoch : int
        Set by `set_epoch`. Without it every epoch has the same order.
    num_samples : int
        How many this process has an epoch: as many as each other.
    total_size : int
        How many all have together.

    Raises
    ------
    ValueError
        The rank is not one of 0..num_replicas-1, neither was given nor found, or `uneven` and
        `drop_last` contradict each other.
    SpecError
        `uneven` is "error", and `num_replicas` does not divide the number of samples.

    Examples
    --------
    >>> [list(DistributedSampler("abcde", 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    >>> sampler = DistributedSampler("abcde", 2, 1, shuffle=False, uneven="mask")
    >>> sampler.valid().tolist()
    [True, True, False]

    Three processes go on where two stopped after a batch of one sample each:

    >>> shares = [DistributedSampler("abcde", 3, r, shuffle=False).share(2) for r in range(3)]
    >>> [indices.tolist() for indices, valid in shares]
    [[2], [3], [4]]
    """

    def __init__(  # noqa: PLR0917 - torch's signature
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: Uneven | None = None,
    ) -> None:
        if num_replicas is None:
            num_replicas = _of_this_process("get_world_size", "WORLD_SIZE", "num_replicas")
        if rank is None:
            rank = _of_this_process("get_rank", "RANK", "rank")
        if not 0 <= rank < num_replicas:
            # Begins as programs that look into torch's message expect.
            raise ValueError(
                f"Invalid rank {rank}: of {num_replicas} processes it must be one of "
                f"0 to {num_replicas - 1}"
            )
        if uneven is not None and uneven not in get_args(Uneven):
            raise ValueError(f"uneven must be one of {get_args(Uneven)} or None, not {uneven!r}")
        if drop_last and uneven not in (None, "drop"):
            raise ValueError(f"drop_last=True and uneven={uneven!r} contradict each other")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last or uneven == "drop"
        self.shuffle = shuffle
        self.seed = seed
        self.uneven: Uneven = uneven or ("drop" if drop_last else "pad")
        self.num_samples = self._count(len(dataset))
        self.total_size = self.num_samples * num_replicas

    def _count(self, left: int) -> int:
        """How many of so many samples each process has."""
        if self.uneven == "error" and left % self.num_replicas:
            raise SpecError(
                f"{left} samples cannot be dealt evenly to {self.num_replicas} processes; "
                'uneven="pad", "drop" or "mask" says what to do'
            )
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is of: another epoch, another order.

        Parameters
        ----------
        epoch : int
            The same in all processes.
        """
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        size, total = len(self.dataset), self.total_size
        enough = size >= total if self.drop_last else 0 < size <= total or size == total
        if not enough or (self.uneven == "error" and size != total):  # torch's check, by its type
            raise AssertionError(
                f"the dataset has {size} samples now, and {self.num_replicas} processes share out "
                f"the {total} places there were when this sampler was made"
            )
        places, _ = self._places(0, self.num_samples)
        return as_ints(self._at(places))

    def __len__(self) -> int:
        return self.num_samples

    def order(self, epoch: int | None = None) -> np.ndarray:
        """An epoch's order of all samples, for all processes, before any are added or left out.

        Parameters
        ----------
        epoch : int, optional
            By default the present one.

        Returns
        -------
        (n,) int64 ndarray
        """
        if not self.shuffle:
            return np.arange(len(self.dataset))
        chosen = self.epoch if epoch is None else epoch
        return TorchGenerator(self.seed + chosen).randperm(len(self.dataset))

    def share(self, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """What this process has of the rest of the present epoch.

        Parameters
        ----------
        start : int
            How many samples of the order have been had already, by all processes together, however
            many those were.

        Returns
        -------
        indices : (k,) int64 ndarray
            As long in each process. What fills up is the beginning of the epoch's order.
        valid : (k,) bool ndarray
            False where an index only fills up.

        Raises
        ------
        SpecError
            `uneven` is "error", and `num_replicas` does not divide what is left.
        """
        if start < 0:
            raise ValueError(f"start must not be below 0, but is {start}")
        count = self._count(max(0, len(self.dataset) - start))
        places, valid = self._places(start, count)
        return self._at(places), valid

    def valid(self) -> np.ndarray:
        """Which of this process's indices of an epoch are real, and not there to fill up.

        Returns
        -------
        (num_samples,) bool ndarray
        """
        return self._places(0, self.num_samples)[1]

    def _places(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Where in an epoch's order this process's indices are, and which are no repetition."""
        size = len(self.dataset)
        places = start + self.rank + self.num_replicas * np.arange(count)
        valid = places < size
        places[~valid] %= max(1, size)
        return places, valid

    def _at(self, places: np.ndarray) -> np.ndarray:
        return self.order()[places] if self.shuffle else places


def _is_positive_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _not_positive(name: str, value: Any) -> str:
    return f"{name} should be a positive integer, but {name}={value!r}"


def _float64(values: Any) -> np.ndarray:
    """An array, of a tensor too that lives elsewhere or has a gradient."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values, np.float64)


def _of_this_process(function: str, variable: str, argument: str) -> int:
    """A number that the launcher of a distributed run gave this process."""
    distributed: Any = sys.modules.get("torch.distributed")  # not imported: it may never be needed
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(getattr(distributed, function)())
    text = os.environ.get(variable)
    if text is None:
        raise ValueError(
            f"{argument} is not given, torch.distributed is not initialised in this process, and "
            f"the environment has no {variable}"
        )
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable} in the environment is no integer: {text!r}") from None
