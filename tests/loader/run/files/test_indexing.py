"""Reading of files by number: which files are read so is a matter of the plan alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import RecordCorruptError, SpecError
from tundish.formats.lines import LinesFormat


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Three files of 3, 0 and 5 lines."""
    found = []
    for name, count in (("a", 3), ("b", 0), ("c", 5)):
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"{name}{k}\n" for k in range(count)))
        found.append(str(path))
    return found


LINES = [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2", b"c3", b"c4"]


def by_number(ds: td.Dataset) -> bool:
    """Return True if a plan's files are read by number: where records stand in them is looked up first."""
    looked: list[int] = []

    def noted(*given: Any) -> Any:
        looked.append(1)
        return places(*given)

    places = LinesFormat.places
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinesFormat, "places", noted)
        with ds.iterator(workers=0) as it, suppress(RecordCorruptError):
            next(it, None)
    return bool(looked)


def test_read_in_order_nothing_is_looked_at(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("the whole file was looked at")

    monkeypatch.setattr(LinesFormat, "places", refuse)

    assert list(td.TextLineDataset(paths)) == LINES
    assert list(td.TextLineDataset(paths).map(bytes.upper).take(2)) == [b"A0", b"A1"]


ASKING: dict[str, Any] = {
    "shuffle": lambda ds: ds.shuffle(None, seed=1),
    "map, shuffle": lambda ds: ds.map(len).shuffle(None, seed=1),
    "skip": lambda ds: ds.skip(10_001),
    "repeat, shard": lambda ds: ds.repeat(2).shard(2, 1),
    "zip, shard": lambda ds: td.Dataset.zip(ds, td.Dataset.range(9)).shard(2, 1),
}
NOT_ASKING: dict[str, Any] = {
    "nothing": lambda ds: ds,
    "map, batch, take": lambda ds: ds.map(len).batch(2).take(3).prefetch(1),
    "batch, shard": lambda ds: ds.batch(2).shard(2, 0),  # an error moves its batch's border
    "a window": lambda ds: ds.shuffle(4, seed=1),
    "skip a header": lambda ds: ds.skip(1),
    "filter, shard": lambda ds: ds.filter(len).shard(2, 1),
    "concatenate, shard": lambda ds: ds.concatenate(ds.filter(len)).shard(2, 0),
    "flat_map, shard": lambda ds: ds.flat_map(lambda x: td.Dataset.range(1)).shard(2, 0),
}


@pytest.mark.parametrize("name", ASKING)
def test_operators_that_ask_where_a_record_stands(name: str, paths: list[str]) -> None:
    assert by_number(ASKING[name](td.TextLineDataset(paths)))


@pytest.mark.parametrize("name", NOT_ASKING)
def test_operators_that_do_not(name: str, paths: list[str]) -> None:
    assert not by_number(NOT_ASKING[name](td.TextLineDataset(paths)))


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({}, False),
        ({"index": True}, True),
        ({"index": "beside"}, True),
        ({"num_parallel_reads": 2}, False),
        ({"on_error": "skip"}, False),
        ({"compression_type": "GZIP"}, False),
    ],
)
def test_arguments_that_decide(given: Any, number: bool, paths: list[str]) -> None:
    assert by_number(td.TextLineDataset(paths, **given)) is number


AGAIN: dict[str, Any] = {
    "shuffle": lambda ds: ds.repeat().take(9).repeat(2).shuffle(None, seed=1),
    "shard": lambda ds: ds.repeat().take(9).repeat().take(12).shard(2, 1),
    "batch": lambda ds: ds.repeat().take(9).repeat(2).shuffle(None, seed=1).batch(4),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", AGAIN)
def test_repeats_of_what_has_no_end(name: str, workers: int, paths: list[str]) -> None:
    expected = AGAIN[name](td.Dataset.from_list(LINES))

    with AGAIN[name](td.TextLineDataset(paths)).iterator(workers=workers) as found:
        assert [np.array(x).tolist() for x in found] == [np.array(x).tolist() for x in expected]


def test_index_false_reads_on(paths: list[str]) -> None:
    ds = td.TextLineDataset(paths, index=False).shard(2, 1)

    assert not by_number(ds)
    assert list(ds) == LINES[1::2]


def test_what_is_fixed_in_length_needs_no_index(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(b"%04d" % k for k in range(6)))
    ds = td.FixedLengthRecordDataset(path, 4)

    assert len(ds) == 6
    assert [int(x) for x in ds] == list(range(6))


def test_paths_may_be_chosen_but_not_computed(paths: list[str]) -> None:
    files = td.Dataset.list_files(paths, shuffle=False)

    assert by_number(td.TextLineDataset(files.shard(2, 0)).shuffle(None, seed=1))
    assert not by_number(td.TextLineDataset(files.shuffle(3, seed=1)).shard(2, 1))
    assert not by_number(td.TextLineDataset(files.map(str)).shard(2, 1))


def test_the_same_records_draw_the_same(paths: list[str]) -> None:
    """However a record is reached, its randomness is keyed by its file and its place."""

    def draw(line: bytes, rng: Any) -> tuple[bytes, int]:
        return line, int(rng.integers(1 << 30))

    def drawn(ds: td.Dataset) -> dict[bytes, int]:
        return {line: int(number) for line, number in ds.map(draw, seed=3)}

    one = drawn(td.TextLineDataset(paths))
    files = td.Dataset.list_files(paths, shuffle=False)

    assert len(set(one.values())) == len(LINES)
    assert drawn(td.TextLineDataset(paths, index=True)) == one
    assert drawn(td.TextLineDataset(paths).shuffle(None, seed=7)) == one
    assert drawn(td.TextLineDataset(paths, num_parallel_reads=2)) == one
    odd = drawn(td.TextLineDataset(files.skip(2)).shuffle(None, seed=1))
    assert odd == {line: one[line] for line in odd}


def test_length_and_items(paths: list[str]) -> None:
    ds = td.TextLineDataset(paths)

    assert ds.cardinality() == td.UNKNOWN_CARDINALITY
    assert (len(ds), len(ds.batch(3)), len(ds.skip(2).repeat(2))) == (8, 3, 12)
    assert [ds[k] for k in (0, 3, -1)] == [b"a0", b"c0", b"c4"]
    assert ds.map(bytes.upper)[2] == b"A2"
    with pytest.raises(IndexError, match="from -8 to 7"):
        ds[8]


def test_length_of_what_has_none(paths: list[str]) -> None:
    with pytest.raises(TypeError, match="not known"):
        len(td.TextLineDataset(paths).filter(len))
    with pytest.raises(TypeError, match="not known"):
        len(td.TextLineDataset(paths, compression_type="GZIP"))
    with pytest.raises(TypeError, match="random access"):
        td.TextLineDataset(paths, num_parallel_reads=2)[0]


def test_a_permutation_needs_random_access(paths: list[str]) -> None:
    with pytest.raises(SpecError, match=r"shuffle\(None\)"):
        td.TextLineDataset(paths, compression_type="GZIP").shuffle(None)
    ds = td.TextLineDataset(paths).shuffle(None).with_options(td.Options(on_error="skip"))
    with pytest.raises(SpecError, match="leaves out records"):
        iter(ds)


def test_a_file_that_cannot_be_opened_is_one_record(paths: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.txt")
    ds = td.TextLineDataset([paths[0], missing, paths[2]], index=True)

    with pytest.raises(
        FileNotFoundError, match=r"missing\.txt"
    ):  # nobody knows how many it would have
        len(ds)
    notes: list[str] = []
    for workers in (0, 2):
        found: list[Any] = []
        with ds.iterator(workers=workers) as it:
            while True:
                try:
                    found.append(next(it))
                except StopIteration:
                    break
                except FileNotFoundError as error:
                    found.append(error.filename)
                    notes.append(error.__notes__[0])
        assert found == [*LINES[:3], missing, *LINES[3:]]
    assert all(note.startswith("tundish: in TextLineDataset, element 1, in") for note in notes)


@pytest.mark.parametrize(
    "reader",
    [
        td.TextLineDataset,
        td.TFRecordDataset,
        lambda path: td.FixedLengthRecordDataset(path, 4),
        td.ParquetDataset,
        td.ArrowDataset,
        td.JsonLinesDataset,
        td.CsvDataset,
        td.TarDataset,
    ],
)
def test_the_length_of_what_is_not_there_is_its_error(reader: Any, tmp_path: Path) -> None:
    ds = reader(str(tmp_path / "missing"))

    assert ds.cardinality() == td.UNKNOWN_CARDINALITY
    for of_files in (ds, ds.take(1), ds.batch(2)):
        with pytest.raises(FileNotFoundError, match=f"{tmp_path}/missing"):
            len(of_files)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/missing"):
        list(ds)


def test_a_file_that_changed_meanwhile_is_an_error(paths: list[str]) -> None:
    ds = td.TextLineDataset(paths).shuffle(None, seed=1)
    it = iter(ds)
    Path(paths[2]).write_text("something\nelse\n" * 5)
    found: list[Any] = []
    errors: list[str] = []
    while True:
        try:
            found.append(next(it))
        except StopIteration:
            break
        except RecordCorruptError as error:
            errors.append(error.problem)

    assert sorted(found) == LINES[:3]
    assert len(errors) == 5
    assert sorted(ds) == sorted([*LINES[:3], *[b"something", b"else"] * 5])


def test_a_snapshot_above_files_keeps_its_lease(paths: list[str], tmp_path: Path) -> None:
    """Exchanging what is upstream of a snapshot does not lose what is written of it."""
    ds = td.TextLineDataset(paths).shuffle(None, seed=1).snapshot(str(tmp_path / "kept"))

    first = list(ds)
    assert sorted(first) == LINES
    assert [s.doing for s in iter(ds).stats.snapshots] == ["read"]
    assert list(ds) == first
