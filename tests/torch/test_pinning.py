"""Pinned batches: slots are registered once, and a copy that is under way reads the bytes it was asked for."""

from __future__ import annotations

import gc
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.torchdatasets import Filled  # noqa: E402 - torch first

import tundish.torch.dataloader as home  # noqa: E402
from tundish.loader.run.coordinating.store import shared_ring  # noqa: E402
from tundish.shm.pinned import PinnedSlots  # noqa: E402
from tundish.torch import DataLoader  # noqa: E402
from tundish.torch.device import Pinning, pinning  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.shm.pinned import DeviceMark

BATCH = 8


class Copy:
    """A copy to a device that has been asked for, and runs some time later."""

    def __init__(self, source: Any) -> None:
        self.values = source.numpy().__array_interface__["data"][0]
        self.nbytes = source.nbytes
        self.shape, self.expected = source.shape, float(source[0, 0])
        self.done = False

    def run(self) -> None:
        """Read the memory, whoever has it now."""
        import ctypes

        data = ctypes.string_at(self.values, self.nbytes)
        found = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(self.shape)
        assert bool((found[0] == self.expected).all()), "the slot was written while it was read"
        self.done = True

    def passed(self) -> bool:
        return self.done


class Device:
    """A driver and its only queue."""

    def __init__(self) -> None:
        self.queue: deque[Copy] = deque()
        self.registered: dict[int, int] = {}
        self.calls = 0

    def register(self, address: int, nbytes: int) -> bool:
        self.registered[address] = nbytes
        self.calls += 1
        return True

    def unregister(self, address: int) -> None:
        del self.registered[address]

    def mark(self) -> list[DeviceMark]:
        return [self.queue[-1]] if self.queue else []

    def holds(self, tensor: Any) -> bool:
        at = tensor.data_ptr()
        return any(
            first <= at and at + tensor.nbytes <= first + nbytes
            for first, nbytes in self.registered.items()
        )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    ring = shared_ring()
    assert ring is not None
    found = Device()
    slots = PinnedSlots(ring.arena, found)
    monkeypatch.setattr(ring, "pinned", slots)
    monkeypatch.setattr(home, "pinning", lambda _: Pinning(slots, pin=lambda batch: batch))
    yield found
    found.queue.clear()
    gc.collect()


def test_copies_in_flight_keep_their_slots(device: Device) -> None:
    loader: Any = DataLoader(Filled(400), BATCH, num_workers=2, pin_memory=True)
    for number, batch in enumerate(loader):
        assert device.holds(batch), "it lies in registered memory"
        device.queue.append(Copy(batch))
        del batch  # the copy goes on
        if len(device.queue) > 6:
            device.queue.popleft().run()
        assert number < 50
    while device.queue:
        device.queue.popleft().run()
    assert device.calls <= 16, "slots are registered, not batches"


def test_slots_are_used_again_when_copies_are_done(device: Device) -> None:
    loader: Any = DataLoader(Filled(400), BATCH, num_workers=2, pin_memory=True)
    for batch in loader:
        device.queue.append(Copy(batch))
        del batch
        device.queue.popleft().run()
    assert device.calls <= 12


def test_without_a_device_it_warns_and_goes_on() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    loader: Any = DataLoader(Filled(16), BATCH, num_workers=1, pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator"):
        iterator = iter(loader)
    assert len(list(iterator)) == 2
    with pytest.warns(UserWarning, match="no accelerator"):  # noqa: SIM117 - of two warnings
        with pytest.warns(UserWarning, match="is deprecated"):
            pinning("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    """The rows that arrive by copies waited for only in the end are those that were sent."""
    loader: Any = DataLoader(Filled(3200), BATCH, num_workers=2, pin_memory=True)
    arrived = []
    for batch in loader:
        assert batch.is_pinned()
        arrived.append(batch.to("cuda", non_blocking=True)[:, ::4096].clone())
    torch.cuda.synchronize()
    for number, rows in enumerate(arrived):
        assert rows[:, 0].tolist() == list(range(number * BATCH, (number + 1) * BATCH))
