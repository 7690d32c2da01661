"""shuffle(None, units=): the order that is described, near what is stored together, for shards too."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tundish as td
from tundish.errors import IncompatibleCheckpointError, SpecError
from tundish.formats import format as formats
from tundish.formats.bytes.file import ByteFile
from tundish.loader.operators.units import Line
from tundish.snapshot.reading.batches import Batches
from tundish.testing.orders import permutation, permutation_of_units

GROUPS, ROWS = 40, 25


def parquet(path: Path, groups: int = GROUPS, rows: int = ROWS) -> td.Dataset:
    pq.write_table(pa.table({"x": np.arange(groups * rows)}), path, row_group_size=rows)
    return td.ParquetDataset(str(path))


def arrow(path: Path) -> td.Dataset:
    table = pa.table({"x": np.arange(GROUPS * ROWS)})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=ROWS)
    return td.ArrowDataset(str(path))


def records(path: Path) -> td.Dataset:
    """Units of 25 records, where a unit is 1 KiB: each has 16 bytes of its own, and 24 of a frame and a number."""
    numbers = [b"%024d" % n + bytes(1) for n in range(GROUPS * ROWS)]
    td.TFRecordWriter(path).write(td.Dataset.from_source(numbers))
    return td.TFRecordDataset(str(path)).map(lambda record: {"x": int(record[:24])})


def snapshot(path: Path) -> td.Dataset:
    made = td.Dataset.range(GROUPS * ROWS).map(lambda x: {"x": x})
    made = made.snapshot(str(path), batch_bytes=8 * ROWS)
    for _ in made:
        pass
    return made


STORED: dict[str, Callable[[Path], td.Dataset]] = {
    "parquet": parquet,
    "arrow": arrow,
    "records": records,
    "snapshot": snapshot,
}


@pytest.fixture(params=STORED)
def stored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], td.Dataset]:
    """Makes numbers in units of about 25."""
    monkeypatch.setattr(formats, "UNIT_BITS", 10)
    return lambda: STORED[request.param](tmp_path / "stored")


def numbers(ds: td.Dataset, **how: Any) -> list[int]:
    return [int(element["x"]) for element in ds.iterator(**how)]


@pytest.mark.parametrize("part", range(4))
def test_200_random_orders_are_those_that_are_described(part: int) -> None:
    rng = random.Random(part)
    for number in range(50):
        sizes = [rng.randint(1, 9) for _ in range(rng.randint(1, 30))]
        if not number:  # windows of more than 4,096 records
            sizes = [rng.randint(1, 6000) for _ in range(3)]
        seed = rng.choice((0, 7, 2**64 - 1, -(2**63)))
        units, count = rng.randint(1, 6), rng.randint(1, 9)
        line = Line(np.array(sizes), units, seed, number)
        for index in range(count):
            expected = permutation_of_units(sizes, units, seed, number, (count, index))
            found = line.numbers(np.arange(len(expected)), count, index)
            assert found.tolist() == expected, (sizes, units, seed, count, index)
            there = np.array(rng.sample(range(len(expected)), len(expected) // 2), np.int64)
            assert line.numbers(there, count, index).tolist() == [expected[p] for p in there]


def test_one_unit_and_all_units_at_once() -> None:
    assert sorted(permutation_of_units([5], 3, 1, 0)) == list(range(5))
    whole = permutation_of_units([3, 4, 5], 99, 1, 0)
    assert sorted(whole) == list(range(12))
    assert whole != permutation(12, 1, 0)


def test_a_batch_is_read_from_few_units(stored: Callable[[], td.Dataset]) -> None:
    made = stored()
    ds = made.shuffle(None, seed=1, units=4)
    found = numbers(ds)
    units = [{x // ROWS for x in found[at : at + 2 * ROWS]} for at in range(0, len(found), ROWS)]

    assert sorted(found) == list(range(GROUPS * ROWS))
    assert max(map(len, units)) <= 11  # of two windows, and runs of records begin anywhere
    assert len({x // ROWS for x in numbers(made.shuffle(None, seed=1))[:50]}) > 20


def test_passes_differ_unless_they_are_not_to(stored: Callable[[], td.Dataset]) -> None:
    made = stored()

    def passes(**how: Any) -> list[list[int]]:
        found = numbers(made.shuffle(None, seed=1, units=2, **how).repeat(2))
        return [found[: len(found) // 2], found[len(found) // 2 :]]

    first, second = passes()
    assert first != second
    assert sorted(first) == sorted(second)
    first, second = passes(reshuffle_each_iteration=False)
    assert first == second


@pytest.mark.parametrize("count", [1, 2, 7, 40, 1003])
def test_shards_are_disjoint_complete_and_fair(
    stored: Callable[[], td.Dataset], count: int
) -> None:
    ds = stored().shuffle(None, seed=1, units=4).map(lambda element: element)
    every = [numbers(ds.shard(count, index), workers=0) for index in range(min(count, 50))]
    lengths = [len(shard) for shard in every]

    assert lengths == [len(range(index, GROUPS * ROWS, count)) for index in range(len(every))]
    if count <= 50:
        assert sorted(chain.from_iterable(every)) == list(range(GROUPS * ROWS))
        inner = [len({x // ROWS for x in shard}) for shard in every]
        assert max(inner) <= 3 + GROUPS / count * 1.5


def test_what_stands_between_is_not_dealt(stored: Callable[[], td.Dataset]) -> None:
    """A shard of what was counted, kept, or repeated is every n-th of that."""
    ds = stored().shuffle(None, seed=1, units=4)
    for above in (
        ds.take(30),
        ds.repeat(2),
        ds.enumerate().map(lambda _, x: x),
        ds.batch(1).unbatch(),
    ):
        assert numbers(above.shard(3, 1), workers=0) == numbers(above, workers=0)[1::3]
    context = td.InputContext(3, 1)
    assert numbers(ds.shard_by_process(context), workers=0) == numbers(ds, workers=0)[1::3]
    shard = ds.shard(2, 1)
    assert numbers(shard.shard(3, 1), iteration=0) == numbers(shard, iteration=0)[1::3]


def test_chosen_and_joined_sources_have_units(tmp_path: Path) -> None:
    rows = parquet(tmp_path / "a")
    whole = rows.skip(30).take(100).concatenate(rows.take(-1)).map(lambda element: element)
    expected = [*range(30, 130), *range(GROUPS * ROWS)]
    sizes = [20, 25, 25, 25, 5] + [25] * GROUPS

    found = numbers(whole.shuffle(None, seed=3, units=2), iteration=0)

    assert found == [expected[p] for p in permutation_of_units(sizes, 2, 3, 0)]


def test_empty_row_groups_and_files_are_no_units(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "a", pa.schema([("x", pa.int64())])) as file:
        for n in (2, 0, 3):
            file.write_table(pa.table({"x": np.arange(n)}))
    parquet(tmp_path / "b", 0)
    ds = td.ParquetDataset([str(tmp_path / name) for name in "aba"]).shuffle(None, 5, units=1)

    values = [0, 1, 0, 1, 2] * 2
    expected = [values[p] for p in permutation_of_units([2, 3, 2, 3], 1, 5, 0)]
    assert numbers(ds) == expected
    assert numbers(td.ParquetDataset(str(tmp_path / "b")).shuffle(None, 5, units=1)) == []


def test_batches_of_user_shards_and_failed_elements(tmp_path: Path) -> None:
    def fails(x: Any) -> Any:
        if x % 7 == 3:
            raise ValueError("here")
        return x

    made = td.Dataset.range(60).map(fails)
    made = made.snapshot(str(tmp_path), batch_bytes=24, shard_func=lambda x: x % 3)
    iterator = made.iterator()
    good = [x for x in range(60) if x % 7 != 3]
    assert _all(iterator) == good

    again = _all(made.shuffle(None, seed=1, units=2).iterator())

    assert sorted(again) == good
    assert again != good


def _all(iterator: Iterator[Any]) -> list[int]:
    found = []
    while True:
        try:
            found.append(int(next(iterator)))
        except StopIteration:
            return found
        except ValueError:
            continue


# -- what is read ------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read of files, by whoever reads it."""
    found: list[int] = []
    pieces, batches = ByteFile.__subclasses__()[0].pread, Batches._load

    def pread(self: Any, at: int, size: int) -> bytes:
        data: bytes = pieces(self, at, size)
        found.append(len(data))
        return data

    def load(self: Batches, b: int) -> Any:
        found.append(int(self.entries[b]["length"]))
        return batches(self, b)

    monkeypatch.setattr(ByteFile.__subclasses__()[0], "pread", pread)
    monkeypatch.setattr(Batches, "_load", load)
    return found


def wide(path: Path) -> td.Dataset:
    """Row groups of 20 rows of 5,000 bytes."""
    data = np.random.default_rng(1).bytes(4000 * 5000)
    rows = [data[at : at + 5000] for at in range(0, len(data), 5000)]
    pq.write_table(pa.table({"x": rows}), path, row_group_size=20, use_dictionary=False)
    return td.ParquetDataset(str(path))


def kept(path: Path) -> td.Dataset:
    """Batches of 20 arrays of 800 bytes."""
    made = td.Dataset.range(4000).map(filled).snapshot(str(path), batch_bytes=16_000)
    if not path.exists():
        for _ in made:
            pass
    return made


def filled(x: Any) -> Any:
    return np.full(100, x)


@pytest.mark.parametrize("make", [wide, kept])
def test_8_shards_read_the_data_about_once(
    tmp_path: Path, read: list[int], make: Callable[[Path], td.Dataset]
) -> None:
    path = tmp_path / "data"
    make(path)
    files = [path] if path.is_file() else list(path.rglob("shard-*.arrow"))
    total = 0
    for index in range(8):  # each as another process would: nothing is kept of those before
        ds = make(path).shuffle(None, seed=1, units=4).shard(8, index)
        read.clear()
        for _ in ds.batch(100).iterator(workers=0):
            pass
        total += sum(read)

    assert 0.95 < total / sum(file.stat().st_size for file in files) <= 1.1


def test_its_order_takes_memory_by_units_alone() -> None:
    sizes = np.full(1000, 10**9)
    tracemalloc.start()
    try:
        found = Line(sizes, 4, 1, 0).numbers(np.arange(0, 10**11, 10**9), 8, 5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(set(found.tolist())) == 100
    assert peak < 2 * 10**6


# -- states ------------------------------------------------------------------------------------------


def test_a_state_is_refused_where_units_are_others(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ds = parquet(path).shuffle(None, seed=1, units=2).repeat(2).batch(4)
    with ds.iterator() as iterator:
        next(iterator)
        state = iterator.state_dict()
        rest = [batch["x"].tolist() for batch in iterator]
    with ds.iterator() as iterator:
        iterator.load_state_dict(state)
        assert [batch["x"].tolist() for batch in iterator] == rest
    parquet(path, GROUPS // 2, 2 * ROWS)

    with ds.iterator() as iterator, pytest.raises(IncompatibleCheckpointError, match="row groups"):
        iterator.load_state_dict(state)


def test_a_plan_without_units_says_nothing_of_them(tmp_path: Path) -> None:
    rows = parquet(tmp_path / "a")
    plain, near = rows.shuffle(None, seed=1), rows.shuffle(None, seed=1, units=2)

    assert plain.iterator().state_dict()["plan"][-1] == ["shuffle", {"seed": 1, "reshuffle": True}]
    assert near.iterator().state_dict()["plan"][-1] == [
        "shuffle",
        {"units": 2, "seed": 1, "reshuffle": True},
    ]
    assert plain.iterator().state_dict()["position"] == 0


# -- what is refused ---------------------------------------------------------------------------------

ARRAYS: dict[str, Callable[[], td.Dataset]] = {
    "range": lambda: td.Dataset.range(9),
    "arrays": lambda: td.Dataset.from_tensor_slices(np.arange(9)),
    "a source": lambda: td.Dataset.from_source([1, 2, 3]),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_what_is_stored_in_no_units(what: str) -> None:
    with pytest.raises(SpecError, match=r"units=2\) permutes the units .* has none: leave out"):
        ARRAYS[what]().shuffle(None, units=2)


BETWEEN: dict[str, Callable[[td.Dataset], td.Dataset]] = {
    "shuffle": lambda ds: ds.shuffle(None, seed=1),
    "shard": lambda ds: ds.shard(2, 0),
    "repeat": lambda ds: ds.repeat(2),
    "zip": lambda ds: td.Dataset.zip(ds, td.Dataset.range(9)),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_what_moves_records_out_of_their_units(tmp_path: Path, what: str) -> None:
    ds = BETWEEN[what](parquet(tmp_path / "a")).shuffle(None, seed=1, units=2)

    with pytest.raises(SpecError, match="directly after the reader"):
        ds.iterator()


def test_what_has_no_positions(tmp_path: Path) -> None:
    rows = parquet(tmp_path / "a")
    with pytest.raises(SpecError, match="random access"):
        rows.filter(bool).shuffle(None, seed=1, units=2).iterator()
    waiting = td.Dataset.range(9).snapshot(str(tmp_path / "s")).shuffle(None, seed=1, units=2)
    with pytest.raises(SpecError, match="run the pipeline up to the snapshot first"):
        waiting.iterator()


def test_arguments(tmp_path: Path) -> None:
    rows = parquet(tmp_path / "a")
    with pytest.raises(ValueError, match=r"units=2 .* buffer_size=9 .* one of the two"):
        rows.shuffle(9, units=2)
    for units in (0, -1):
        with pytest.raises(ValueError, match=f"units must be at least 1, not {units}"):
            rows.shuffle(None, units=units)
    for other in (True, 1.5, "2"):
        with pytest.raises(TypeError, match="units must be an int"):
            rows.shuffle(None, units=other)  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_one_unit(tmp_path: Path) -> None:
    parquet(tmp_path / "a", 2)
    paths = [str(tmp_path / "a"), str(tmp_path / "none")]
    found, failed = [], []
    with td.ParquetDataset(paths).shuffle(None, seed=1, units=1).iterator() as iterator:
        while True:
            try:
                found.append(int(next(iterator)["x"]))
            except StopIteration:
                break
            except OSError as error:
                failed.append(Path(error.filename).name)

    assert sorted(found) == list(range(2 * ROWS))
    assert failed == ["none"]
