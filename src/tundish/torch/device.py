"""`to_device`: copies batches to the device ahead of the loop, from page-locked slots."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from tundish.loader.run.coordinating.store import shared_ring
from tundish.nests import map_nest
from tundish.prefetching import Prefetcher
from tundish.shm.pinned import DeviceMark, PinnedSlots, offer_driver
from tundish.torch.iterable import as_tensors, moves_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_STREAMLESS = ("cpu", "meta", "mps")


def to_device(
    it: Iterable[Any], device: torch.device | str | int, depth: int = 2
) -> DeviceIterator:
    """Copy batches to a device ahead of the loop.

    Parameters
    ----------
    it : iterator or iterable
        An iterator of a `Dataset`, a DataLoader, or anything that yields batches. An iterable is iterated over
        once.
    device : torch.device, str or int
        The device that batches are copied to.
    depth : int
        The number of batches that are copied ahead of the loop.

    Returns
    -------
    DeviceIterator
        Yields the batches with their arrays and tensors on the device, in the same nests; a ``str``
        stays unchanged. If the source has a state, so has this, *after the last batch that the loop was given*.
        It also has ``close`` and ``with``.

    Notes
    -----
    On a device with streams, copies run on a separate stream. When a batch is delivered, the loop's current
    stream waits for its copy; the host never waits. Copies overlap with the loop's kernels if the host memory
    is pinned, as with ``DataLoader(pin_memory=True)``. A batch in host memory is kept until its copy has ended.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.torch import to_device
    >>> with to_device(iter(td.Dataset.range(4).batch(2)), "cpu") as batches:
    ...     first = next(batches)
    ...     state = batches.state_dict()
    >>> with to_device(iter(td.Dataset.range(4).batch(2)), "cpu") as batches:
    ...     batches.load_state_dict(state)
    ...     first, list(batches)
    (tensor([0, 1]), [tensor([2, 3])])
    """
    return DeviceIterator(it, torch.device(device), depth)


class DeviceIterator(Prefetcher):
    """Batches on a device; made by `to_device`."""

    def __init__(self, source: Iterable[Any], device: torch.device, depth: int) -> None:
        super().__init__(source, depth)
        self._lane = lane_to(device)
        # An iterator that is dropped without `close` may still have copies under way.
        weakref.finalize(self, self._lane.drain)

    def _begin(self, element: Any) -> Any:
        return self._lane.begin(element)

    def _finish(self, begun: Any) -> Any:
        return self._lane.finish(begun)

    def _drop(self) -> None:
        self._lane.drain()


def lane_to(device: torch.device) -> _ImmediateCopies | _Streamed:
    """The way to a device."""
    if device.type in _STREAMLESS:
        return _ImmediateCopies(device)
    return _Streamed(device, torch.get_device_module(device))


class _ImmediateCopies:
    """The copies are made when they are begun; to the CPU there is nothing to copy."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self, batch: Any) -> Any:
        """Begin to copy a batch, without waiting."""
        return move(batch, self._device)

    def finish(self, begun: Any) -> Any:
        """Make the current stream wait for the copy, and give the batch on the device."""
        return begun

    def drain(self) -> None:
        """Wait for all started copies."""


class _Streamed:
    """The copies run on a stream of their own.

    Parameters
    ----------
    device : torch.device
        The device, whose streams and events are used.
    module : module
        ``torch.cuda`` or the like: ``Stream``, ``stream``, ``current_stream``.
    """

    def __init__(self, device: torch.device, module: Any) -> None:
        self._device, self._module = device, module
        self._stream = module.Stream(device=device)
        # Batches that are being copied, with the event after each: the host's memory must not be reused.
        self._copying: deque[tuple[Any, Any]] = deque()

    def begin(self, batch: Any) -> tuple[Any, Any]:
        self._let_go()
        host = as_tensors(batch)
        with self._module.stream(self._stream):
            moved = move(host, self._device)
            event = self._stream.record_event()
        self._copying.append((event, host))
        return moved, event

    def finish(self, begun: tuple[Any, Any]) -> Any:
        moved, event = begun
        current = self._module.current_stream(self._device)
        current.wait_event(event)
        # The allocator counts this memory to the stream of the copies; it is used on another one.
        map_nest(lambda leaf: _used_on(current, leaf), moved, moves_itself)
        self._let_go()
        return moved

    def _let_go(self) -> None:
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()

    def drain(self) -> None:
        if self._copying:
            self._stream.synchronize()
            self._copying.clear()


def _used_on(stream: Any, leaf: Any) -> None:
    if hasattr(leaf, "record_stream"):
        leaf.record_stream(stream)


def move(batch: Any, device: torch.device) -> Any:
    """A nest with its arrays and tensors on a device.

    Parameters
    ----------
    batch : nest
        What has a method ``to`` (a tensor, a packed sequence, a batch class of the user's) is
        asked to move itself.
    device : torch.device
        The device that batches are copied to.
    """

    def one(leaf: Any) -> Any:
        if torch.is_tensor(leaf):
            return leaf.to(device, non_blocking=True)
        return leaf.to(device) if moves_itself(leaf) else leaf

    return map_nest(one, as_tensors(batch), moves_itself)


_POOL = 32
"""The number of streams of a priority that torch hands out in turn before it begins again."""


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

    def mark(self) -> list[DeviceMark]:
        """Events on all streams that are not idle."""
        if not self._streams:
            self._streams = list(_all_streams())
        current = [torch.cuda.current_stream(d) for d in range(torch.cuda.device_count())]
        return [_Event(s) for s in {*self._streams, *current} if not s.query()]


offer_driver(lambda: CudaDriver() if torch.cuda.is_available() else None)


class _Event:
    """A mark on a stream."""

    def __init__(self, stream: Any) -> None:
        self._event = stream.record_event()

    def passed(self) -> bool:
        """Return True if all work on the stream before the mark is done."""
        return bool(self._event.query())


def _all_streams() -> set[Any]:
    """Return every stream that torch can hand out, by requesting so many that they repeat."""
    found = set()
    for device in range(torch.cuda.device_count()):
        found.add(torch.cuda.default_stream(device))
        least, greatest = torch.cuda.Stream.priority_range()
        for priority, _ in itertools.product(range(greatest, least + 1), range(_POOL)):
            found.add(torch.cuda.Stream(device, priority=priority))
    return found


class Pinning:
    """The work of `pin_memory` on a loader's batches.

    Parameters
    ----------
    slots : PinnedSlots or None
        The slots that the driver has locked in memory; None if no batch is in shared memory.
    pin : callable
        Pins what is not: small leaves and batches made in this process, by a copy; a batch type's
        own ``pin_memory`` is called.
    """

    def __init__(self, slots: PinnedSlots | None, pin: Callable[[Any], Any] = pin_memory) -> None:
        self._slots, self._pin = slots, pin

    def lend(self, slot: int, nbytes: int) -> None:
        """Register a slot before a batch in it is delivered."""
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
    """Return the object that pins batches; None, with a warning, if there is no device to pin them for.

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
    ring = shared_ring()
    if ring is None:
        return Pinning(None)
    if ring.pinned is None:
        ring.pinned = PinnedSlots(ring.arena, CudaDriver())
    return Pinning(ring.pinned)
