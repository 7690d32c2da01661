"""Records read in one call for many: the same elements, fewer calls, errors where they belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.testing import assert_workers_do_not_show

COUNT = 64


class Batched:
    """A source with both ways to read; notes in a file how it was read."""

    def __init__(
        self, folder: Path, bad: tuple[int, ...] = (), *, short: bool = False, count: int = COUNT
    ) -> None:
        self.log, self.bad, self.short, self.count = folder / "log", bad, short, count

    def note(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{text}\n")

    def __len__(self) -> int:
        return self.count

    def record(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            raise ValueError(f"record {index}")
        return {"x": np.int64(index), "mutable": np.array([index])}

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.note(f"one {index}")
        return self.record(index)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        self.note("many " + " ".join(map(str, indices)))
        found = [self.record(index) for index in indices]
        return found[1:] if self.short else found

    def calls(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]

    def reads(self) -> list[int]:
        return [int(index) for _, *indices in self.calls() for index in indices]


def x_of(record: dict[str, Any]) -> int:
    assert record["mutable"] == [record["x"]]
    record["mutable"][0] = -1  # a function may change what it is given
    return int(record["x"])


def ints(ds: td.Dataset, workers: int) -> list[int]:
    with ds.iterator(workers=workers) as it:
        return [int(x) for batch in it for x in batch]


PLANS = {
    "in order": lambda ds: ds.map(x_of).batch(16),
    "shuffled": lambda ds: ds.shuffle(None, seed=1).map(x_of).batch(16),
    "by a window": lambda ds: ds.shuffle(10, seed=1).map(x_of).batch(16),
    "filtered, repeated": lambda ds: (
        ds.repeat(2).skip(5).map(x_of).filter(lambda x: x % 3).batch(16)
    ),
}


@pytest.mark.parametrize("executor", ["process", "thread"])
@pytest.mark.parametrize("plan", PLANS)
def test_the_same_elements_in_fewer_calls(plan: str, executor: str, tmp_path: Path) -> None:
    source = Batched(tmp_path)
    ds = PLANS[plan](td.Dataset.from_source(source))
    plain = ints(ds, 0)
    assert {how for how, *_ in source.calls()} == {"one"}
    source.log.unlink()
    with ds.iterator(workers=2, executor=executor) as it:
        found = [int(x) for batch in it for x in batch]

    assert found == plain
    calls = source.calls()
    assert "many" in {how for how, *_ in calls}
    # How many records a task has depends on how long they take: on a busy machine, two.
    assert len(calls) < len(source.reads())
    assert set(source.reads()) == set(range(COUNT))


def test_every_record_is_read_once(tmp_path: Path) -> None:
    source = Batched(tmp_path)
    ints(td.Dataset.from_source(source).map(x_of).batch(16), 2)

    assert sorted(source.reads()) == list(range(COUNT))


def test_a_record_that_comes_twice_is_given_twice(tmp_path: Path) -> None:
    ds = td.Dataset.from_source(Batched(tmp_path, count=4)).repeat(16).map(x_of).batch(16)

    assert ints(ds, 2) == [0, 1, 2, 3] * 16


@pytest.mark.parametrize(
    "other",
    [
        lambda ds: ds.batch(2).unbatch(),
        lambda ds: ds.enumerate(),
        lambda ds: ds.flat_map(lambda _: td.Dataset.range(2)),
        lambda ds: ds.cache(),
        lambda ds: td.Dataset.range(4),
        lambda ds: td.Dataset.from_source([1, 2]),
    ],
    ids=["unbatch", "enumerate", "flat_map", "cache", "no source", "a plain source"],
)
def test_items_that_are_no_indices_of_one_source(other: Any, tmp_path: Path) -> None:
    ds = other(td.Dataset.from_source(Batched(tmp_path))).map(lambda *x: x)

    assert_workers_do_not_show(ds, (0, 2))


def test_an_error_is_raised_at_its_element(tmp_path: Path) -> None:
    source = Batched(tmp_path, bad=(20, 40))
    ds = td.Dataset.from_source(source).map(x_of).with_options(td.Options(workers=2))
    found: list[Any] = []
    notes: list[str] = []
    with iter(ds) as it:
        while True:
            try:
                found.append(int(next(it)))
            except ValueError as error:
                found.append(str(error))
                notes.append(" ".join(error.__notes__))
            except StopIteration:
                break
        assert it.stats.restarts == 0
    assert "element 20" in notes[0]
    assert "element 40" in notes[1]
    assert found == [f"record {k}" if k in {20, 40} else k for k in range(COUNT)]


def test_an_answer_of_another_length_is_not_used(tmp_path: Path) -> None:
    source = Batched(tmp_path, short=True)
    with td.Dataset.from_source(source).map(x_of).batch(16).iterator(workers=2) as it:
        assert [int(x) for batch in it for x in batch] == list(range(COUNT))
        assert it.stats.restarts == 0


def test_a_restored_iterator_reads_so_too(tmp_path: Path) -> None:
    ds = td.Dataset.from_source(Batched(tmp_path)).shuffle(8, seed=1).map(x_of).batch(4)
    whole = ints(ds, 0)
    with ds.iterator(workers=2) as it:
        seen = [int(x) for _ in range(3) for x in next(it)]
        state = it.state_dict()
    with ds.iterator(workers=2) as it:
        it.load_state_dict(state)
        assert seen + [int(x) for batch in it for x in batch] == whole


def test_sources_side_by_side_are_read_one_by_one(tmp_path: Path) -> None:
    source = Batched(tmp_path)
    both = td.Dataset.zip(td.Dataset.from_source(source), td.Dataset.range(COUNT))
    ds = both.map(lambda record, k: int(record["x"]) - int(k)).batch(16)

    assert ints(ds, 2) == [0] * COUNT
    assert {how for how, *_ in source.calls()} == {"one"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_hugging_face_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"x": list(range(100)), "text": [f"text {k}" for k in range(100)], "v": [[1.0, 2.0]] * 100}
    )
    ds = td.Dataset.from_source(table).shuffle(None, seed=1).batch(10)
    with ds.iterator(workers=0) as plain, ds.iterator(workers=2) as it:
        for ours, theirs in zip(it, plain, strict=True):
            assert ours["x"].tolist() == theirs["x"].tolist()
            assert ours["text"].tolist() == theirs["text"].tolist()
            assert ours["v"].tolist() == theirs["v"].tolist()


class Records:
    """A source with both ways to read, which agree."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return list(indices)


class Transformed:
    """A wrapper that changes elements, and gives everything else as it is."""

    def __init__(self) -> None:
        self.inner = Records()

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return 100 + self.inner[index]

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class Derived(Records):
    """A class that changes elements one by one, and inherits the other way."""

    def __getitem__(self, index: int) -> int:
        return 100 + index


@pytest.mark.parametrize("source", [Transformed(), Derived()])
def test_a_way_that_is_not_of_the_same_class_is_not_used(source: Any) -> None:
    ds = td.Dataset.from_source(source).batch(8)
    for workers in (0, 2):
        found = [int(x) for batch in ds.iterator(workers=workers) for x in batch]
        assert found == list(range(100, 100 + COUNT))
    assert_workers_do_not_show(ds)
