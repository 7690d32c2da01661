"""Tensors over a host process's views: they are writable, and what is written nobody else sees."""

from __future__ import annotations

import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.hosted import host_pids
from tests.service.waiting import until

import tundish as td

torch = pytest.importorskip("torch")

SIDE, BATCHES = 160, 12


def filled(i: Any) -> Any:
    return np.full((SIDE, SIDE, 4), i, np.float32)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[td.Dataset]:
    """Batches of 1.6 MB in shared memory, and so few slots that each is used again."""
    folder = Path(tempfile.mkdtemp(prefix="td-host-"))
    monkeypatch.setenv("TUNDISH_RUNTIME_DIR", str(folder / "run"))
    ds = td.Dataset.range(4 * BATCHES).map(filled, num_parallel_calls=1).batch(4)
    yield td.service.host(ds, name="tensors", window="4 MB", consumers=2, linger=0.0)
    until(lambda: not host_pids(folder / "run"), "a host process is left")
    shutil.rmtree(folder)


def in_place(tensor: Any) -> None:
    tensor.mul_(2).add_(1)


def by_out(tensor: Any) -> None:
    torch.neg(tensor, out=tensor)


def by_a_thread(tensor: Any) -> None:
    thread = threading.Thread(target=in_place, args=(tensor,))
    thread.start()
    thread.join()


def by_numpy(tensor: Any) -> None:
    tensor.numpy()[:] = -1


@pytest.mark.parametrize("step", [in_place, by_out, by_a_thread, by_numpy])
@pytest.mark.filterwarnings("error")
def test_a_step_in_place_neither_warns_nor_changes_what_another_reads(
    shared: td.Dataset, step: Any
) -> None:
    torch.set_warn_always(True)  # each time, not once in a process
    try:
        with iter(shared) as writing, iter(shared) as reading, warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(BATCHES):
                expected = np.arange(4 * number, 4 * number + 4, dtype=np.float32)
                batch, other = next(writing), next(reading)
                tensor = torch.from_numpy(batch)
                assert tensor.data_ptr() == batch.ctypes.data
                assert (batch == expected[:, None, None, None]).all()
                step(tensor)
                assert (
                    torch.from_numpy(other) == torch.from_numpy(expected)[:, None, None, None]
                ).all()
                del batch, other, tensor
    finally:
        torch.set_warn_always(False)


def test_a_gradient_step_over_a_view_works(shared: td.Dataset) -> None:
    with iter(shared) as writing, iter(shared) as reading:
        kept = torch.from_numpy(next(writing)).requires_grad_()
        kept.sum().backward()
        with torch.no_grad():
            kept -= 0.5 * kept.grad
        assert kept[0, 0, 0, 0].item() == -0.5
        assert next(reading)[0, 0, 0, 0] == 0.0
