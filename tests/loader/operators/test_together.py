"""Small batches of arrays are made several at once: what is delivered, whose it is, and where a state stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.loader.operators import batching, sources
from tundish.loader.protocols.columns import nest_rows

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS: dict[str, Any] = {
    "array": np.arange(1000, dtype=np.int32).reshape(100, 10),
    "number": np.arange(100.0),
    "dict": {"a": np.arange(100), "b": np.arange(200.0).reshape(100, 2)},
    "nest": ({"a": np.arange(100)}, (np.arange(100, dtype=np.uint8), np.zeros((100, 0)))),
    "texts": {"a": np.arange(100), "word": np.array([f"w{k}" for k in range(100)], object)},
    "big-endian": np.arange(100, dtype=">i4"),
    "structs with gaps": np.frombuffer(
        np.random.default_rng(1).bytes(1600), np.dtype([("a", "u1"), ("b", "f8")], align=True)
    ),
}
CHAINS: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "plain": lambda ds: ds.batch(8),
    "shuffled": lambda ds: ds.shuffle(None, seed=1, reshuffle_each_iteration=False).batch(8),
    "dropped": lambda ds: ds.shuffle(None, seed=1, reshuffle_each_iteration=False).batch(
        8, drop_remainder=True
    ),
    "repeated": lambda ds: (
        ds.shuffle(None, seed=1, reshuffle_each_iteration=False).repeat(3).batch(7)
    ),
    "epochs": lambda ds: ds.batch(7).repeat(3),
    "chosen": lambda ds: ds.batch(7).skip(1).take(9),
    "dealt": lambda ds: ds.batch(7).shard(3, 1),
    "mixed": lambda ds: ds.batch(7).shuffle(None, seed=2, reshuffle_each_iteration=False),
    "window": lambda ds: ds.batch(7).shuffle(4, seed=2, reshuffle_each_iteration=False),
    "two": lambda ds: ds.concatenate(ds).batch(7),
    "numbered": lambda ds: ds.enumerate().batch(7),
    "zipped": lambda ds: td.Dataset.zip((ds, td.Dataset.range(100))).batch(7),
    "of batches": lambda ds: ds.batch(4).batch(5),
}


def leaves(element: Any) -> list[Any]:
    if isinstance(element, dict):
        return [leaf for part in element.values() for leaf in leaves(part)]
    if isinstance(element, tuple):
        return [leaf for part in element for leaf in leaves(part)]
    return [element]


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    for a, b in zip(leaves(one), leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes() if a.dtype.kind == "V" else a.tolist() == b.tolist()


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("rows", ROWS)
def test_they_are_those_made_one_by_one(
    rows: str, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = CHAINS[chain](td.Dataset.from_tensor_slices(ROWS[rows]))
    found, states = [], []
    with iter(ds) as it:
        for element in it:
            found.append(element)
            states.append(it.state_dict()["position"])
    monkeypatch.setattr(batching, "_TOGETHER_BYTES", 0)
    with iter(ds) as it:
        for element, state in zip(found, states, strict=True):
            same(next(it), element)
            assert it.state_dict()["position"] == state
        with pytest.raises(StopIteration):
            next(it)


@pytest.mark.parametrize("chain", ["plain", "shuffled", "chosen", "dealt"])
def test_each_is_the_receivers_own(chain: str) -> None:
    source = np.arange(1000, dtype=np.int32).reshape(100, 10)
    before = source.copy()
    held = list(CHAINS[chain](td.Dataset.from_tensor_slices({"x": source})))
    for batch in held:
        assert batch["x"].flags.owndata
        assert batch["x"].flags.writeable
        batch["x"][:] = -1
    assert np.array_equal(source, before)


def test_they_go_on_from_each_state() -> None:
    ds = (
        td.Dataset.from_tensor_slices(np.arange(1000))
        .shuffle(None, seed=3, reshuffle_each_iteration=False)
        .batch(6)
    )
    every = [batch.tolist() for batch in ds]
    for k in (0, 1, 5, 31, 166, 167):
        with iter(ds) as it:
            for _ in range(k):
                next(it)
            state = it.state_dict()
        with iter(ds) as it:
            it.load_state_dict(state)
            assert [batch.tolist() for batch in it] == every[k:]


def test_no_more_are_made_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    several = batching._several

    def counting(gather: Any, refs: Any, pass_: int) -> list[Any]:
        asked.append(len(refs))
        return several(gather, refs, pass_)

    monkeypatch.setattr(batching, "_several", counting)
    rows = np.zeros((4096, 512), np.uint8)
    list(td.Dataset.from_tensor_slices(rows).batch(256))  # 128 KiB each
    assert max(asked) == 4
    asked.clear()
    list(td.Dataset.from_tensor_slices(rows).batch(1024))  # 512 KiB each: one by one
    assert not asked


@pytest.mark.parametrize(
    ("chain", "most"),
    [("plain", 5), ("shuffled", 5), ("epochs", 12), ("dealt", 3), ("mixed", 5)],
)
def test_gathering_is_called_once_for_many_batches(
    chain: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counting(nest: Any, places: Any) -> Any:
        calls.append(len(places))
        return nest_rows(nest, places)

    monkeypatch.setattr(sources, "nest_rows", counting)
    ds = CHAINS[chain](td.Dataset.from_tensor_slices(np.arange(1001)))
    assert sum(len(batch) for batch in ds) == sum(calls)
    assert len(calls) <= most
