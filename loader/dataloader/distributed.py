"""torch's distributed sampler, which deals samples to processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sized
from typing import Any, Literal, get_args

import numpy as np

from tundish.errors import SpecError
from tundish.loader.dataloader.samplers import Sampler, as_ints
from tundish.loader.dataloader.torchrandom import TorchGenerator

Uneven = Literal["pad", "drop", "mask", "error"]


class DistributedSampler(Sampler[int]):
    """One process's share of an order of samples: every R-th index, starting at the process's rank.

    Parameters
    ----------
    dataset : Sized
        Only its length is used.
    num_replicas, rank : int, optional
        The number of processes R, and the rank of this one. Default: those of ``torch.distributed`` if
        this process has initialised it, else ``WORLD_SIZE`` and ``RANK`` of the environment, which
        ``torchrun`` sets.
    shuffle : bool
        True for the permutation of seed + epoch, False for the dataset's own order.
    seed : int
        The seed, the same in all processes.
    drop_last : bool
        Torch's rule for numbers of samples that R does not divide. True drops the end of the order, and False
        repeats its beginning.
    uneven : {"pad", "drop", "mask", "error"}, optional
        The rule for such numbers; not in torch. "drop" and "pad" are torch's rules for True and False, and None
        lets `drop_last` choose. "mask" also repeats the beginning, and `valid` marks the real samples, so that
        an evaluation can count every sample once. "error" raises a `SpecError`.

    Attributes
    ----------
    epoch : int
        Set by `set_epoch`. Without it every epoch has the same order.
    num_samples : int
        The number of samples of this process per epoch, which is the same in all processes.
    total_size : int
        The number of samples of all processes together.

    Raises
    ------
    ValueError
        The rank is not one of 0..num_replicas-1, the rank or the number of processes was neither given nor found,
        or `uneven` and `drop_last` contradict each other.
    SpecError
        `uneven` is "error", and `num_replicas` does not divide the number of samples.

    Examples
    --------
    >>> [list(DistributedSampler("abcde", 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    >>> sampler = DistributedSampler("abcde", 2, 1, shuffle=False, uneven="mask")
    >>> sampler.valid().tolist()
    [True, True, False]

    Three processes continue where two stopped after a batch of one sample each:

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
            # Begins like torch's message, which some programs check.
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
        """Return each process's share of a number of samples."""
        if self.uneven == "error" and left % self.num_replicas:
            raise SpecError(
                f"{left} samples cannot be divided evenly among {self.num_replicas} processes; "
                'uneven="pad", "drop" or "mask" says what to do'
            )
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which determines its order.

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
        """Return an epoch's order of all samples, for all processes, before samples are repeated or dropped.

        Parameters
        ----------
        epoch : int, optional
            By default the current one.

        Returns
        -------
        (n,) int64 ndarray
        """
        if not self.shuffle:
            return np.arange(len(self.dataset))
        chosen = self.epoch if epoch is None else epoch
        return TorchGenerator(self.seed + chosen).randperm(len(self.dataset))

    def share(self, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return this process's share of the rest of the current epoch.

        Parameters
        ----------
        start : int
            The number of samples of the order that have been used already, by all processes together. The number of
            those processes does not matter.

        Returns
        -------
        indices : (k,) int64 ndarray
            The same number in each process. Padding comes from the beginning of the epoch's order.
        valid : (k,) bool ndarray
            False for indices that are padding.

        Raises
        ------
        SpecError
            `uneven` is "error", and `num_replicas` does not divide the number of remaining samples.
        """
        if start < 0:
            raise ValueError(f"start must not be below 0, but is {start}")
        count = self._count(max(0, len(self.dataset) - start))
        places, valid = self._places(start, count)
        return self._at(places), valid

    def valid(self) -> np.ndarray:
        """Return a mask of this process's indices of an epoch: True for samples, False for padding.

        Returns
        -------
        (num_samples,) bool ndarray
        """
        return self._places(0, self.num_samples)[1]

    def _places(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of this process's indices in an epoch's order, and a mask of those that are new."""
        size = len(self.dataset)
        places = start + self.rank + self.num_replicas * np.arange(count)
        valid = places < size
        places[~valid] %= max(1, size)
        return places, valid

    def _at(self, places: np.ndarray) -> np.ndarray:
        return self.order()[places] if self.shuffle else places


def _of_this_process(function: str, variable: str, argument: str) -> int:
    """Return a number that the launcher of a distributed run set for this process."""
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
        raise ValueError(f"{variable} in the environment is not an integer: {text!r}") from None
