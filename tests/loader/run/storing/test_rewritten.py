"""Snapshots whose input files are written anew: what is unfinished is not continued, what is complete is told of."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tundish as td
from tundish.errors import SnapshotError
from tundish.snapshot.upkeep import compact


def refuse(*_: Any) -> Any:
    raise OSError("the store cannot be reached")


def lines(file: Path, word: str, *, at: int, count: int = 1000) -> None:
    file.write_text("".join(f"{word}{k:05d}\n" for k in range(count)))
    os.utime(file, ns=(at, at))


def words(elements: Any) -> set[str]:
    return {element[:3].decode() for element in elements}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in" / "lines.txt"


@pytest.fixture
def kept(tmp_path: Path, file: Path) -> Any:
    def made(**options: Any) -> td.Dataset[Any]:
        return td.TextLineDataset(str(file)).snapshot(tmp_path / "kept", **options)

    return made


@pytest.mark.parametrize("same", [False, True], ids=["another object", "the same object"])
def test_an_unfinished_one_is_not_continued(
    file: Path, kept: Any, same: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    ds = kept()
    with ds.iterator() as it:
        for _ in range(400):
            next(it)
    lines(file, "new", at=2)

    ds = ds if same else kept()
    assert words(ds) == {"new"}
    assert "lines.txt: written since, with the same size; the unfinished snapshot" in caplog.text
    caplog.clear()
    assert words(kept()) == {"new"}
    assert not caplog.text


def test_an_unfinished_one_of_the_same_files_is_continued(
    file: Path, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    with kept().iterator() as it:
        for _ in range(400):
            next(it)
    with kept().iterator() as it:
        assert it.stats.snapshots[0].durable == 400
        assert words(it) == {"old"}
    assert not caplog.text


def test_one_of_other_seeds_is_not_told_of_as_rewritten(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    for seed in (1, 2):
        td.set_seed(seed)
        try:
            ds = td.TextLineDataset(str(file)).shuffle(10).snapshot(tmp_path / "kept")
            with ds.iterator() as it:
                for _ in range(60):
                    next(it)
        finally:
            td.set_seed(None)
    assert not caplog.text


def test_files_are_told_of_also_after_a_second_writing(
    file: Path, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    list(kept())
    lines(file, "new", at=2)
    assert words(kept()) == {"old"}
    assert "written since" in caplog.text
    assert words(kept(mode="write")) == {"new"}
    caplog.clear()
    assert words(kept()) == {"new"}
    assert not caplog.text
    lines(file, "now", at=3)
    assert words(kept()) == {"new"}
    assert "written since" in caplog.text


def test_files_are_told_of_also_after_compacting(
    file: Path, kept: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    list(kept(shard_bytes=1000, batch_bytes=100))
    assert compact(tmp_path / "kept")
    assert words(kept()) == {"old"}
    assert not caplog.text
    lines(file, "new", at=2)
    assert words(kept()) == {"old"}
    assert "written since" in caplog.text


def test_files_of_another_folder_are_told_of(
    file: Path, kept: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines(file, "old", at=1)
    list(kept())
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    lines(other, "new", at=2)
    list(td.TextLineDataset(str(other)).snapshot(tmp_path / "kept"))
    assert f"files in {other.parent}, before in {file.parent}" in caplog.text


def test_a_local_url_is_the_file(file: Path, tmp_path: Path) -> None:
    lines(file, "old", at=1)

    def made() -> td.Dataset[Any]:
        return td.TextLineDataset(f"file://{file}").snapshot(tmp_path / "kept")

    list(made())
    lines(file, "new", at=1, count=1001)
    assert words(made()) == {"new"}


def test_an_unfinished_one_is_not_continued_over_another_size_at_a_url(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")
    url = f"memory://{tmp_path.name}/lines.txt"

    def made() -> td.Dataset[Any]:
        return td.TextLineDataset(url).snapshot(tmp_path / "kept")

    store.pipe(url, b"old\n" * 100)
    for _ in range(2):
        with made().iterator() as it:
            for _ in range(60):
                next(it)
    with patch.object(type(store), "size", refuse), made().iterator() as it:
        assert it.stats.snapshots[0].durable == 60, "what is not known is no difference"
    assert not caplog.text
    store.pipe(url, b"new\n" * 101)
    assert words(made()) == {"new"}
    assert "lines.txt: 400 -> 404 bytes; the unfinished snapshot" in caplog.text


def test_one_that_is_being_written_anew_is_not_compacted(
    file: Path, kept: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = {"shard_bytes": 1000, "batch_bytes": 100}
    lines(file, "old", at=1)
    list(kept(**small))
    lines(file, "new", at=2)
    with kept(mode="write", **small).iterator() as it:
        next(it)
        with pytest.raises(SnapshotError, match="is being written by process"):
            compact(tmp_path / "kept")
        list(it)
    caplog.set_level(logging.ERROR)
    assert words(kept(**small)) == {"new"}
    assert compact(tmp_path / "kept")
    assert words(kept(**small)) == {"new"}
