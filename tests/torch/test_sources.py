"""Torch's map-style datasets as sources of a `Dataset`, with their batched reads."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.datasets import Numbers  # noqa: E402 - behind the skip

import tundish as td  # noqa: E402


@pytest.mark.parametrize(
    "source",
    [
        torch.utils.data.Subset(Numbers(50), list(range(49, -1, -1))),
        torch.utils.data.Subset(torch.utils.data.Subset(Numbers(50), range(50)), [3, 1, 4, 1, 5]),
        torch.utils.data.ConcatDataset([Numbers(20), Numbers(7)]),
    ],
    ids=["subset", "subset of a subset", "concatenated"],
)
def test_workers_do_not_show(source: Any) -> None:
    ds = td.Dataset.from_source(source).shuffle(None, seed=1).batch(4)
    plain = [[int(x) for x in batch] for batch in ds.iterator(workers=0)]

    assert [[int(x) for x in batch] for batch in ds.iterator(workers=2)] == plain
    assert sorted(x for batch in plain for x in batch) == sorted(
        source[k] for k in range(len(source))
    )
