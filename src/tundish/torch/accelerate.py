"""`prepare`: what ``accelerator.prepare`` does, under the name that it had before it needed no help."""

from __future__ import annotations

from typing import Any

from tundish.torch.adoption import adopt
from tundish.torch.dataloader import DataLoader

__all__ = ["prepare"]


def prepare(accelerator: Any, *objects: Any, **options: Any) -> Any:
    """Call ``accelerator.prepare(*objects)`` and keep our loaders ours.

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
    ``accelerator.prepare`` itself does the same: its wrapper (sharding, device, gradient accumulation)
    is around a loader of ours with the same arguments. Its state is written by
    ``accelerator.save_state`` and read by ``load_state``; it is that of the last batch the loop was
    given, though Accelerate is one ahead.

    Examples
    --------
    ::

        loader = tundish.torch.DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    """
    adopt(DataLoader)
    return accelerator.prepare(*objects, **options)
