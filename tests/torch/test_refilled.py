"""A dataset that fills one NumPy buffer again and again gives the same batches with and without workers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.loader.dataloader.test_ownership import Refilled

pytest.importorskip("torch")
from tundish.torch import DataLoader


@pytest.mark.parametrize("workers", [0, 2])
def test_a_buffer_that_each_sample_fills(workers: int) -> None:
    loader: Any = DataLoader(Refilled(), 3, num_workers=workers)
    assert [batch[:, 0].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]
