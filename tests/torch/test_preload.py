"""Torch is in workers only if the dataset needs it, set up as a worker's: one thread, no device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.torchdatasets import Filled  # noqa: E402 - torch first

from tundish.torch import DataLoader  # noqa: E402

ROOT = Path(__file__).parents[2]


class TellingTorch(Filled):
    """The same, from a module that imports torch."""

    def __getitem__(self, index: int) -> Any:
        found = sys.modules["torch"]
        hidden = os.environ["CUDA_VISIBLE_DEVICES"] == "" and not found.cuda.is_available()
        return found.get_num_threads(), int(hidden)


PROGRAM = """
import torch
from tests.loader.dataloader.datasets import Loaded
from tundish.torch import DataLoader
(batch,) = DataLoader(Loaded("torch"), 4, num_workers=1)
print(type(batch).__name__, batch.tolist())
"""


def test_without_need_there_is_no_torch() -> None:
    """A process of its own is looked at: workers of this one may have torch from another test."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "Tensor [0, 0, 0, 0]\n"


DRAWING = """
import sys
from tests.loader.dataloader.datasets import DrawingLate
from tundish import DataLoader, TorchGenerator
loader = DataLoader(DrawingLate(6), 2, num_workers=int(sys.argv[1]), generator=TorchGenerator(1))
print([batch.tolist() for batch in loader])
"""


def test_torch_that_comes_in_the_middle_of_a_batch_is_seeded() -> None:
    """A sample may be the first to import it: with and without workers."""
    told = {
        subprocess.run(
            [sys.executable, "-c", DRAWING, workers],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for workers in ("0", "1", "2")
    }
    assert len(told) == 1


def test_with_need_it_is_a_workers() -> None:
    loader: Any = DataLoader(TellingTorch(8), 4, num_workers=2)
    for threads, hidden in loader:
        assert threads.tolist() == [1, 1, 1, 1]
        assert hidden.tolist() == [1, 1, 1, 1]
