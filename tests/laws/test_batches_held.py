"""Law 6: a batch you hold is yours."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tests.laws import functions

from tundish import Dataset, Options
from tundish.testing.compare import digest


@pytest.mark.parametrize("budget", ["16MB", None])
@pytest.mark.parametrize("workers", [0, 2])
def test_held_batches_never_change(workers: int, budget: str | None) -> None:
    options = Options(memory_budget=budget)
    ds = Dataset.range(120).map(functions.megabyte).batch(2).with_options(options)
    held, seen = [], []
    with ds.iterator(workers=workers) as it:
        for batch in it:
            held.append(batch)
            seen.append(digest(batch))

    assert [digest(batch) for batch in held] == seen
    assert len(set(seen)) == 60


def test_views_hold_their_batch() -> None:
    """Slices, transposes and reversals made from a batch stay good when the batch is dropped."""
    views, copies = [], []
    ds = Dataset.range(60).map(functions.megabyte).batch(2)
    with ds.iterator(workers=2) as it:
        for batch in it:
            for view in (batch[1:], batch.T[5:9], batch[::-1, ::7], memoryview(batch[0])):
                views.append(view)
                copies.append(np.array(view))
            del batch, view

    assert all(np.array_equal(view, copy) for view, copy in zip(views, copies, strict=True))


def test_a_batch_outlives_its_iterator_and_its_dataset() -> None:
    ds = Dataset.range(8).map(functions.megabyte).batch(4)
    it = ds.iterator(workers=2)
    batch = next(it)
    before = digest(batch)
    it.close()
    del it, ds
    gc.collect()
    with Dataset.range(40, 80).map(functions.megabyte).batch(4).iterator(workers=2) as other:
        for _ in other:
            assert digest(batch) == before


def test_a_batch_may_be_written_to() -> None:
    ds = Dataset.range(80).map(functions.megabyte).batch(2)
    with ds.iterator(workers=2) as it:
        for i, batch in enumerate(it):
            assert batch[0, 0] == 2 * i % 251
            batch[:] = 255


@pytest.mark.slow
def test_ten_thousand_labels_pin_nothing() -> None:
    """A small array kept of each batch does not keep the batch."""
    ds = Dataset.range(10_000).map(functions.labelled).batch(1)
    with ds.with_options(Options(memory_budget="32MB")).iterator(workers=2) as it:
        labels = [batch["label"] for batch in it]

    assert all((label == i).all() for i, label in enumerate(labels))


def test_the_source_is_never_changed() -> None:
    """Elements of a source array are the consumer's own."""
    array = np.arange(20.0).reshape(10, 2)
    for workers in (0, 2):
        with Dataset.from_tensor_slices(array).iterator(workers=workers) as it:
            for row in it:
                row[:] = -1
    with Dataset.from_tensors({"a": array}).iterator(workers=0) as it:
        next(it)["a"][:] = -1

    assert np.array_equal(array, np.arange(20.0).reshape(10, 2))
