"""`tundish.torch.DataLoader`: torch's class on our workers and our memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import DataLoader as TorchDataLoader  # also when ours is put in its place
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data._utils import collate as torch_collate

from tundish.errors import CheckpointError
from tundish.loader.dataloader.arguments import check_for_elements, is_dataset
from tundish.loader.dataloader.dataloader import Loading, check_globals, check_rng_compat
from tundish.loader.dataloader.flavour import Flavour
from tundish.torch.adoption import AdoptionTrigger, Marked, adopt
from tundish.torch.device import pinning
from tundish.torch.lightning import fetched_ahead

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset


_T_co = TypeVar("_T_co", covariant=True)


def _default_generator() -> Any:
    return torch.default_generator


TORCH = Flavour(
    tensors=True,
    collate=(torch.utils.data.default_collate, torch_collate.default_collate),
    convert=(torch.utils.data.default_convert, torch_collate.default_convert),
    to_samples=torch.utils.data.default_convert,
    generator=_default_generator,
)


class DataLoader(Loading, TorchDataLoader[_T_co]):  # type: ignore[misc]
    """A subclass of torch's ``DataLoader`` that uses tundish's workers.

    To switch from torch's, change only the import. Batches are tensors in shared memory, which the training process
    does not copy. Samples are written into their rows as soon as they are made.
    The order of samples is the same as torch's for the same seed.

    Parameters
    ----------
    dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory
        As in torch, with torch's checks.
    drop_last, timeout, worker_init_fn, multiprocessing_context, generator, prefetch_factor
        As in torch.
    persistent_workers, pin_memory_device, in_order
        As in torch.
    rng_compat : {"batch", "torch"}
        The way in which the global generators of Python, numpy and torch are seeded in workers. "batch": for each
        batch, from the base seed, the epoch and the place of the batch's first sample, so the numbers do not depend
        on workers. "torch": once per worker, with batches assigned to workers in turn, as torch does.
    globals : {"ship", "error", "ignore"}
        The reaction if a global of your modules, which the dataset or a function reads, was
        changed at run time. "ship": workers get its value, with a warning that names it. "error": a
        `ChangedGlobalsError`. "ignore": workers keep the value that they import.

    Notes
    -----
    `state_dict` and `load_state_dict` work as in torchdata's ``StatefulDataLoader``. A
    state can also be loaded with another number of workers and, with a ``DistributedSampler``, another
    number of ranks.

    The differences from torch are:

    - If ``__getitem__`` takes ``rng``, it gets a numpy generator keyed by the sample's place in the epoch.
    - A worker that dies is replaced, and its batches are made again.
    - Errors keep their type and name the sample. A `StopIteration` from ``__getitem__`` is a ``RuntimeError``.
    - Workers are forked from this process only with ``multiprocessing_context="fork"``. Otherwise the dataset must be
      picklable (with cloudpickle, so lambdas and classes of a notebook are), and changes to modules are not inherited.

    Torch is imported in workers only if the dataset needs it, once for all of them.

    Examples
    --------
    >>> import torch
    >>> from tundish.torch import DataLoader
    >>> data = torch.utils.data.TensorDataset(torch.arange(4))
    >>> [batch.tolist() for (batch,) in DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3]]
    """

    flavour = TORCH
    _is_accelerate_prepared = AdoptionTrigger()

    def __init__(  # noqa: PLR0917 - torch's signature
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        rng_compat: str = "batch",
        globals: str = "ship",  # noqa: A002 - as in Options
    ) -> None:
        self.rng_compat = check_rng_compat("rng_compat", rng_compat)
        self.globals = check_globals("globals", globals)
        self._pinning: Any = None
        self._asked_ahead = prefetch_factor
        if is_dataset(dataset):
            check_for_elements(worker_init_fn, generator, rng_compat)
        TorchDataLoader.__init__(
            self,
            _Wrapped(dataset) if is_dataset(dataset) else dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        adopt(DataLoader)
        self._make_ready()

    def __iter__(self) -> Any:
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            return TorchDataLoader.__iter__(self)  # torch's, with torch's workers
        return super().__iter__()

    def _get_iterator(self) -> Any:
        """Return what torch's ``__iter__`` would: classes derived from torch's begin an epoch by this name."""
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            return TorchDataLoader._get_iterator(self)  # noqa: SLF001 - see above
        return Loading.__iter__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy_of, (type(self),), self.__getstate__()

    def state_dict(self) -> dict[str, Any]:
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            raise CheckpointError("a DataPipe runs on torch's own iterator, which has no state")
        ahead, over = fetched_ahead() or (0, False)
        return self._state(ahead, ended=over)

    def __len__(self) -> int:
        length: int = TorchDataLoader.__len__(self)
        if self._is_iterable:
            self._said_length = length
        return length

    @property
    def _is_iterable(self) -> bool:
        return isinstance(self.dataset, torch.utils.data.IterableDataset)

    @property
    def _elements(self) -> Dataset | None:
        return self.dataset.elements if isinstance(self.dataset, _Wrapped) else None

    @property
    def pin_memory_device(self) -> str:
        """Torch's argument; by it Accelerate's copies of a loader are known."""
        return Marked.of(self, self.__dict__.get("pin_memory_device", ""))

    @pin_memory_device.setter
    def pin_memory_device(self, device: str) -> None:
        self.__dict__["pin_memory_device"] = str(device)  # where Lightning looks for it

    @property
    def finish(self) -> Any:
        """Pins batches if requested, and if there is a device to pin them for."""
        if self.pin_memory and self._pinning is None:
            self._pinning = pinning(self.pin_memory_device)
        return self._pinning if self.pin_memory else None


def _copy_of(kind: Any) -> Any:
    """Make a copy that has yet to get its attributes; with it may have come Accelerate's loader around it."""
    adopt(DataLoader)
    return kind.__new__(kind)


class _Wrapped(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A `Dataset` of ours as torch's checks know one."""

    def __init__(self, dataset: Dataset) -> None:
        self.elements = dataset

    def __iter__(self) -> Any:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)
