"""The number of batches by which Lightning is ahead of its loop when it asks a loader for its state.

Lightning asks with a bare ``loader.state_dict()``. But it does not end an epoch by exhausting the
iterator; where a loader has no length it holds one batch more than the training step has seen; and if a
step fails, or Slurm's signal comes during it, the checkpoint is of the model before that step.
All this is known to its fit loop only, which is among the callers.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_ASKS = "_state_dicts"  # a method of the combined loader, called by the fit loop
_FRAMES = 8


def fetched_ahead() -> tuple[int, bool] | None:
    """Return how far Lightning's fit loop is ahead of training, if it is the caller.

    Returns
    -------
    (int, bool) or None
        The number of batches taken that no training step has ended with; and whether one has ended with
        the epoch's last batch. None if the caller is not Lightning.

    Raises
    ------
    RuntimeError
        The caller is an unknown version of Lightning: a state might include batches that no step has seen.
    """
    if not any(name in sys.modules for name in _PACKAGES):
        return None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the public `inspect` is slow
    asked = False
    for _ in range(_FRAMES):
        if frame is None:
            break
        asked = asked or (frame.f_code.co_name == _ASKS and _is_lightning(frame))
        loop = frame.f_locals.get("self") if asked else None
        if hasattr(loop, "_data_fetcher") and hasattr(loop, "epoch_loop"):
            return _ahead_of(loop)
        frame = frame.f_back
    if asked:
        raise RuntimeError(
            "this version of Lightning asks for a DataLoader's state in a way that tundish does not "
            "know (2.6 is known): the state could be of a batch that no training step has seen"
        )
    return None


def _is_lightning(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_PACKAGES)


def _ahead_of(loop: Any) -> tuple[int, bool]:
    fetcher, progress = loop._data_fetcher, loop.epoch_loop.batch_progress  # noqa: SLF001 - see above
    ahead = progress.current.ready - progress.current.processed
    if hasattr(fetcher, "batches"):
        # One that it gives while it waits for another is in no list. But before a resumed epoch
        # begins, its count lacks what earlier processes have fetched.
        ahead = max(ahead + len(fetcher.batches), fetcher.fetched - progress.current.processed)
    return ahead, bool(progress.is_last_batch) and not ahead
