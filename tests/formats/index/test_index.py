"""Indexes: found out once, kept, and never those of another file than the one that is there."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from tundish.formats import index
from tundish.formats.fixed import FixedFormat
from tundish.formats.format import Places
from tundish.formats.index import Index, Keep, indexes_of
from tundish.formats.lines import LinesFormat

LINES = LinesFormat()
LARGE = b"".join(b"line %d\n" % k for k in range(100_000))  # above `WORTH_KEEPING`
OTHER = LARGE.replace(b"line 7\n", b"li\ne 7\n")  # of the same size


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNDISH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "index"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "large.txt"
    path.write_bytes(LARGE)
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the files that were looked through."""
    seen: list[str] = []
    places = LinesFormat.places

    def noting(form: LinesFormat, path: str) -> Places:
        seen.append(Path(path).name)
        return places(form, path)

    monkeypatch.setattr(LinesFormat, "places", noting)
    return seen


def index_of(path: object, keep: Keep = True) -> Index:
    (index,) = indexes_of(LINES, [str(path)], keep=keep)
    return index


def starts(content: bytes) -> np.ndarray:
    return np.cumsum([0, *(len(line) + 1 for line in content.split(b"\n")[:-2])])


def says(index: Index, content: bytes) -> bool:
    """Return True if these are the places of the lines of a file."""
    return np.array_equal(index.places, starts(content))


def test_it_is_found_out_once_and_kept(path: Path, cache: Path, scans: list[str]) -> None:
    for _ in range(3):
        index = index_of(path)
        assert says(index, LARGE)
        assert index.identity == (len(LARGE), 10**18)
        del index
        gc.collect()  # this process knows nothing of it any more

    assert scans == ["large.txt"]
    assert [file.suffix for file in cache.iterdir()] == [".arrow"]


def test_it_is_the_same_object_while_somebody_holds_it(path: Path) -> None:
    first = index_of(path)

    assert index_of(path) is first
    assert indexes_of(LinesFormat(encoding="utf-8"), [str(path)])[0] is not first


def test_another_process_reads_it(path: Path, cache: Path) -> None:
    index_of(path)
    (file,) = cache.iterdir()
    before = file.stat()
    program = (
        "import sys; from tundish.formats.index import indexes_of; from tundish.formats.lines import LinesFormat\n"
        "LinesFormat.places = None\n"
        "print(len(indexes_of(LinesFormat(), sys.argv[1:])[0].places))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True
    )

    assert ran.stdout == "100000\n"
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def test_it_is_an_arrow_file(path: Path, cache: Path) -> None:
    index_of(path)
    (file,) = cache.iterdir()
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
        said = json.loads(table.schema.metadata[b"tundish"])

    assert table.column_names == ["offsets"]
    assert table["offsets"].to_pylist() == starts(LARGE).tolist()
    assert said["path"] == str(path)
    assert said["format"] == "TextLineDataset"
    assert said["count"] == 100_000
    assert said["identity"] == [len(LARGE), 10**18]


def test_beside_the_file(path: Path, cache: Path, scans: list[str]) -> None:
    index_of(path, "beside")
    gc.collect()
    moved = path.parent / "moved"
    moved.mkdir()
    for file in path.parent.glob("large.txt*"):
        file.rename(moved / file.name)

    assert says(index_of(moved / path.name, "beside"), LARGE)
    assert scans == ["large.txt"]
    assert sorted(file.name for file in moved.iterdir()) == ["large.txt", "large.txt.index.arrow"]
    assert not cache.exists()


def test_only_in_memory(path: Path, cache: Path, scans: list[str]) -> None:
    first = index_of(path, keep=False)
    assert index_of(path, keep=False) is first
    assert scans == ["large.txt"]
    assert list(path.parent.iterdir()) == [path]


def test_small_files_and_arithmetic_are_not_kept(tmp_path: Path, path: Path, cache: Path) -> None:
    small = [tmp_path / f"{k}.txt" for k in range(5)]
    for file in small:
        file.write_bytes(b"a\nb\n")

    assert [list(x.places) for x in indexes_of(LINES, list(map(str, small)))] == [[0, 2]] * 5
    assert indexes_of(FixedFormat(2), [str(path)])[0].places == range(0, len(LARGE), 2)
    assert not cache.exists()


# -- files that change -----------------------------------------------------------------------------


@pytest.mark.parametrize("held", [True, False], ids=["known", "kept"])
def test_a_file_that_changed(path: Path, held: bool) -> None:
    first = index_of(path)
    if not held:
        del first
        gc.collect()
    for content, changed in (
        (OTHER, 10**18 + 1),
        (LARGE + b"more\n", 10**18),
        (LARGE, 10**18),
        (LARGE, 10**18 + 2),
    ):
        path.write_bytes(content)
        os.utime(path, ns=(changed, changed))
        index = index_of(path)
        assert says(index, content)
        assert index.identity == (len(content), changed)


def test_a_file_that_changes_while_it_is_looked_through(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, times = LinesFormat.places, iter(range(100))
    changes = [OTHER, LARGE]

    def changing(form: LinesFormat, name: str) -> Places:
        found = places(form, name)
        if changes:
            path.write_bytes(changes.pop())
            os.utime(path, ns=(10**18, 10**18 + 1 + next(times)))
        return found

    monkeypatch.setattr(LinesFormat, "places", changing)
    assert says(index_of(path), OTHER)
    gc.collect()
    changes.extend([OTHER, LARGE] * 10)
    for file in cache.iterdir():
        file.unlink()
    path.write_bytes(LARGE)
    assert index_of(path).identity is None  # it changes all the time: nobody knows
    assert not list(cache.iterdir())


def test_a_file_that_has_just_been_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another change in the same tick of the clock would not change its time: that tick is waited for."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.005)
    index_of(path)
    assert [round(seconds, 3) for seconds in slept] == [0.015]
    path.write_bytes(OTHER)
    os.utime(path, ns=(10**18 - 10**8, 10**18 - 10**8))
    index_of(path)
    assert len(slept) == 1


# -- files that cannot be read --------------------------------------------------------------------


def test_files_that_cannot_be_opened(tmp_path: Path, path: Path) -> None:
    (tmp_path / "folder").mkdir()
    paths = [*(str(tmp_path / name) for name in ("nope", path.name, "folder")), "nosuch://x"]
    found = indexes_of(LINES, paths)

    assert [type(index.error) for index in found] == [
        FileNotFoundError, type(None), IsADirectoryError, ValueError,
    ]  # fmt: skip
    assert [len(index.places) for index in found] == [0, 100_000, 0, 0]
    assert all(a is b for a, b in zip(found, indexes_of(LINES, paths), strict=True))
    Path(paths[0]).write_bytes(b"a\n")
    assert indexes_of(LINES, paths)[0].error is None


# -- the folder ------------------------------------------------------------------------------------


def _flipped(at: int) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 4
        return bytes(changed)

    return damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[:1000],
    "cut off at the end": lambda data: data[:-1],
    "foreign": lambda data: b"something else",
    "of another version": lambda data: data.replace(b'"version": 2', b'"version": 9'),
    "lost blocks": lambda data: data[:5000] + bytes(len(data) - 10_000) + data[-5000:],
    "a flipped bit": _flipped(300_000),
    "a flipped bit in the footer": _flipped(-300),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_index_is_made_anew(
    path: Path, cache: Path, scans: list[str], damage: Callable[[bytes], bytes]
) -> None:
    index_of(path)
    gc.collect()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    assert damage(whole) != whole
    file.unlink()  # a new file, as the old one may be mapped
    file.write_bytes(damage(whole))

    assert says(index_of(path), LARGE)
    gc.collect()
    index_of(path)
    assert scans == ["large.txt"] * 2  # and kept again
    assert len(list(cache.iterdir())) == 1


def test_the_index_of_another_file_under_its_name(path: Path, cache: Path) -> None:
    other = path.with_name("other.txt")
    other.write_bytes(OTHER)
    os.utime(other, ns=(10**18, 10**18))
    index_of(path)
    (file,) = cache.iterdir()
    index_of(other)
    (theirs,) = set(cache.iterdir()) - {file}
    gc.collect()
    theirs.replace(file)

    assert says(index_of(path), LARGE)


def test_a_folder_that_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNDISH_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level("INFO", "tundish"):
        assert len(index_of(path).places) == 100_000

    assert "cannot be kept" in caplog.text


def test_what_cannot_be_written_whole_leaves_nothing(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(sink: object, batch: object) -> None:
        sink.write(b"some")  # type: ignore[attr-defined]  # a file
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "_write_batch", full)
    index_of(path)

    assert list(cache.iterdir()) == []


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert index.cache_folder() == Path(os.environ["TUNDISH_CACHE_DIR"])
    monkeypatch.delenv("TUNDISH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert index.cache_folder() == Path("/x/tundish")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert index.cache_folder() == Path("/h/.cache/tundish")


def test_a_user_without_a_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert says(index_of(path), LARGE)


def test_options_are_not_written(cache: Path, path: Path) -> None:
    form = LinesFormat(storage_options=(("secret", "xyzzy"),), buffer_size=7)
    indexes_of(form, [str(path)])
    (file,) = cache.iterdir()

    assert b"xyzzy" not in file.read_bytes()
    assert set(cache.iterdir()) == {file}
    gc.collect()
    index_of(path)  # what says only how to read is no other format
    assert set(cache.iterdir()) == {file}


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, "beside"])
def test_files_behind_urls(cache: Path, scans: list[str], keep: Keep) -> None:
    memory = fsspec.filesystem("memory")
    for name in "abc":
        memory.pipe_file(f"/indexed/{name}.txt", LARGE)
    memory.pipe_file("/indexed/small.txt", b"x\n")
    paths = [f"memory://indexed/{name}.txt" for name in ("a", "b", "c", "small", "nope")]
    for _ in range(2):
        found = indexes_of(LINES, paths, keep=keep)
        assert [len(index.places) for index in found] == [100_000] * 3 + [1, 0]
        assert isinstance(found[4].error, FileNotFoundError)
        assert all(a is b for a, b in zip(found, indexes_of(LINES, paths, keep=keep), strict=True))
        del found
        gc.collect()
    assert scans.count("a.txt") == 1
    assert memory.exists("/indexed/a.txt.index.arrow") is (keep == "beside")
    assert len(list(cache.iterdir()) if cache.exists() else []) == (3 if keep is True else 0)
    assert threading.active_count() == 1
    memory.rm("/indexed", recursive=True)


def test_an_index_that_is_cut_while_it_is_used(path: Path, cache: Path) -> None:
    """The index is read, not mapped: who reads a mapped file that was cut is killed."""
    index_of(path)
    gc.collect()
    index = index_of(path)
    (file,) = cache.iterdir()
    os.truncate(file, 0)

    assert says(index, LARGE)
