"""Collections do not look at what a worker is given: neither while it arrives nor later."""

from __future__ import annotations

import gc
from typing import Any

from tests.loader.dataloader.datasets import Numbers

import tundish as td


class Telling(Numbers):
    """A dataset whose samples tell whether collections run, and whether they look at the dataset's rows."""

    def __init__(self) -> None:
        super().__init__(4)
        self.rows = [[each] for each in range(1000)]

    def __getitem__(self, index: int) -> Any:
        return gc.isenabled(), any(each is self.rows for each in gc.get_objects())


def test_a_dataset_is_frozen_in_workers_and_collections_run() -> None:
    (batch,) = td.DataLoader(Telling(), 4, num_workers=1)
    assert [column.tolist() for column in batch] == [[True] * 4, [False] * 4]
