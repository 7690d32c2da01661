"""``tundish snapshot finalize``: one snapshot of all shards, or what is missing and what makes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.cli.snapshot.pipelines import kept, write

from tundish.cli import main
from tundish.cli.inspect import find
from tundish.cli.snapshot import DONE, FAILED, INCOMPLETE, USAGE
from tundish.testing.compare import collect


def finalize(of: int, *words: str, path: str = "kept") -> int:
    return main(["snapshot", "finalize", path, "--of", str(of), *words])


def test_what_is_missing_is_listed_with_the_commands_that_make_it(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "data", "--shard", "1/3", "--compression", "lz4") == DONE
    capsys.readouterr()

    assert finalize(3) == INCOMPLETE
    told = capsys.readouterr().out
    assert "kept is incomplete: 2 of 3 shards" in told
    lines = [line.strip() for line in told.splitlines() if "--shard" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["0/3", "2/3"]
    for line in lines:
        words = shlex.split(line)
        assert main(words[words.index("snapshot") :]) == DONE
    capsys.readouterr()

    assert finalize(3) == DONE
    assert "kept is complete: 60 elements of 3 shards" in capsys.readouterr().out
    headers = [json.loads(p.read_text()) for p in file.parent.glob("kept/*/runs/*/run.json")]
    assert sorted(header["part"] for header in headers) == [[0, 3], [1, 3], [2, 3]]
    assert {header["compression"] for header in headers} == {"lz4"}
    dataset = find(f"{file.name}:data")
    assert kept(dataset.snapshot("kept")) == collect(dataset.iterator(workers=0))
    assert finalize(3) == DONE
    assert "complete already" in capsys.readouterr().out


def test_lines_for_programs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "data", "--shard", "0/2") == DONE
    capsys.readouterr()

    assert finalize(2, "--json") == INCOMPLETE
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["event"] == "incomplete"
    assert [(each["shard"], each["state"]) for each in told["missing"]] == [([1, 2], "missing")]


def test_the_manifest_is_that_of_one_process(file: Path) -> None:
    """The same name of the contents: checkpoints of the one are good for the other."""
    for index in range(4):
        assert write(file, "bad", "--shard", f"{index}/4", "--max-errors", "9") == DONE
    assert finalize(4) == DONE
    assert write(file, "bad", "--max-errors", "9", path="one") == DONE

    several, one = (
        json.loads(next(file.parent.glob(f"{path}/*/manifest.json")).read_text())
        for path in ("kept", "one")
    )
    for name in ("key", "content", "rows", "marks", "inputs", "element_spec", "user_shards"):
        assert several[name] == one[name], name
    assert len(several["runs"]) == 4
    dataset = find(f"{file.name}:bad")
    assert kept(dataset.snapshot("kept")) == kept(dataset.snapshot("one"))


@pytest.mark.parametrize("name", ["filtered", "nested"])
def test_shards_may_be_of_any_length(file: Path, name: str) -> None:
    for index in range(5):
        assert write(file, name, "--shard", f"{index}/5", "--max-errors", "9") == DONE
    assert finalize(5) == DONE

    dataset = find(f"{file.name}:{name}")
    assert [o.error is None for o in kept(dataset.snapshot("kept"))] == [
        o.error is None for o in collect(dataset.iterator(workers=0))
    ]
    assert write(file, name, "--max-errors", "9", path="one") == DONE
    assert kept(dataset.snapshot("kept")) == kept(dataset.snapshot("one"))


def test_of_several_pipelines_the_one_whose_shards_are_there(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "filtered") == DONE
    for index in range(2):
        assert write(file, "data", "--shard", f"{index}/2") == DONE
    assert finalize(3) == USAGE
    assert "divided into 2 shards, not 3" in capsys.readouterr().err
    assert finalize(2) == DONE
    assert len(kept(find(f"{file.name}:data").snapshot("kept"))) == 60


def test_where_nothing_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finalize(2) == USAGE
    assert "there is no such folder" in capsys.readouterr().err
    Path("kept").mkdir()
    assert finalize(2) == USAGE
    assert "no snapshot is here" in capsys.readouterr().err
    assert finalize(2, path=file.name) == USAGE


def test_shards_that_do_not_belong_together(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With version= the user vouches for the functions; what cannot be in one snapshot shows."""
    assert write(file, "data", "--version", "1", "--shard", "0/2") == DONE
    file.write_text(file.read_text().replace('"x": rng', '"other": rng'))
    assert write(file, "data", "--version", "1", "--shard", "1/2") == DONE

    assert finalize(2) == FAILED
    told = capsys.readouterr().err
    assert "shards 0 and 1 of 2 cannot be in one snapshot" in told
    assert "Traceback" not in told
    assert not list(file.parent.glob("kept/*/manifest.json"))


def test_a_damaged_shard_is_told_of(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(2):
        assert write(file, "data", "--shard", f"{index}/2") == DONE
    manifest = min(file.parent.glob("kept/*/runs/*/manifest.json"))
    manifest.write_bytes(manifest.read_bytes()[:-9])
    capsys.readouterr()

    assert finalize(2) == INCOMPLETE
    told = capsys.readouterr().out
    assert "1 of 2 shards" in told
    assert "damaged, 30 elements are durable" in told
    assert str(manifest) in told


def test_one_that_was_killed_before_its_last_file(file: Path) -> None:
    for index in range(2):
        assert write(file, "data", "--shard", f"{index}/2") == DONE
    file.with_name("computed").unlink()
    min(file.parent.glob("kept/*/runs/*/manifest.json")).unlink()

    assert finalize(2) == INCOMPLETE
    for index in range(2):
        assert write(file, "data", "--shard", f"{index}/2") == DONE
    assert not file.with_name("computed").exists()
    assert finalize(2) == DONE


def test_a_complete_snapshot_below_is_a_source_to_be_divided(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "above", "--shard", "0/2") == USAGE
    assert "snapshot is not complete: write it first" in capsys.readouterr().err
    assert write(file, "divided", path="below") == DONE
    for index in range(3):
        assert write(file, "above", "--shard", f"{index}/3", "--max-errors", "1") == DONE
    assert finalize(3) == DONE

    dataset = find(f"{file.name}:above")
    found = kept(dataset.snapshot("kept"))
    assert [outcome.error for outcome in found].count("builtins.LookupError") == 1
    assert found == collect(dataset.iterator(workers=0))


def test_what_is_not_seeded_is_drawn_once_for_all(file: Path) -> None:
    for index in range(3):
        assert write(file, "unseeded", "--shard", f"{index}/3") == DONE
    assert finalize(3) == DONE
    assert write(file, "unseeded", path="one") == DONE

    dataset = find(f"{file.name}:unseeded")
    assert kept(dataset.snapshot("kept")) == kept(dataset.snapshot("one"))


def test_user_shards(file: Path) -> None:
    for index in range(2):
        assert write(file, "by_shard", "--shard", f"{index}/2") == DONE
    assert finalize(2) == DONE
    dataset = find(f"{file.name}:by_shard")
    assert [int(x) for x in dataset.iterator(workers=0)] == list(range(60))
    names = {
        json.loads(path.read_text())["user_shards"]
        for path in file.parent.glob("kept/*/manifest.json")
    }
    assert names == {True}
