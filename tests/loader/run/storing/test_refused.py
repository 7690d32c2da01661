"""Snapshots that cannot be begun, as their store fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tundish as td
from tundish.errors import SnapshotError, SnapshotWriteError
from tundish.loader.run.storing import telling
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.fingerprint import keys


@pytest.mark.parametrize("name", ["run.json", "pipeline.json"])
def test_the_error_is_of_the_snapshot_and_once(tmp_path: Path, name: str) -> None:
    create = LocalStore.create
    failed: list[str] = []

    def failing(self: Any, file: str, *args: Any) -> bool:
        if file.endswith(name) and not failed:
            failed.append(file)
            raise TimeoutError("the store does not answer")
        return create(self, file, *args)

    ds = td.Dataset.range(5).snapshot(tmp_path / "kept")
    with (
        patch.object(LocalStore, "create", failing),
        pytest.raises(SnapshotWriteError, match="the store does not answer"),
    ):
        list(ds)
    assert failed
    assert list(ds) == list(ds) == list(range(5))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x: {"x": None if x % 2 else "a"}, id="in one batch"),
        pytest.param(lambda x: {"x": None if x > 6 else "a"}, id="later"),
        pytest.param(lambda x: {"x": x} if x % 2 else {"y": x}, id="keys"),
        pytest.param(lambda x: {"x": x} if x > 6 else {"y": x}, id="other keys later"),
    ],
)
def test_elements_that_differ_are_refused_with_what_to_do(tmp_path: Path, make: Any) -> None:
    ds = td.Dataset.range(9).map(make).snapshot(tmp_path, batch_bytes=1)
    with ds.iterator(workers=0) as it, pytest.raises(SnapshotError) as told:
        for _ in it:
            pass
    assert "make them alike with a `map`" in str(told.value)


@pytest.mark.parametrize("kept", [td.Dataset.snapshot, td.Dataset.cache])
def test_one_that_a_function_returns_is_not_written_which_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: Any
) -> None:
    telling._say_once.cache_clear()

    def inner(n: Any) -> td.Dataset:
        made: td.Dataset = kept(td.Dataset.range(3), f"{tmp_path}/{n}")
        return made

    assert len(list(td.Dataset.range(2).interleave(inner))) == 6
    (record,) = caplog.records
    assert "never written" in record.getMessage()
    assert not [*tmp_path.iterdir()]
    for n in range(2):
        assert list(inner(n)) == [0, 1, 2]
    telling._say_once.cache_clear()
    assert len(list(td.Dataset.range(2).interleave(inner))) == 6
    assert caplog.records == [record]


def test_an_open_iterator_that_writes_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that a notebook's cell has left: nothing would ever be written, and nobody would know why."""
    ds = td.Dataset.range(9).map(abs).snapshot(tmp_path)
    left = iter(ds)
    next(left)
    for _ in range(2):
        assert list(ds) == [*range(9)]
    (record,) = caplog.records
    assert "another iterator of this program" in record.getMessage()
    left.close()
    assert list(ds) == [*range(9)]
    with iter(ds) as it:
        assert it.stats.snapshots[0].doing == "read"


def test_memory_that_workers_cannot_see_is_refused_at_once() -> None:
    pytest.importorskip("fsspec")
    ds = td.Dataset.range(9).map(abs).snapshot("memory://test-refused")
    for each, workers in ((ds, 2), (ds.prefetch(1), 0)):
        with pytest.raises(SnapshotError, match="which worker processes cannot see: use a folder"):
            each.iterator(workers=workers)
    assert list(ds) == [*range(9)]  # nobody keeps it from writing
    with ds.map(abs).iterator(workers=2, executor="thread") as it:
        assert it.stats.snapshots[0].doing == "read"
        assert list(it) == [*range(9)]
    loaded = td.Dataset.load("memory://test-refused")
    assert list(loaded) == [*range(9)]
    with pytest.raises(SnapshotError, match="which worker processes cannot see: use a folder"):
        loaded.map(abs).iterator(workers=2)


def test_another_python_is_told_of_as_the_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> td.Dataset:
        return td.Dataset.range(3).map(lambda x: x + 1).snapshot(tmp_path)

    list(make())
    for module in (keys, telling):
        monkeypatch.setattr(module, "describe_interpreter", lambda: "cpython 3.99")
    list(make())
    (record,) = caplog.records
    assert "the version of Python (this is cpython 3.99)" in record.getMessage()
