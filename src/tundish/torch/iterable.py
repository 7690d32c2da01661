"""`as_iterable`: a dataset as torch's ``IterableDataset``, its arrays as tensors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from tundish.loader.dataset import Dataset
from tundish.loader.plan.node import global_seed, set_seed
from tundish.loader.protocols.context import draw_seed
from tundish.loader.run.iterator import Iterator
from tundish.nests import map_nest

_NUMBERS = "biufc"


def as_tensors(element: Any) -> Any:
    """A nest with its arrays as tensors.

    Parameters
    ----------
    element : nest
        Of dict, list, tuple and namedtuple; their types are kept.

    Returns
    -------
    nest
        Arrays of numbers are tensors over the same memory, which stays in use (a slot stays leased)
        as long as the tensor lives. Numpy's scalars are tensors without dimensions. Anything else
        is passed on as it is: ``str``, ``bytes``, Python's numbers, arrays of objects, of strings
        and of times, and what is a tensor already.

    Notes
    -----
    Copied are arrays that torch cannot stand on: read-only ones (a tensor has no such flag, and
    writing to one would write where it must not), those in another byte order, those with negative
    strides.

    Examples
    --------
    >>> import numpy as np
    >>> as_tensors({"x": np.zeros(2, np.float32), "name": "a"})
    {'x': tensor([0., 0.]), 'name': 'a'}
    """
    return map_nest(_tensor, element, moves_itself)


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _over(leaf) if leaf.dtype.kind in _NUMBERS else leaf
    if isinstance(leaf, np.generic) and leaf.dtype.kind in _NUMBERS:
        return torch.from_numpy(np.array(leaf))
    return leaf


def _over(array: np.ndarray) -> torch.Tensor:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def moves_itself(value: Any) -> bool:
    """Return True if a value has a method ``to``, as tensors and some containers have.

    Torch's packed sequences are namedtuples, and some of their parts must not move.
    """
    return hasattr(value, "to")


def as_iterable(ds: Dataset) -> TensorElements:
    """Wrap a dataset for torch's own DataLoader, or anything else that takes an ``IterableDataset``.

    Parameters
    ----------
    ds : Dataset
        The dataset. `as_tensors` converts its elements to tensors over the delivered memory.

    Returns
    -------
    TensorElements
        A ``torch.utils.data.IterableDataset``. It has a length if the dataset has one. Its
        iterators have ``state_dict`` and ``load_state_dict``, so torchdata's
        ``StatefulDataLoader`` can resume them.

    Notes
    -----
    Use it with ``num_workers=0``: the dataset has its own workers. For a batched dataset write
    ``DataLoader(as_iterable(ds), batch_size=None)``.

    In a torch worker (``num_workers=n``) the dataset runs in that process, without workers of its
    own, and gives every n-th element, so that no element is repeated. The order is kept with
    ``batch_size=None``. Each of the n workers computes everything before a ``batch`` or a ``filter``.

    In torch workers, as with torch's ``DistributedSampler``, every epoch has the same order unless
    ``set_epoch`` is called before it. In this process each ``iter`` is the next iteration.

    Examples
    --------
    >>> import tundish as td
    >>> from torch.utils.data import DataLoader
    >>> ds = td.Dataset.range(4).map(lambda x: {"x": x}).batch(2)
    >>> list(DataLoader(as_iterable(ds), batch_size=None))
    [{'x': tensor([0, 1])}, {'x': tensor([2, 3])}]
    """
    if not isinstance(ds, Dataset):
        raise TypeError(f"as_iterable takes a tundish Dataset, not {type(ds).__name__}")
    return TensorElements(ds)


class TensorElements(IterableDataset):  # type: ignore[misc]
    """A `tundish.Dataset` for torch; made by `as_iterable`."""

    def __init__(self, ds: Dataset) -> None:
        self._dataset = ds
        # Drawn once, here: torch's workers, each with a copy, must agree on them.
        self._base_seed = draw_seed(ds._node)  # noqa: SLF001 - ours
        self._graph_seed = global_seed()
        # Shared, so that workers that outlive an epoch see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._made = 0

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter`` be this iteration of the dataset, in torch's workers too."""
        self._epoch.fill_(epoch)
        self._made = 0

    def __iter__(self) -> TensorIterator:
        info = get_worker_info()
        if info is None:
            self._made += 1
            return TensorIterator(self, self._iterator(self._dataset, self._made - 1))
        if self._graph_seed is not None:
            set_seed(self._graph_seed)
        share = self._dataset.shard(info.num_workers, info.id)
        return TensorIterator(self, self._iterator(share, 0, workers=0))

    def _iterator(self, ds: Dataset, made: int, **options: Any) -> Iterator:
        node, iteration = ds._node, int(self._epoch) + made  # noqa: SLF001 - ours
        return Iterator(node, iteration=iteration, base_seed=self._base_seed, **options)

    def _went_to(self, iteration: int) -> None:
        """Take note that an iterator was restored: the next one is of the iteration after it."""
        self._made = iteration - int(self._epoch) + 1

    def __len__(self) -> int:
        return len(self._dataset)


class TensorIterator:
    """The elements of an `Iterator` as tensors."""

    def __init__(self, dataset: TensorElements, it: Iterator) -> None:
        self._dataset, self._it = dataset, it

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return as_tensors(next(self._it))

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as `Iterator.state_dict` does."""
        return self._it.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state, as `Iterator.load_state_dict` does."""
        self._it.load_state_dict(state)
        self._dataset._went_to(state["iteration"])  # noqa: SLF001 - ours

    def close(self) -> None:
        """End the workers, as `Iterator.close` does."""
        self._it.close()
