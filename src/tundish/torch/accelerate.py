"""`prepare`: Hugging Face Accelerate around our DataLoader instead of torch's."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch.utils.data

from tundish.torch.dataloader import DataLoader

__all__ = ["prepare"]

_KEPT = (
    "dataset",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)


def prepare(accelerator: Any, *objects: Any, **options: Any) -> Any:
    """``accelerator.prepare(*objects)``, after which our loaders are still ours.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
        Prepares all objects as it always does.
    *objects
        Models, optimizers, schedulers, loaders.
    **options
        For ``accelerator.prepare``.

    Returns
    -------
    object or tuple
        What ``accelerator.prepare`` returns.

    Notes
    -----
    Accelerate gives every loader's dataset and sampler to a new one of torch's own class: the order
    and the batches stay, our workers do not. Here its wrapper (sharding, device, gradient
    accumulation) is kept, and the loader inside is replaced by one of ours with the same arguments.
    Its state is written by ``accelerator.save_state`` and read by ``load_state``; it is that of the
    last batch the loop was given, though Accelerate is one ahead.

    Examples
    --------
    ::

        loader = tundish.torch.DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
        model, optimizer, loader = tundish.torch.prepare(accelerator, model, optimizer, loader)
    """
    found = accelerator.prepare(*objects, **options)
    prepared = found if len(objects) > 1 else (found,)
    for before, after in zip(objects, prepared, strict=True):
        if isinstance(before, DataLoader) and after is not before:
            _keep(before, _wrapper(after))
    return found


def _wrapper(prepared: Any) -> Any:
    """Accelerate's own wrapper; on a TPU there is another one around it."""
    return prepared if hasattr(prepared, "base_dataloader") else prepared.dataloader


def _keep(loader: DataLoader[Any], wrapper: Any) -> None:
    base = wrapper.base_dataloader
    ours: DataLoader[Any] = DataLoader(
        **{name: getattr(base, name) for name in _KEPT},
        **_order(base),
        rng_compat=loader.rng_compat,
    )
    wrapper.base_dataloader = ours
    wrapper.dl_state_dict = ours.state_dict()
    # What save_state and load_state ask for. Of a dispatcher only the first process iterates.
    dispatches = hasattr(wrapper, "split_batches")
    wrapper.use_stateful_dataloader = not dispatches or wrapper.state.process_index == 0
    if dispatches and not (wrapper.split_batches or wrapper.submesh_tp):
        _step_back(wrapper, wrapper.state.num_processes)


def _order(base: Any) -> dict[str, Any]:
    """The arguments of a loader that say what comes when."""
    if isinstance(base.dataset, torch.utils.data.IterableDataset):
        return {"batch_size": base.batch_size, "drop_last": base.drop_last}
    if base.batch_sampler is not None:
        return {"batch_sampler": base.batch_sampler}
    return {"batch_size": None, "sampler": base.sampler}


def _step_back(wrapper: Any, count: int) -> None:
    """Let a dispatcher's state be the one before the group of batches that it has ahead.

    It takes one batch for each process, asks for the state before each of them, and gives out the
    group before: the right state is the one of `count` - 1 questions ago.
    """
    asked: deque[Any] = deque(maxlen=count)

    def adjust() -> None:
        if wrapper.end_of_dataloader:
            asked.clear()
            return
        asked.append(wrapper.dl_state_dict)
        wrapper.dl_state_dict = asked[0]

    wrapper.adjust_state_dict_for_prefetch = adjust
