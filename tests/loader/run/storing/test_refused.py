"""Snapshots that cannot be begun, as their store fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import tundish as td
from tundish.errors import SnapshotError, SnapshotWriteError
from tundish.snapshot.files.local import LocalStore


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
