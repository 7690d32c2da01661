"""`verify`: whatever byte is changed, its file is named, and the batch; it never stops at the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.snapshot.runs import KEY, RUN, complete, files, folder, prefix, writer

from tundish.snapshot.upkeep import Problem, verify

FAILED = (5, 44)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    complete(tmp_path, failed=FAILED, by_shard=True)
    return tmp_path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_what_is_whole_has_no_problem(snapshot: Path) -> None:
    assert verify(snapshot) == []
    assert verify(snapshot, full=False) == []
    assert verify(snapshot, key=KEY) == []


def test_a_prefix_is_verified_too(tmp_path: Path) -> None:
    made = writer(tmp_path)
    made.commit(0, [], 0, None, {})

    assert verify(tmp_path) == []


@pytest.mark.slow
def test_any_changed_byte_is_found(snapshot: Path) -> None:
    """Every file is covered but the leases and the description, which only people read."""
    for name in sorted(files(snapshot)):
        path = snapshot / name
        whole = path.read_bytes()
        for at in range(0, len(whole), max(len(whole) // 12, 1)):
            flip(path, at)
            found = verify(snapshot)
            assert [p for p in found if p.file == str(path)], (name, at, found)
            path.write_bytes(whole)
    assert verify(snapshot) == []


def test_a_changed_byte_is_found_in_its_batch(snapshot: Path) -> None:
    durable = prefix(snapshot)
    for entry in durable.entries:
        path = folder(snapshot) / durable.shards[entry["shard"]].file
        whole = path.read_bytes()
        flip(path, int(entry["offset"] + entry["length"] // 2))
        (problem,) = verify(snapshot)
        assert (problem.file, problem.batch) == (str(path), int(entry["start"]))
        assert f"starts at element {entry['start']}: its bytes have crc32" in str(problem)
        path.write_bytes(whole)


@pytest.mark.parametrize("how", ["cut", "zeros", "gone"])
def test_a_damaged_file_is_named(snapshot: Path, how: str) -> None:
    for name in sorted(files(snapshot)):
        path = snapshot / name
        whole = path.read_bytes()
        if how == "gone":
            path.unlink()
        else:
            kept = whole[: len(whole) * 2 // 3]
            path.write_bytes(kept if how == "cut" else kept.ljust(len(whole), b"\0"))
        found = verify(snapshot)
        if not (how == "gone" and name == f"{KEY}/manifest.json"):  # it is a prefix without
            assert [p for p in found if p.file == str(path)], (name, found)
        path.write_bytes(whole)
    assert verify(snapshot) == []


def test_all_problems_are_listed(snapshot: Path) -> None:
    durable = prefix(snapshot)
    paths = [folder(snapshot) / shard.file for shard in durable.shards]
    flip(paths[0], durable.shards[0].batches[0].offset + 300)
    flip(paths[0], durable.shards[0].batches[-1].offset + 300)
    paths[1].unlink()
    flip(paths[2], paths[2].stat().st_size - 30)  # in the footer
    flip(paths[3], 20)  # in the schema
    (folder(snapshot) / "state" / "00000002.json").unlink()

    found = verify(snapshot)

    assert {(p.file, p.batch) for p in found} >= {
        (str(paths[0]), durable.shards[0].batches[0].start),
        (str(paths[0]), durable.shards[0].batches[-1].start),
        (str(paths[1]), None),
        (str(paths[2]), None),
        (str(paths[3]), None),
        (str(folder(snapshot) / "state" / "00000002.json"), None),
    }
    assert {p.file for p in verify(snapshot, full=False)} == {
        str(paths[1]),
        str(folder(snapshot) / "state" / "00000002.json"),
    }


def test_a_problem_is_told_once(snapshot: Path) -> None:
    (folder(snapshot) / "run.json").unlink()

    found = verify(snapshot)

    assert found == [Problem(str(folder(snapshot) / "run.json"), None, found[0].problem)]
    assert RUN in found[0].file
