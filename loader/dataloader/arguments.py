"""Checks of a `DataLoader`'s arguments: torch's, on numpy alone."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.context
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset


def is_dataset(value: Any) -> TypeGuard[Dataset]:
    """Return True for a `Dataset` of this library, without importing its module.

    If the module is not loaded the value cannot be one, and a loader of samples does not need the module.
    """
    module = sys.modules.get("tundish.loader.dataset")
    return isinstance(value, getattr(module, "Dataset", ()))


def is_iterable(dataset: Any) -> bool:
    """Return True if a dataset is iterable, not map-style.

    Parameters
    ----------
    dataset : object
        Torch's `IterableDataset` is iterable; any other is if it has no ``__getitem__``.
    """
    torch: Any = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(dataset, torch.Dataset):
        return isinstance(dataset, torch.IterableDataset)
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def check_counts(
    num_workers: int, timeout: float, prefetch_factor: int | None, *, persistent_workers: bool
) -> int | None:
    """Check numeric arguments; return the prefetch factor, 2 by default if there are workers."""
    if num_workers < 0:
        raise ValueError(
            f"num_workers must not be negative: {num_workers}; 0 makes batches in this process"
        )
    if timeout < 0:
        raise ValueError(f"timeout must not be negative: {timeout}")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor needs num_workers > 0: nothing is fetched ahead here")
    if num_workers > 0 and prefetch_factor is None:
        prefetch_factor = 2
    elif prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError(f"prefetch_factor must not be negative: {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers needs num_workers > 0")
    return prefetch_factor


def check_order(
    *,
    iterable: bool,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Iterable[Any] | None,
    batch_sampler: Iterable[Any] | None,
    drop_last: bool,
) -> None:
    """Check that exactly one argument determines the order of samples."""
    if iterable:
        if shuffle not in {False, None}:
            raise ValueError(
                f"an iterable dataset has its own order: shuffle={shuffle} is not for it"
            )
        for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if value is not None:
                raise ValueError(f"an iterable dataset has its own order: it takes no {name}")
    if sampler is not None and shuffle:
        raise ValueError("sampler and shuffle are mutually exclusive: a sampler sets the order")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler is mutually exclusive with batch_size, shuffle, sampler and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError("drop_last needs batches, but batch_size=None makes none")


def check_for_elements(worker_init_fn: Any, generator: Any, rng_compat: str) -> None:
    """Check arguments that a `Dataset` has no use for, since its own methods and options say it.

    Raises
    ------
    ValueError
        One is given.
    """
    given = {
        "worker_init_fn": (worker_init_fn, "with_options(td.Options(worker_init=...)) sets it"),
        "generator": (generator, "shuffle(seed=), map(seed=) and td.set_seed seed what it draws"),
        "rng_compat": (rng_compat == "torch" or None, "map(function, seed=) gives rng="),
    }
    for name, (value, instead) in given.items():
        if value is not None:
            raise ValueError(f"a td.Dataset takes no {name}: {instead}")


def check_context(context: Any, num_workers: int) -> Any:
    """Check a multiprocessing context, as torch does."""
    if context is None:
        return None
    if num_workers == 0:
        raise ValueError(
            f"multiprocessing_context needs num_workers > 0, not num_workers={num_workers}"
        )
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(f"multiprocessing_context must be one of {methods}, not {context!r}")
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            f"multiprocessing_context must be a context or the name of one, not {context!r}"
        )
    return context


def asked_start(context: Any) -> str | None:
    """Return the start method that a multiprocessing context implies: ``fork``, or None for the default.

    Parameters
    ----------
    context : multiprocessing.context.BaseContext or None
        With ``spawn`` and ``forkserver``, workers get only what they are sent, as with the default
        start method.
    """
    if context is None or context.get_start_method(allow_none=True) != "fork":
        return None
    return "fork"


def warn_of_workers(num_workers: int) -> None:
    """Warn of more workers than cores, as torch does."""
    cores = usable_cores()
    if num_workers > cores:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total, and this "
            f"process may use {cores} cores: more workers than cores often make it slower.",
            stacklevel=4,
        )


def length_of(dataset: Any, batch_size: int | None, *, drop_last: bool) -> int:
    """Return an iterable dataset's length in batches."""
    length = len(dataset)
    if batch_size is None:
        return length
    return length // batch_size if drop_last else math.ceil(length / batch_size)
