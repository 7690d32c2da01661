"""`get_worker_info`: which worker of a `DataLoader` this process is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "get_worker_info", "install"]


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker this process is.

    Attributes
    ----------
    id : int
        From 0 to ``num_workers - 1``; a worker that died hands it on to the one in its place.
    num_workers : int
        How many there are.
    seed : int
        The loader's base seed plus `id`.
    dataset : object
        This process's copy.
    rng, worker_method
        For torch's sake: None, and "multiprocessing".
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_current: list[WorkerInfo] = []


def get_worker_info() -> WorkerInfo | None:
    """Which worker this process is; None outside the workers of a `DataLoader`.

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
    """Make this process known as a worker, to torch too if it is there."""
    _current[:] = [info]
    tell_torch()


def tell_torch() -> None:
    """Let torch know what `get_worker_info` says, as soon as it has been imported."""
    worker: Any = sys.modules.get("torch.utils.data._utils.worker")
    if worker is None or not _current or getattr(worker, "_worker_info", None) is not None:
        return
    info = _current[0]
    worker._worker_info = worker.WorkerInfo(  # noqa: SLF001 - where torch's own workers put it
        id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset
    )
