"""Page-locked batches: slots are registered with CUDA's driver once, not copied batch by batch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from tundish.loader.run.store import shared_ring
from tundish.shm.budget import default_budget
from tundish.shm.pinned import Mark, PinnedSlots

__all__ = ["CudaDriver", "Pinning", "pinning"]

_POOL = 32
"""How many streams of a priority torch hands out in turn, before it begins again."""


class CudaDriver:
    """CUDA's driver, through torch.

    Marks are put on every stream that torch can hand out and that has something to do: the
    default ones, the current ones and those of its pools. A stream that was made by another
    library is not known; synchronise it before you drop a pinned batch.
    """

    def __init__(self) -> None:
        self._runtime: Any = torch.cuda.cudart()
        self._streams: list[Any] = []

    def register(self, address: int, nbytes: int) -> bool:
        """Lock a range of memory for all devices."""
        return int(self._runtime.cudaHostRegister(address, nbytes, 1)) == 0  # 1: portable

    def unregister(self, address: int) -> None:
        """Let go of a range."""
        self._runtime.cudaHostUnregister(address)

    def mark(self) -> list[Mark]:
        """Events on all streams that are not idle."""
        if not self._streams:
            self._streams = list(_all_streams())
        current = [torch.cuda.current_stream(d) for d in range(torch.cuda.device_count())]
        return [_Event(s) for s in {*self._streams, *current} if not s.query()]


class _Event:
    """A mark on a stream."""

    def __init__(self, stream: Any) -> None:
        self._event = stream.record_event()

    def passed(self) -> bool:
        """Whether everything before it is done."""
        return bool(self._event.query())


def _all_streams() -> set[Any]:
    """Every stream torch can hand out, by asking for so many that it begins again."""
    found = set()
    for device in range(torch.cuda.device_count()):
        found.add(torch.cuda.default_stream(device))
        least, greatest = torch.cuda.Stream.priority_range()
        for priority, _ in itertools.product(range(greatest, least + 1), range(_POOL)):
            found.add(torch.cuda.Stream(device, priority=priority))
    return found


class Pinning:
    """What `pin_memory` does to a loader's batches.

    Parameters
    ----------
    slots : PinnedSlots or None
        Where batches that lie in shared memory are registered; None where there is none.
    pin : callable
        Pins what is not: small leaves and batches made in this process, by a copy; a batch type's
        own ``pin_memory`` is called.
    """

    def __init__(self, slots: PinnedSlots | None, pin: Callable[[Any], Any] = pin_memory) -> None:
        self._slots, self._pin = slots, pin

    def lend(self, slot: int, nbytes: int) -> None:
        """Have a slot registered, before it is delivered."""
        slots = self._slots
        if slots is not None and not slots.refused and not slots.lend(slot, nbytes):
            warnings.warn(
                "the driver registers no shared memory here: batches are pinned by a copy",
                RuntimeWarning,
                stacklevel=2,
            )

    def __call__(self, batch: Any) -> Any:
        """A batch whose tensors are all pinned."""
        return self._pin(batch)


def pinning(device: str) -> Pinning | None:
    """What pins batches here; None, with a warning, where there is no device to pin them for.

    Parameters
    ----------
    device : str
        Torch's ``pin_memory_device``, which is deprecated.
    """
    if device:
        warnings.warn(
            f"pin_memory_device is deprecated: {device!r} is ignored, the current accelerator counts",
            stacklevel=4,
        )
    if not torch.accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, so batches are "
            "not pinned.",
            stacklevel=4,
        )
        return None
    if not torch.cuda.is_available():
        return Pinning(None)
    ring = shared_ring(default_budget().nbytes)
    if ring is None:
        return Pinning(None)
    if ring.pinned is None:
        ring.pinned = PinnedSlots(ring.arena, CudaDriver())
    return Pinning(ring.pinned)
