"""Messages larger than a packet: numbers of a large batch's elements, layouts, errors, rows without a slot."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import DataLoader, Dataset, Options, TextLineDataset
from tundish.errors import SharedMemoryError
from tundish.loader.run.coordinating.store import shared_ring

LONG = 400_000


def doubled(x: Any) -> Any:
    return x * 2


def wide(x: Any) -> dict[str, Any]:
    return {f"a column with number {k}": np.float32(x + k) for k in range(8_000)}


def row(x: Any) -> Any:
    return np.full(1 << 16, x, np.float32)


def text(x: Any) -> str:
    return f"{x}" * LONG


def refuse() -> None:
    raise RuntimeError("no database " * (LONG // 12))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_numbers_of_a_large_batch(workers: int) -> None:
    ds = Dataset.range(3 * LONG).shuffle(None, seed=1).map(doubled).batch(LONG)
    want = [batch.tolist() for batch in ds.iterator(workers=0, iteration=0)]
    with ds.iterator(workers=workers, iteration=0) as it:
        assert [batch.tolist() for batch in it] == want
        assert not it.stats.restarts


def test_a_layout_of_thousands_of_columns() -> None:
    with Dataset.range(4).map(wide).batch(2).iterator(workers=2) as it:
        batches = list(it)
        assert not it.stats.restarts
    assert [len(batch) for batch in batches] == [8_000, 8_000]
    assert batches[1]["a column with number 7999"].tolist() == [8001.0, 8002.0]


def test_an_error_of_worker_init() -> None:
    ds = Dataset.range(4).map(doubled).with_options(Options(workers=1, worker_init=refuse))
    with iter(ds) as it, pytest.raises(RuntimeError, match="no database") as caught:
        next(it)
    assert len(str(caught.value)) > LONG // 2


@pytest.fixture
def no_slots() -> Iterator[None]:
    """Takes every slot of this process, as those who hold a thousand batches do."""
    ring = shared_ring()
    assert ring is not None
    held = []
    while (slot := ring.acquire()) is not None:
        held.append(slot)
    yield
    for slot in held:
        ring.release(slot)


def outcomes(it: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            element = next(it)
        except StopIteration:
            return found
        except SharedMemoryError as error:
            found.append("none" if "every slot is in use" in str(error) else error)
        else:
            found.append(element if isinstance(element, str) else np.asarray(element).sum().item())


@pytest.mark.parametrize(
    ("ds", "want"),
    [
        (Dataset.range(6).map(doubled).batch(2), [2, 10, 18]),
        (Dataset.range(6).map(row).batch(2), ["none"] * 6),
        (Dataset.range(2).map(text), ["none"] * 2),
        (Dataset.range(2).map(text).batch(2), ["none"] * 2),
        (Dataset.range(2).flat_map(lambda x: Dataset.range(2).map(row)), ["none"] * 4),
    ],
    ids=["numbers", "batches", "texts", "batch of texts", "inner"],
)
def test_where_every_slot_is_taken(ds: Dataset, want: list[Any], no_slots: None) -> None:
    """Rows that fit into a message are delivered; in the place of others there is an error."""
    with ds.iterator(workers=2) as it:
        assert outcomes(it) == want
        assert not it.stats.restarts


def test_where_every_slot_is_taken_from_a_loader(no_slots: None) -> None:
    loader = DataLoader([row(x) for x in range(4)], batch_size=2, num_workers=1)
    assert outcomes(iter(loader)) == ["none"] * 2


def test_a_record_beyond_the_budget_is_an_error_and_the_next_ones_come(tmp_path: Path) -> None:
    lines = [str(n) * (2_000_000 if n == 3 else 3) for n in range(6)]
    file = tmp_path / "lines.gz"
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    ds = TextLineDataset([str(file)], "GZIP", num_parallel_reads=1)
    with ds.with_options(Options(workers=1, memory_budget="1MB")).iterator() as it:
        found = []
        while True:
            try:
                found.append(next(it)[:3])
            except StopIteration:
                break
            except SharedMemoryError as error:
                found.append(error.available)
    assert found == [b"000", b"111", b"222", 10**6, b"444", b"555"]
