"""Writing and keeping snapshots at a URL, where shards are made on this machine first."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.snapshot.runs import KEY, RUN, begin, columns, element, failure

from tundish.snapshot.catalog import Catalog
from tundish.snapshot.lease import adopt_run
from tundish.snapshot.reading.reader import open_reader
from tundish.snapshot.run import read_run
from tundish.snapshot.upkeep import compact, export, gc, info, verify
from tundish.snapshot.writing.writer import RunWriter

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    url = f"memory://{uuid.uuid4().hex}"
    yield url
    filesystem, root = fsspec.core.url_to_fs(url)
    if filesystem.exists(root):
        filesystem.rm(root, recursive=True)


def writer(url: str, run: str = RUN, name: str = "abcdef01", **options: Any) -> RunWriter:
    begin(url, run)
    made: dict[str, Any] = {"compression": "lz4", "shard_bytes": 2000, **options}
    return RunWriter(url, KEY, run, name=name, **made)


def write(made: RunWriter, first: int, stop: int) -> None:
    for n in range(first, stop, 10):
        made.write(n, columns(n, n + 10, [44]), [failure(44)] if n == 40 else [])


def finish(made: RunWriter) -> None:
    assert made.finish({"created": "2026-01-01T00:00:00+00:00", "library": "0"})


def test_a_snapshot_is_written_read_and_kept(url: str, tmp_path: Path) -> None:
    made = writer(url)
    write(made, 0, 60)
    made.commit(0, made.seal(), 60, {"at": 60}, {})
    write(made, 60, 90)
    made.commit(1, made.seal(), 90, {"at": 90}, {})
    finish(made)

    assert list(tmp_path.iterdir()) == []  # where they were made, nothing is left
    assert verify(url) == []
    (done,) = compact(url, shard_bytes=1 << 20)
    assert done.after < done.before
    assert len(gc(url, older_than=0, dry_run=False).removed) == 1
    assert verify(url) == []
    assert info(url).keys[0].rows == 90
    reader = open_reader(url, KEY)
    for n in range(90):
        if n != 44:
            assert np.array_equal(reader[n]["values"], element(n)["values"])
    assert export(url, tmp_path / "out.parquet").rows == 89
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("sealed", [False, True])
def test_the_place_of_a_dead_writer_is_taken(url: str, tmp_path: Path, *, sealed: bool) -> None:
    dead = writer(url)
    write(dead, 0, 60)
    if sealed:
        dead.seal()
    dead._pending.let_go()
    made = writer(url)
    write(made, 60, 90)
    made.commit(0, made.seal(), 90, None, {})
    finish(made)

    assert verify(url) == []
    assert len(open_reader(url, KEY)) == 90
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_here_goes_when_its_run_is_continued(
    url: str, tmp_path: Path
) -> None:
    dead = writer(url)
    write(dead, 0, 20)
    dead._pending.let_go()
    assert adopt_run(Catalog(url).at(KEY), RUN, {}) is not None

    made = writer(url, name="abcdef02")
    write(made, 0, 90)
    assert [path.name for path in tmp_path.iterdir()] == [f"tundish-{RUN}-abcdef02"]
    made.commit(1, made.seal(), 90, None, {})
    finish(made)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_committed_is_removed(url: str, tmp_path: Path) -> None:
    made = writer(url)
    write(made, 0, 20)
    made.commit(0, made.seal(), 20, None, {})
    write(made, 20, 50)
    made.seal()
    made.abandon()

    store = Catalog(url).at(KEY)
    named = {shard.file for shard in read_run(store, RUN).shards}
    assert {name for name in store.list(f"runs/{RUN}") if name.endswith(".arrow")} == named
    assert list(tmp_path.iterdir()) == []
    again = adopt_run(store, RUN, {})
    assert again is not None
    assert again.next == 20
