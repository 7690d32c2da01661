"""The recipe for reading a dataset, in workers and the caller's process, and a worker's own number."""

from __future__ import annotations

import bisect
import inspect
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


@dataclass(frozen=True)
class Recipe:
    """A description of how batches are made.

    Parameters
    ----------
    dataset : object
        Map-style (``dataset[key]``) or iterable.
    iterable : bool
        True if it is iterable.
    batched : bool
        True if samples are batched; False if each is delivered by itself.
    batch_size : int or None
        For iterables: the number of samples in a batch.
    drop_last : bool
        For iterables: True to drop a worker's short last batch.
    collate : callable or None
        Collates samples; None for torch's default rules.
    tensors : bool
        True if arrays are to arrive as torch tensors.
    worker_init : callable or None
        Called in each worker with its id.
    workers : int
        The number of workers; 0 for the caller's process.
    rng_compat : {"batch", "torch"}
        The rule by which global generators are seeded.
    globals : {"ship", "error", "ignore"}
        What to do about globals that were changed at run time.
    collate_types : list of (type or tuple of types, callable)
        What the caller has added to torch's ``default_collate_fn_map``.
    start : str or None
        How workers start; None for the default.
    """

    dataset: Any
    iterable: bool
    batched: bool
    batch_size: int | None
    drop_last: bool
    collate: Callable[[Any], Any] | None
    tensors: bool
    worker_init: Callable[[int], Any] | None
    workers: int
    rng_compat: str
    globals: str = "ship"
    collate_types: list[tuple[Any, Any]] = field(default_factory=list)
    start: str | None = None

    @property
    def stateful(self) -> bool:
        """True if the dataset has a state of its own, separate in each copy."""
        return is_stateful(self.dataset)

    @property
    def in_turn(self) -> bool:
        """True if batches are dealt to workers in turn, as in torch, so that the worker of a batch matters."""
        return self.rng_compat == "torch" or self.has_copies

    @property
    def makes_again(self) -> bool:
        """True if another worker can make the batch of a dead one."""
        return self.rng_compat != "torch" and (self.iterable or not self.stateful)

    @property
    def has_copies(self) -> bool:
        """True if what a process gives depends on what it has given before."""
        return self.iterable or self.stateful


def is_stateful(thing: Any) -> bool:
    """Return True if a dataset, a sampler or an iterator has a state and can load one."""
    names = ("state_dict", "load_state_dict")
    return all(callable(getattr(thing, name, None)) for name in names)


def takes_rng(dataset: Any) -> bool:
    """Return True if ``dataset.__getitem__`` has a parameter called ``rng``."""
    method = getattr(type(dataset), "__getitem__", None)
    try:
        return method is not None and "rng" in inspect.signature(method).parameters
    except (TypeError, ValueError):
        return False


def sample_getter(dataset: Any) -> Callable[[Any, np.random.Generator], Any] | None:
    """Return a function that gets a sample with a generator of its own; None if the dataset takes none.

    Torch's `Subset` and `ConcatDataset` do not pass `rng` on; the function reads the dataset inside them.
    """
    if takes_rng(dataset):
        return lambda key, rng: dataset.__getitem__(key, rng=rng)
    kind = (type(dataset).__module__, type(dataset).__name__)
    if kind == ("torch.utils.data.dataset", "Subset"):
        inner, indices = sample_getter(dataset.dataset), dataset.indices
        return None if inner is None else lambda key, rng: inner(indices[key], rng)
    if kind == ("torch.utils.data.dataset", "ConcatDataset"):
        parts = [(part, sample_getter(part)) for part in dataset.datasets]
        if all(get is None for _, get in parts):
            return None
        return lambda key, rng: _of_parts(parts, dataset.cumulative_sizes, key, rng)
    return None


def _of_parts(parts: list[tuple[Any, Any]], ends: list[int], key: int, rng: Any) -> Any:
    at = key + ends[-1] if key < 0 else key
    which = bisect.bisect_right(ends, at)
    part, get = parts[which]
    at -= ends[which - 1] if which else 0
    return part[at] if get is None else get(at, rng)


@dataclass(frozen=True)
class WorkerInfo:
    """The number of this process's worker, and other information that torch provides.

    Attributes
    ----------
    id : int
        From 0 to ``num_workers - 1``; the replacement of a worker that died keeps it.
    num_workers : int
        The number of workers.
    seed : int
        The loader's base seed plus `id`.
    dataset : object
        This process's copy.
    rng, worker_method : None, str
        For compatibility with torch: None, and "multiprocessing".
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_current: list[WorkerInfo] = []


def get_worker_info() -> WorkerInfo | None:
    """Return which worker this process is; None outside the workers of a `DataLoader`.

    Returns
    -------
    WorkerInfo or None

    Notes
    -----
    The rule is torch's. Where a dataset asks ``torch.utils.data.get_worker_info()``, that one
    answers the same.

    Examples
    --------
    >>> get_worker_info() is None
    True
    """
    return _current[0] if _current else None


def install(info: WorkerInfo) -> None:
    """Register this process as a worker, with torch too if it is loaded."""
    _current[:] = [info]
    tell_torch()


def tell_torch() -> None:
    """Make torch return the same worker info; do nothing if torch has not been imported."""
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    if worker is None or not _current or getattr(worker, "_worker_info", None) is not None:
        return
    info = _current[0]
    worker._worker_info = worker.WorkerInfo(  # noqa: SLF001 - where torch's own workers put it
        id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset
    )
