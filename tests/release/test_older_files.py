"""A state and a snapshot that version 0.1.0 wrote (`from-0.1`) are read by this version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tundish as td

OLDER = Path(__file__).with_name("from-0.1")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_gives_the_rest(workers: int) -> None:
    ds = td.Dataset.range(40).shuffle(16, seed=3).batch(4).repeat(2)
    whole = [batch.tolist() for batch in ds]

    with ds.iterator(workers=workers) as it:
        it.restore(OLDER / "state.json")
        assert [batch.tolist() for batch in it] == whole[7:]


def test_a_state_is_written_as_before(tmp_path: Path) -> None:
    with iter(td.Dataset.range(40).shuffle(16, seed=3).batch(4).repeat(2)) as it:
        for _ in range(7):
            next(it)
        it.save(tmp_path / "state.json")

    now, then = (json.loads((at / "state.json").read_text()) for at in (tmp_path, OLDER))
    assert {**now, "python": None} == {**then, "python": None}


def test_a_snapshot_is_read_and_not_written_again(tmp_path: Path) -> None:
    shutil.copytree(OLDER / "snapshot", tmp_path / "snapshot")
    before = contents(tmp_path)
    ds = td.Dataset.range(24).batch(4).snapshot(str(tmp_path / "snapshot"))

    with iter(ds) as it:
        assert [batch.tolist() for batch in it] == [[*range(k, k + 4)] for k in range(0, 24, 4)]
        done = it.stats.snapshots[0].doing
    assert done == "read"
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
