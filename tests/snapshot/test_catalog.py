"""The catalog under a path, and beginning, completing and tidying it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.snapshot.disk import DEAD, HEADER, KEY, RUN, UNNAMED, WHOLE, Disk

from tundish.snapshot.catalog import Catalog
from tundish.snapshot.files import local
from tundish.snapshot.lease import STALE_S, Holder, adopt_run
from tundish.snapshot.manifest import Manifest, RunOutcome
from tundish.snapshot.records import RunHeader
from tundish.snapshot.run import read_run

OTHER = "fedcba9876543210"


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def manifest(name: str = "content", key: str = KEY, created: str = "") -> Manifest:
    return Manifest(key, name, (), 0, 0, created=created)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "nowhere")

    assert catalog.keys() == []
    assert catalog.runs(KEY) == []
    assert catalog.manifest(KEY) is None
    assert catalog.pipeline(KEY) is None
    assert catalog.newest() is None
    assert catalog.best_run(KEY) is None
    assert catalog.clean(KEY) == []
    assert catalog.examine(KEY)[0] is RunOutcome.EMPTY
    assert not (tmp_path / "nowhere").exists()


def test_a_run_begins_with_its_header(disk: Disk) -> None:
    catalog = disk.catalog
    first = catalog.begin_run(KEY, HEADER, [{"op": "range", "args": {"stop": 5}}])
    second = catalog.begin_run(KEY, HEADER, [{"op": "another"}])

    assert catalog.keys() == [KEY]
    assert sorted(catalog.runs(KEY)) == sorted([first, second])
    assert catalog.pipeline(KEY) == [{"op": "range", "args": {"stop": 5}}]
    assert read_run(catalog.at(KEY), first).header == HEADER
    assert catalog.examine(KEY)[0] is RunOutcome.FRESH


def test_the_newest_is_what_was_completed_last(disk: Disk) -> None:
    disk.catalog.publish(OTHER, manifest(key=OTHER, created="2026-01-02"))
    disk.catalog.publish(KEY, manifest(created="2026-01-01"))
    disk.catalog.publish("0" * 16, manifest())  # by its manifest of another key

    assert disk.catalog.newest() == OTHER


@pytest.mark.parametrize("leftover", ["no such folder", "lease.json", "0123", "0123456789ABCDEF"])
def test_other_names_are_no_keys(disk: Disk, leftover: str) -> None:
    (disk.root / leftover).mkdir()

    assert disk.catalog.keys() == []


def started(disk: Disk, **changes: Any) -> str:
    """A run of five elements, with another header."""
    header: RunHeader = replace(HEADER, **changes)
    run = disk.catalog.begin_run(KEY, header, [])
    for name in ("journal/00000000.json", "state/00000000.json", "shard-000000-0badcafe.arrow"):
        disk.catalog.at(KEY).create(f"runs/{run}/{name}", WHOLE[name])
    return run


def test_the_longest_run_is_continued(disk: Disk) -> None:
    disk.put_all("index.arrow", "manifest.json")
    started(disk)
    found = disk.catalog.best_run(KEY)

    assert found is not None
    assert (found.run, found.next, found.counts, found.state) == (
        RUN,
        10,
        {"skipped": 1},
        {"n": 10},
    )
    assert found.errors[4].args == ("bad", 4)
    assert found.entries["start"].tolist() == [0, 5]
    assert disk.catalog.examine(KEY)[0] is RunOutcome.PREFIX


def test_runs_of_other_seeds_parts_and_living_writers_are_not(disk: Disk) -> None:
    part = started(disk, part=(1, 3))
    seeds = started(disk, seeds={"seed": 8, "graph_seed": None})
    started(disk, key=OTHER)

    def best(**wanted: Any) -> str | None:
        found = disk.catalog.best_run(KEY, **wanted)
        return found.run if found else None

    assert best(part=(1, 3)) == part
    assert best(part=(0, 3)) is None
    assert best() == seeds
    assert best(seeds={"graph_seed": None, "seed": 8}) == seeds
    assert best(seeds={"seed": 7}) is None
    alive = Holder(DEAD.place, DEAD.host, os.getppid(), _born(os.getppid()))
    assert adopt_run(disk.catalog.at(KEY), seeds, alive.to_json()) is not None
    assert best() is None
    assert best(living=True) == seeds
    assert adopt_run(disk.catalog.at(KEY), seeds, Holder.here().to_json()) is not None
    assert best() == seeds


def _born(pid: int) -> str:
    from tundish.snapshot import lease

    born = lease._born(pid)
    assert born is not None
    return born


def test_a_finished_run_comes_before_a_longer_one(disk: Disk) -> None:
    """A finished run needs only its manifest."""
    disk.put_all("manifest.json")
    other = started(disk)
    for name in ("journal/00000001.json", "state/00000001.json", "shard-000001-0badcafe.arrow"):
        disk.catalog.at(KEY).create(f"runs/{other}/{name}", WHOLE[name])
    found = disk.catalog.best_run(KEY)

    assert found is not None
    assert (found.run, found.outcome) == (RUN, RunOutcome.FINISHED)
    assert disk.catalog.examine(KEY)[0] is RunOutcome.FINISHED


def test_a_damaged_run_does_not_keep_another_from_going_on(disk: Disk) -> None:
    disk.put_all("index.arrow", "manifest.json")
    disk.put("journal/00000001.json", b"{")
    run = started(disk)
    found = disk.catalog.best_run(KEY)

    assert found is not None
    assert found.run == run
    assert disk.catalog.examine(KEY)[0] is RunOutcome.PREFIX
    assert [prefix.next for prefix in disk.catalog.prefixes(KEY)] == [5, 5]


def test_one_manifest_is_published(disk: Disk) -> None:
    assert disk.catalog.publish(KEY, manifest("first"))
    assert not disk.catalog.publish(KEY, manifest("second"))
    found = disk.catalog.manifest(KEY)
    assert found == manifest("first")
    disk.catalog.replace(KEY, manifest("third"))
    assert disk.catalog.manifest(KEY) == manifest("third")


def test_a_manifest_whose_writer_died_with_it_empty_is_made_again(disk: Disk) -> None:
    """Only where there are no links; and not before it is clear that he died."""
    path = disk.put("manifest.json", b"")

    assert disk.catalog.manifest(KEY) is None
    assert not disk.catalog.publish(KEY, manifest())
    modified = path.stat().st_mtime
    os.utime(path, (modified - 2 * STALE_S, modified - 2 * STALE_S))
    assert disk.catalog.publish(KEY, manifest())
    assert disk.catalog.manifest(KEY) == manifest()


def test_a_record_whose_writer_died_with_it_empty_is_taken_over(disk: Disk) -> None:
    disk.put_all("index.arrow", "manifest.json")
    disk.put("journal/00000002.json", b"")
    prefix = adopt_run(disk.catalog.at(KEY), RUN, DEAD.to_json())

    assert prefix is not None
    assert (prefix.next, prefix.records) == (10, 3)
    assert read_run(disk.catalog.at(KEY), RUN).records == 3


def test_what_dead_processes_left_outside_of_runs_is_removed(disk: Disk) -> None:
    disk.put_all("index.arrow", "manifest.json")
    left = {
        f"{KEY}/manifest.json.1a2b3c4d.tmp",
        f"{KEY}/pipeline.json.1a2b3c4d.tmp",
        f"{KEY}/runs/{'b' * 32}/run.json.1a2b3c4d.tmp",
    }
    for name in left:
        (disk.root / name).parent.mkdir(parents=True, exist_ok=True)
        (disk.root / name).write_bytes(b"{")

    assert set(disk.catalog.clean(KEY)) == left
    assert disk.catalog.clean(KEY) == []
    assert f"{UNNAMED}.tmp" in disk.files()  # of a run: for `adopt_run`


def test_what_the_writer_of_a_complete_snapshot_left_is_removed(disk: Disk) -> None:
    disk.put_all()
    disk.put("journal/00000001.json.1a2b3c4d.tmp", b"{")
    disk.put("writer-0badcafe.tmp.log", b"{}")
    disk.put("shard-000009-0badcafe.arrow", b"of a writer that lived a moment longer")
    disk.put("state/00000002.json", b"{}")

    assert len(disk.catalog.clean(KEY)) == 6
    assert disk.files() == set(WHOLE) - {
        "manifest.json",
        "pipeline.json",
        "lease.json",
        f"{UNNAMED}.tmp",
    }
    assert disk.catalog.at(KEY).list() == ["manifest.json", "pipeline.json", "runs"]
    assert disk.catalog.examine(KEY)[0] is RunOutcome.COMPLETE


def test_a_complete_snapshot_that_was_left_in_peace_is_not_looked_through(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put_all("lease.json", f"{UNNAMED}.tmp")
    seen: list[str] = []
    listing: Callable[..., list[str]] = local.LocalStore.list

    def watched(store: local.LocalStore, folder: str = "") -> list[str]:
        seen.append(folder)
        return listing(store, folder)

    monkeypatch.setattr(local.LocalStore, "list", watched)
    assert disk.catalog.clean(KEY) == []
    assert seen == [KEY]


def test_who_may_only_read_leaves_what_dead_writers_left(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put_all()

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(local.LocalStore, "remove", refuse)
    disk.catalog.clean(KEY)
    assert disk.catalog.examine(KEY)[0] is RunOutcome.COMPLETE


def test_a_remote_snapshot_has_the_same_states() -> None:
    catalog = Catalog("memory://states")
    for name in WHOLE:
        folder = KEY if name in {"manifest.json", "pipeline.json"} else f"{KEY}/runs/{RUN}"
        if name not in {"manifest.json", "index.arrow"}:
            catalog.store.create(f"{folder}/{name}", WHOLE[name])

    assert catalog.examine(KEY)[0] is RunOutcome.PREFIX
    prefix = adopt_run(catalog.at(KEY), RUN, DEAD.to_json())
    assert prefix is not None
    assert (prefix.next, prefix.records) == (10, 3)
    assert f"{UNNAMED}.tmp" not in catalog.store.list(f"{KEY}/runs/{RUN}")
    catalog.store.create(f"{KEY}/runs/{RUN}/index.arrow", WHOLE["index.arrow"])
    assert catalog.examine(KEY)[0] is RunOutcome.FINISHED
    catalog.store.create(f"{KEY}/manifest.json", WHOLE["manifest.json"])
    assert catalog.examine(KEY)[0] is RunOutcome.COMPLETE
    catalog.store.remove(f"{KEY}/runs/{RUN}/shard-000001-0badcafe.arrow")
    assert catalog.examine(KEY)[0] is RunOutcome.LOST_SHARD
    catalog.store.remove_tree()
