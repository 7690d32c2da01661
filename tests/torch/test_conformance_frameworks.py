"""Beyond the forty: pinning, pickling, and the frameworks that ask what a loader is."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
from tests.torch.datasets import Numbers
from tests.torch.faces import OURS, Face, numbers

torch = pytest.importorskip("torch")


def test_an_iterator_is_not_pickled(face: Face) -> None:
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(face(Numbers(4))))
    iterator = iter(face(Numbers(4), num_workers=1))
    with pytest.raises(NotImplementedError):
        pickle.dumps(iterator)
    assert len(list(iterator)) == 4


def test_a_loader_may_be_pickled(face: Face) -> None:
    loader = pickle.loads(pickle.dumps(face(Numbers(5), batch_size=2, num_workers=1)))

    assert numbers(loader) == [0, 1, 2, 3, 4]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is something to pin for")
@pytest.mark.parametrize("workers", [0, 1])
def test_pinning_without_an_accelerator_is_warned_of(torch_face: Face, workers: int) -> None:
    loader = torch_face(Numbers(4), pin_memory=True, num_workers=workers)

    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator"):
        iterator = iter(loader)
    assert len(list(iterator)) == 4


def test_the_device_to_pin_for_is_warned_of(torch_face: Face) -> None:
    loader = torch_face(Numbers(4), pin_memory=True, pin_memory_device="cuda")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(loader)
    assert any("pin_memory_device is deprecated" in str(each.message) for each in caught)


def test_it_is_a_loader_of_torchs() -> None:
    from torch.utils.data import DataLoader

    assert issubclass(OURS.loader, DataLoader)
    assert isinstance(OURS(Numbers(3)), DataLoader)
    assert OURS.loader.__name__ == "DataLoader"
    assert pickle.loads(pickle.dumps(OURS.loader)) is OURS.loader
    DataLoader[int]  # a type that is generic in its batches
    assert OURS.loader[int] is not None


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_tensors_that_can_be_written_to(workers: int) -> None:
    for size in (1, 30_000):
        samples = [torch.full((size,), index) for index in range(4)]
        for batch in OURS(samples, batch_size=2, num_workers=workers):
            assert type(batch) is torch.Tensor
            assert batch.is_contiguous()
            before = batch.clone()
            batch.add_(1)
            assert torch.equal(batch, before + 1)


def test_accelerate_prepares_it(torch_face: Face) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = torch_face(Numbers(10), batch_size=3, shuffle=True, num_workers=1)
    prepared: Any = accelerator.prepare(loader)

    assert isinstance(prepared, torch.utils.data.DataLoader)
    assert sorted(numbers(prepared)) == list(range(10))
    assert len(numbers(accelerate.skip_first_batches(prepared, 2))) == 4


def test_lightning_takes_it(torch_face: Face) -> None:
    data = pytest.importorskip("lightning.fabric.utilities.data")
    loader = torch_face(Numbers(10), batch_size=3, num_workers=1)
    again = data._update_dataloader(loader, torch.utils.data.SequentialSampler(range(4)))

    assert type(again) is torch_face.loader
    assert numbers(again) == [0, 1, 2, 3]
    assert data.has_iterable_dataset(loader) is False
    assert data.sized_len(loader) == 4


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, tundish; tundish.DataLoader; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lightning_keeps_the_device_to_pin_for(torch_face: Face) -> None:
    data = pytest.importorskip("lightning.fabric.utilities.data")
    sampler = torch.utils.data.SequentialSampler(Numbers(6))
    for device in ("cuda:1", ""):
        loader = torch_face(Numbers(6), batch_size=2, pin_memory_device=device)
        assert data._update_dataloader(loader, sampler).pin_memory_device == device
        assert type(vars(loader)["pin_memory_device"]) is str, "it carries no loader along"
