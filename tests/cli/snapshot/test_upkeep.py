"""``tundish snapshot info|verify|gc|compact|export``: what they say, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.cli.snapshot.pipelines import kept, write

from tundish.cli import main
from tundish.cli.inspect import find
from tundish.cli.snapshot import DONE, INCOMPLETE, USAGE


def snapshot(*words: str) -> int:
    return main(["snapshot", *words])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def two(file: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Two pipelines under one path, one in many small files."""
    small = ("--shard-bytes", "512", "--batch-bytes", "256")
    assert write(file, "filtered") == DONE
    assert write(file, "data", *small) == DONE
    capsys.readouterr()
    return file


def key_of(file: Path, name: str) -> str:
    with find(f"{file.name}:{name}").snapshot("kept").iterator(workers=0) as elements:
        return elements.stats.snapshots[0].key


def test_info(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot("info", "kept") == DONE
    told = capsys.readouterr().out
    assert "kept: 2 pipelines" in told
    head, *rows = [line.split() for line in told.splitlines()[2:5]]
    assert head == ["key", "state", "elements", "bytes", "files", "compression", "since"]
    assert {row[0] for row in rows} == {key_of(two, "data"), key_of(two, "filtered")}
    assert {"complete"} <= {word for row in rows for word in row}

    assert snapshot("info", "kept", "--json") == DONE
    found = {line["key"]: line for line in lines(capsys)}
    assert found[key_of(two, "data")]["rows"] == 60
    assert found[key_of(two, "filtered")]["outcome"] == "COMPLETE"

    assert snapshot("info", "kept", "--key", key_of(two, "data")[:6], "--json") == DONE
    assert [line["key"] for line in lines(capsys)] == [key_of(two, "data")]


def test_info_of_shards_that_are_no_snapshot_yet(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for shard in ("2/3", "0/3"):
        assert write(file, "data", "--shard", shard) == DONE
    capsys.readouterr()

    assert snapshot("info", "kept") == DONE
    told = capsys.readouterr().out
    assert "2 of 3 shards         40 " in told
    first, second = [line.strip() for line in told.splitlines() if line.startswith("  run")]
    assert "  shard 0/3: 20 elements, " in first
    assert "  shard 2/3: 20 elements, " in second
    assert first.endswith(" in 1 file; complete; `finalize` makes one snapshot of all shards")


def test_verify(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot("verify", "kept") == DONE
    assert "as it was written" in capsys.readouterr().out

    key = key_of(two, "data")
    shard = min(two.parent.glob(f"kept/{key}/runs/*/shard-*.arrow"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.unlink()  # a file of a snapshot is never changed: who has it open sees the old one
    shard.write_bytes(data)
    assert snapshot("verify", "kept") == INCOMPLETE
    assert shard.name in capsys.readouterr().out
    assert snapshot("verify", "kept", "--key", key_of(two, "filtered")) == DONE
    capsys.readouterr()
    assert snapshot("verify", "kept", "--json") == INCOMPLETE
    problem, last = lines(capsys)
    assert problem["event"] == "problem"
    assert problem["file"].endswith(shard.name)
    assert last == {"event": "finished", "status": INCOMPLETE}


def test_compact_and_gc(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = find(f"{two.name}:data")
    before = kept(dataset.snapshot("kept"))
    files = len(list(two.parent.glob("kept/*/runs/*/shard-*.arrow")))

    assert snapshot("compact", "kept") == DONE
    assert "file(s) are 1 now" in capsys.readouterr().out
    assert snapshot("compact", "kept") == DONE
    assert "already compact" in capsys.readouterr().out

    assert snapshot("gc", "kept") == DONE  # what changed lately is left alone
    assert len(list(two.parent.glob("kept/*/runs/*/shard-*.arrow"))) == files + 1
    assert snapshot("gc", "kept", "--older-than", "0s", "--dry-run") == DONE
    assert "another run is the snapshot" in capsys.readouterr().out
    assert len(list(two.parent.glob("kept/*/runs/*/shard-*.arrow"))) == files + 1
    assert snapshot("gc", "kept", "--older-than", "0s", "--json") == DONE
    removed, last = lines(capsys)
    assert removed["event"] == "removed"
    assert last["folders"] == 1
    assert len(list(two.parent.glob("kept/*/runs/*/shard-*.arrow"))) == 2
    assert kept(find(f"{two.name}:data").snapshot("kept")) == before

    assert snapshot("gc", "kept", "--older-than", "0s", "--keep", "1") == DONE
    assert len(list(two.parent.glob("kept/*/manifest.json"))) == 1


def test_export(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot("export", "kept", "copy.parquet", "--key", key_of(two, "filtered")) == DONE
    assert "copy.parquet: 20 elements" in capsys.readouterr().out
    assert pq.read_table("copy.parquet").column(0).to_pylist() == list(range(0, 60, 3))

    assert snapshot("export", "kept", "copy.parquet") == USAGE
    assert "is not overwritten" in capsys.readouterr().err
    assert snapshot("export", "kept", "no/folder/copy.parquet") == USAGE
    assert "there is no folder" in capsys.readouterr().err


def test_what_is_not_complete_is_not_exported(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "data", "--shard", "0/2") == DONE
    assert snapshot("export", "kept", "copy.parquet") == INCOMPLETE
    assert "is not complete" in capsys.readouterr().err
    assert snapshot("info", "kept") == DONE


@pytest.mark.parametrize("action", ["info", "verify", "gc", "compact", "export"])
def test_where_nothing_is(action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["copy.parquet"] if action == "export" else []
    assert snapshot(action, str(tmp_path / "nothing"), *more) == USAGE
    assert snapshot(action, str(tmp_path), *more) == USAGE
    told = capsys.readouterr().err
    assert "there is no such folder" in told
    assert "no snapshot is here" in told


def test_keys_that_are_not_there(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot("verify", "kept", "--key", "ffffffffffffffff") == USAGE
    told = capsys.readouterr().err
    assert key_of(two, "data") in told
