"""Files read one after another and in turn: states, errors that are left out, and what is opened."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import tundish as td
from tundish.formats.lines import LinesFormat

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A file of 20,000 lines of 50 bytes."""
    path = tmp_path / "long.txt"
    path.write_bytes(b"".join(b"%049d\n" % k for k in range(20_000)))
    return str(path)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_the_file_and_the_place(long: str, workers: int) -> None:
    with td.TextLineDataset([long, long]).iterator(workers=workers) as it:
        for _ in range(20_003):
            next(it)
        state = it.state_dict()

    assert state["position"] == {"inner": 150, "up": 1}
    assert len(json.dumps(state)) < 1000


def test_a_file_is_opened_where_a_state_stands(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = td.TextLineDataset(long)
    with ds.iterator() as it:
        for _ in range(15_000):
            next(it)
        state = it.state_dict()
    opened: list[int] = []
    usual = LinesFormat.open

    def told(self: LinesFormat, path: str, place: int = 0, *, ahead: bool = True) -> Any:
        opened.append(place)
        return usual(self, path, place, ahead=ahead)

    monkeypatch.setattr(LinesFormat, "open", told)
    with ds.iterator() as it:
        it.load_state_dict(state)
        assert int(next(it)) == 15_000
    assert opened == [15_000 * 50]


def test_a_window_is_made_again_from_places(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = td.TextLineDataset(long).shuffle(100, seed=1)
    with ds.iterator() as it:
        before = [next(it) for _ in range(5_000)]
        state = it.state_dict()
        rest = list(it)
    with ds.iterator() as it:
        it.load_state_dict(state)
        again = list(it)

    assert again == rest
    assert len(set(before + rest)) == 20_000


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_that_are_left_out_are_counted(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"one\n\xff\xfe\ntwo\n\xff\nthree")
    names = [str(path), str(tmp_path / "missing"), str(path)]
    ds = td.TextLineDataset(names, encoding="utf-8", on_error="skip")
    with ds.iterator(workers=workers) as it:
        assert list(it) == ["one", "two", "three"] * 2
        assert it.stats.skipped == {"TextLineDataset#1": 5}
    with ds.iterator(workers=workers) as it:
        for _ in range(4):
            next(it)
        state = it.state_dict()
    with ds.iterator(workers=2 - workers) as it:
        it.load_state_dict(state)
        assert list(it) == ["two", "three"]
        assert it.stats.skipped == {"TextLineDataset#1": 5}


def test_options_speak_for_readers_too(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(b"one\n")
    ds = td.TextLineDataset([str(tmp_path / "missing"), str(path)])

    with pytest.raises(FileNotFoundError):
        next(iter(ds))
    assert list(ds.with_options(td.Options(on_error="skip"))) == [b"one"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_input_that_failed_is_not_left_out(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(b"one\n")

    def named(number: int) -> str:
        if number == 1:
            raise LookupError("no such name")
        return str(path)

    ds = td.TextLineDataset(td.Dataset.range(3).map(named), on_error="skip")
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while len(found) < 4:
            try:
                found.append(next(it))
            except LookupError:
                found.append("an error")
            except StopIteration:
                found.append("the end")
    assert found == [b"one", "an error", b"one", "the end"]


def test_an_error_names_the_reader_and_the_element(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"one\n\xff\n")
    notes = {}
    for workers in (0, 1):
        with td.TextLineDataset(path, encoding="utf-8").iterator(workers=workers) as it:
            next(it)
            with pytest.raises(ValueError, match=r"bad\.txt, byte 4") as caught:
                next(it)
            notes[workers] = caught.value.__notes__[0]
    assert notes[0] == "tundish: in TextLineDataset, element 0.4, in this process"
    assert notes[1].startswith("tundish: in TextLineDataset, element 0.4, in worker ")


@pytest.mark.parametrize("workers", [0, 1])
def test_elements_that_are_no_paths(workers: int) -> None:
    for elements in ([3], [("a", "b")]):
        ds = td.TextLineDataset(td.Dataset.from_list(elements))
        with ds.iterator(workers=workers) as it, pytest.raises(TypeError, match="must give paths"):
            next(it)


def test_compressed_files_are_read_up_to_where_they_stood(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % k for k in range(3_000))))
    ds = td.TextLineDataset(path, compression_type="GZIP").shuffle(50, seed=1)
    with ds.iterator() as it:
        for _ in range(1_000):
            next(it)
        state = it.state_dict()
        rest = list(it)
    for workers in (0, 2):
        with ds.iterator(workers=workers) as it:
            it.load_state_dict(state)
            assert list(it) == rest


@pytest.mark.parametrize("encoding", [None, "utf-8"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_what_they_are_of_any_source(
    long: str, workers: int, encoding: str | None
) -> None:
    lines = td.TextLineDataset(long, encoding=encoding).take(1_000)
    want = list(td.Dataset.from_list(list(lines)).batch(64))

    found = list(td.TextLineDataset(long, encoding=encoding).batch(64).iterator(workers=workers))
    assert all(np.array_equal(a, b) for a, b in zip(found, want[:-1], strict=False))
    assert found[0].dtype == want[0].dtype == object
    assert sum(map(len, found)) == 20_000


def test_a_batch_is_given_up_where_a_record_fails(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a\nb\nc\n\xff\nd\ne\n")
    found: list[Any] = []
    with td.TextLineDataset(path, encoding="utf-8").batch(2).iterator() as it:
        while True:
            try:
                found.append(next(it).tolist())
            except StopIteration:
                break
            except ValueError as error:
                found.append(error.__notes__[-1])
    assert found == [
        ["a", "b"],
        "tundish: 1 element(s) before it in the batch were given up: (0, 4)",
        ["d", "e"],
    ]


def test_few_descriptors_are_open(tmp_path: Path) -> None:
    names = []
    for k in range(300):
        path = tmp_path / f"{k}.txt"
        path.write_text(f"{k}\n")
        names.append(str(path))
    before = psutil.Process().num_fds()
    with td.TextLineDataset(names, num_parallel_reads=8).iterator(workers=0) as it:
        next(it)
        assert psutil.Process().num_fds() <= before + 8
        assert len(list(it)) == 299
        assert psutil.Process().num_fds() <= before + 8


@pytest.mark.parametrize("index", [None, True])
@pytest.mark.parametrize("batched", [False, True])
def test_every_state_of_many_records_at_once(tmp_path: Path, *, batched: bool, index: Any) -> None:
    """Records come out of runs, passes and parts of them: each state is that of the last delivered."""
    names = []
    for name, count in (("a", 5), ("b", 0), ("c", 70)):
        path = tmp_path / name
        path.write_bytes(b"".join(b"%s%d\n" % (name.encode(), k) for k in range(count)))
        names.append(str(path))
    ds: td.Dataset = td.TextLineDataset(names, index=index).repeat(2).skip(3).take(140)
    ds = ds.batch(4) if batched else ds
    want = [np.asarray(x).tolist() for x in ds]
    with ds.iterator() as it:
        states = [it.state_dict()]
        for element in it:
            assert np.asarray(element).tolist() == want[len(states) - 1]
            states.append(it.state_dict())
    for at, state in enumerate(states):
        with ds.iterator() as it:
            it.load_state_dict(state)
            assert it.state_dict() == state
            assert [np.asarray(x).tolist() for x in it] == want[at:]


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_a_function_opens(long: str, workers: int) -> None:
    """tf.data's idiom: elements of an inner dataset are named by their number in it."""

    def opened(path: str) -> td.Dataset:
        return td.TextLineDataset(path).map(int)

    ds = td.Dataset.from_list([long, long]).interleave(opened, cycle_length=2)
    with ds.iterator(workers=workers) as it:
        for _ in range(15_001):
            next(it)
        state = it.state_dict()
    with ds.iterator(workers=2 - workers) as it:
        it.load_state_dict(state)
        assert [int(next(it)) for _ in range(3)] == [7_500, 7_501, 7_501]
