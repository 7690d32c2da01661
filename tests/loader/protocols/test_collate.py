"""Batches that are filled row by row: their room, and what their errors say."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Self

import numpy as np
import pytest

from tundish import Dataset
from tundish.errors import SpecError
from tundish.loader.protocols import collate
from tundish.loader.protocols.collate import Collator


def test_a_batch_of_any_size_has_room_for_what_comes() -> None:
    rows = Dataset.range(20).map(lambda i: {"x": np.full(100, i), "name": f"{i}"})
    for dataset in (rows.batch(10**12), rows.batch(2).unbatch().batch(10**12)):
        (batch,) = dataset
        assert batch["x"].shape == (20, 100)
        assert batch["x"][:, 0].tolist() == list(range(20))
        assert batch["name"].tolist() == [f"{i}" for i in range(20)]
    (numbers,) = Dataset.range(20).batch(10**12)
    assert numbers.tolist() == list(range(20))


def test_a_batch_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collate, "_AT_FIRST", 24)
    batch = Collator(100)
    for k in range(10):
        batch.add((np.int64(k), np.full(2, k), f"{k}"))
        with pytest.raises(SpecError):
            batch.add((np.int64(k), np.full(3, k), f"{k}"))
    batch.add_columns((np.arange(10, 40), np.ones((30, 2), int), np.array(["x"] * 30, object)), 30)
    numbers, arrays, texts = batch.finish()
    assert numbers.tolist() == list(range(40))
    assert arrays[:11, 0].tolist() == [*range(10), 1]
    assert texts.tolist() == [*map(str, range(10)), *["x"] * 30]


def test_namedtuples_of_two_classes() -> None:
    pair: Any = namedtuple("Pair", "a b")  # type: ignore[name-match]  # noqa: PYI024 - one of two
    again: Any = namedtuple("Pair", "a b")  # type: ignore[name-match]  # noqa: PYI024
    with pytest.raises(SpecError, match=r"must be of one class, and these are of two classes"):
        list(Dataset.range(2).map(lambda i: {"x": (pair, again)[i](1, 2)}).batch(2))
    with pytest.raises(SpecError, match=r"must be of one class"):
        Dataset.from_list([pair(1, 2), again(1, 2)])


class Checked(namedtuple("Checked", "x y")):  # noqa: PYI024, SLOT002
    """A namedtuple whose class looks at what it is given."""

    def __new__(cls, x: Any, y: Any) -> Self:
        return super().__new__(cls, np.asarray(x, np.float32), y)


def test_a_misfit_is_named_without_the_users_class() -> None:
    ds = Dataset.range(3).map(lambda i: Checked(np.zeros(2 + i // 2), {"a": 1, "b": 2})).batch(3)
    with pytest.raises(SpecError, match=r"element 2 of the batch at \.x is float32 \(3,\)"):
        list(ds)


@pytest.mark.parametrize("operator", ["batch", "padded_batch", "ragged_batch"])
@pytest.mark.parametrize("rows", [([1], []), ([], [1])])
def test_an_empty_list_beside_integers(operator: str, rows: Any) -> None:
    ds = getattr(Dataset.range(2).map(lambda i: rows[i]), operator)(2)
    with pytest.raises(SpecError, match=r"an empty list is float64, .*np\.array\(\[\], 'int64'\)"):
        list(ds)
