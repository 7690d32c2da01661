"""Settings of torch, and of what is installed beside it, hold in workers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tests.settings import ROWS, Observed, changed

from tundish import Dataset
from tundish.loader.run.starting.settings import values_now
from tundish.torch import DataLoader

NAMES = [name for name, row in ROWS.items() if row.module in ("torch", "pandas", "sklearn")]


@pytest.mark.parametrize("workers", [1, 2])
def test_settings_hold(workers: int) -> None:
    with changed(NAMES):
        dataset: Any = Observed(NAMES)
        expected = list(DataLoader(dataset, collate_fn=list))
        assert list(DataLoader(dataset, num_workers=workers, collate_fn=list)) == expected
        ds = Dataset.range(2).map(dataset)
        assert list(ds.iterator(workers=workers)) == list(ds.iterator(workers=0))


class Fractions(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.ones(2) / (index + 3)


def test_samples_have_the_default_dtype() -> None:
    with changed(["torch.set_default_dtype"]):
        expected = list(DataLoader(Fractions(), batch_size=2))
        found = list(DataLoader(Fractions(), batch_size=2, num_workers=2))
    assert {batch.dtype for batch in found} == {torch.float64}
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_without_gradients() -> None:
    weight = torch.ones(1, requires_grad=True)
    with torch.no_grad():
        (batch,) = DataLoader([0.5], num_workers=1, collate_fn=Weighing(weight))
    assert batch.tolist() == [0.5]


class Weighing:
    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, samples: list[float]) -> Any:
        return self.weight * torch.tensor(samples)


def test_reading_them_warns_of_nothing() -> None:
    pytest.importorskip("pandas")  # of whose options some are deprecated
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert "pandas.set_option" in values_now()
    assert [str(warning.message) for warning in told] == []


@pytest.mark.parametrize("workers", [0, 1])
def test_seeds_are_drawn_on_the_cpu_whatever_the_default_device(workers: int) -> None:
    with torch.device("meta"):  # a program names its accelerator here
        batches = list(DataLoader([0.5, 1.5], batch_size=2, num_workers=workers))
    assert [batch.tolist() for batch in batches] == [[0.5, 1.5]]
