"""``tundish snapshot write`` in this process: what is kept, what is refused, what is said."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cli.snapshot.pipelines import computed, events, kept, write

import tundish as td
from tundish.cli import main
from tundish.cli.inspect import find
from tundish.cli.snapshot import (
    BAD_RECORDS,
    DONE,
    FAILED,
    HELD,
    INCOMPLETE,
    NO_SPACE,
    USAGE,
)
from tundish.testing.compare import collect


def test_what_is_kept_is_what_the_pipeline_gives(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "data") == DONE
    told = capsys.readouterr()
    assert "kept is complete: 60 elements (key " in told.out
    assert "writing pipelines_of_a_user.py:data to kept" in told.err
    assert computed(file.parent) == list(range(60))

    dataset = find(f"{file.name}:data")
    assert kept(dataset.snapshot("kept")) == collect(dataset.iterator(workers=0))

    assert write(file, "data") == DONE
    assert "is complete already" in capsys.readouterr().out


def test_lines_for_programs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "data", "--json") == DONE
    told = capsys.readouterr()
    lines = events(told.out)

    assert [line["event"] for line in lines] == ["started", "progress", "committed", "finished"]
    first, progress, _, last = lines
    assert (first["elements"], first["durable"], first["shard"]) == (60, 0, None)
    assert (progress["elements"], progress["of"], progress["errors"]) == (60, 60, 0)
    assert (last["status"], last["elements"], last["errors"]) == (0, 60, 0)
    assert last["bytes"] > 0
    assert first["key"] == last["key"]
    assert not told.err


def test_a_snapshot_that_the_pipeline_has_is_the_one_that_is_written(file: Path) -> None:
    """A training pipeline: what is downstream of its snapshot is not run."""
    assert write(file, "training") == DONE

    (header,) = file.parent.glob("kept/*/runs/*/run.json")
    assert json.loads(header.read_text())["compression"] == "zstd"
    dataset = td.Dataset.range(60).map(abs)
    assert kept(dataset.snapshot(file.parent / "kept")) == collect(iter(dataset))
    with find(f"{file.name}:training").iterator(workers=0) as elements:
        assert [seen.doing for seen in elements.stats.snapshots] == ["read"]


def test_options_above_it_count_below(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "write", f"{file.name}:skipping", "kept"]) == DONE
    told = capsys.readouterr()
    assert "1 worker)" in told.err
    assert "57 elements (key" in told.out
    with find(f"{file.name}:skipping").iterator(workers=0) as elements:
        assert [seen.doing for seen in elements.stats.snapshots] == ["read"]


def test_options_reach_the_files(file: Path) -> None:
    assert write(file, "data", "--compression", "lz4", "--shard-bytes", "1KiB") == DONE
    assert write(file, "data", "--version", "v7", path="named") == DONE

    (header,) = file.parent.glob("kept/*/runs/*/run.json")
    assert json.loads(header.read_text())["compression"] == "lz4"
    dataset = find(f"{file.name}:data")
    assert len(kept(dataset.snapshot("named", version="v7"))) == 60
    assert kept(dataset.snapshot("kept")) == kept(dataset.snapshot("named", version="v7"))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("pipelines_of_a_user.py:missing", "has no attribute 'missing'"),
        ("pipelines_of_a_user.py:number", "this is not a Dataset, but of type int"),
        ("pipelines_of_a_user.py:fails", "missing 1 required positional argument"),
        ("pipelines_of_a_user.py:nothing_there", "nothing matches"),
        ("pipelines_of_a_user.py", "MODULE:NAME"),
        ("missing.py:data", "there is no such file"),
        ("no_such_module_here:data", "there is no module 'no_such_module_here'"),
        ("no_such_package.within:data", "there is no module 'no_such_package'"),
        ("broken.py:data", "broken.py, line 2: "),
    ],
)
def test_what_is_no_pipeline(
    file: Path, target: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("import os\ndef data(:\n")

    assert main(["snapshot", "write", target, "kept"]) == USAGE
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not Path("kept").exists()


def test_an_error_in_the_users_own_lines_is_shown_with_those(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "raises") == FAILED

    told = capsys.readouterr().err
    assert 'return {}["nothing"]' in told
    assert "tundish/cli" not in told


def test_paths_that_cannot_be_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "data", path=file.name) == USAGE
    assert "is a file" in capsys.readouterr().err
    assert write(file, "data", path=f"{file.name}/within") == USAGE
    assert "is a file" in capsys.readouterr().err


def test_a_folder_that_may_not_be_written_to(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere

    assert write(file, "data") == USAGE
    assert "may not be written to" in capsys.readouterr().err


def test_a_file_for_bad_records_that_cannot_be_written(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()

    assert write(file, "data", "--bad-records", "folder") == FAILED
    told = capsys.readouterr().err
    assert "Is a directory: 'folder'" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--shard", "4/4"), "from 0/4 to 3/4"),
        (("--shard", "nonsense"), "I/N"),
        (("--of", "3"), "--shard auto"),
        (("--pdb",), "--only-element"),
        (("--only-element", "map#1:60"), "there is no element 60"),
        (("--only-element", "what"), "--bad-records"),
        (("--only-element", "filter#1:3"), "no operator filter#1"),
    ],
)
def test_arguments_that_make_no_sense(
    file: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "data", *words) == USAGE
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--workers", "-1"), ("--shard-bytes", "many"), ("--max-errors", "x")]
)
def test_arguments_of_the_wrong_kind(
    file: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["snapshot", "write", f"{file.name}:data", "kept", *words])
    assert ended.value.code == USAGE
    assert f"argument {words[0]}" in capsys.readouterr().err


def test_help_has_every_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["snapshot", "write", "--help"])

    told = capsys.readouterr().out
    for status in (DONE, FAILED, USAGE, INCOMPLETE, HELD, NO_SPACE, BAD_RECORDS, 130, 143):
        assert f"\n  {status} " in told or f", {status} " in told


def test_a_pipeline_that_cannot_be_divided_is_refused_before_work(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "divided", "--shard", "0/4") == USAGE
    told = capsys.readouterr().err
    assert "batch depends on elements of two ranges" in told
    assert "after the snapshot" in told
    assert not Path("kept").exists()


def test_one_without_end_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "endless") == USAGE
    assert "put take(n) after it" in capsys.readouterr().err


def test_one_that_somebody_else_writes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = find(f"{file.name}:data").snapshot("kept").iterator(workers=0)
    with other:
        next(other)
        assert write(file, "data") == HELD
    told = capsys.readouterr().err
    assert "is writing kept" in told
    assert len(computed(file.parent)) == 1


@pytest.mark.parametrize("most", [0, 100_000], ids=["from the start", "for a batch"])
def test_a_full_disk_has_a_status_of_its_own(
    file: Path, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to = os.writev

    def full(descriptor: int, views: Any) -> int:
        if sum(memoryview(view).nbytes for view in views) > most:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_to(descriptor, views)

    with monkeypatch.context() as patched:
        patched.setattr("os.writev", full)
        assert write(file, "large") == NO_SPACE
    told = capsys.readouterr().err
    assert "No space left on device" in told
    assert "Traceback" not in told
    assert not list(file.parent.rglob("*.arrow*"))
    assert write(file, "large") == DONE


def test_shards_in_any_order_are_the_whole(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in (2, 0, 1):
        assert write(file, "data", "--shard", f"{index}/3") == DONE
        assert "tundish snapshot finalize kept --of 3" in capsys.readouterr().out
        assert write(file, "data", "--shard", f"{index}/3") == DONE
        assert f"shard {index}/3 of kept is complete already" in capsys.readouterr().out
    assert main(["snapshot", "finalize", "kept", "--of", "3"]) == DONE
    assert write(file, "data", "--shard", "1/3") == DONE
    assert "complete already" in capsys.readouterr().out

    dataset = find(f"{file.name}:data")
    expected = collect(dataset.iterator(workers=0))
    assert kept(dataset.snapshot("kept")) == expected


def test_a_shard_beyond_the_elements_is_empty(file: Path) -> None:
    for index in range(4):
        assert write(file, "nested", "--shard", f"{index}/4", "--max-errors", "9") == DONE
    for index in range(11):
        assert (
            write(file, "nested", "--max-errors", "9", "--shard", f"{index}/11", path="more")
            == DONE
        )
    for path, of in (("kept", 4), ("more", 11)):
        assert main(["snapshot", "finalize", path, "--of", str(of)]) == DONE
        assert len(kept(find(f"{file.name}:nested").snapshot(path))) == sum(k % 4 for k in range(9))


def test_a_shard_without_elements_is_no_leftover(file: Path) -> None:
    for index in range(11):
        assert write(file, "nested", "--shard", f"{index}/11", "--max-errors", "9") == DONE

    assert main(["snapshot", "gc", "kept", "--older-than", "0s"]) == DONE
    assert main(["snapshot", "finalize", "kept", "--of", "11"]) == DONE


def test_input_that_was_rewritten_is_told_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("one\n", "two\n"):
        (file.parent / "lines.txt").write_text(text)
        os.utime(file.parent / "lines.txt", ns=(ord(text[0]), ord(text[0])))
        assert not caplog.text
        assert write(file, "lines") == DONE
    assert (
        "lines.txt: written since, with the same size; the stored elements are read" in caplog.text
    )


def test_a_local_address_is_the_folder(file: Path) -> None:
    assert write(file, "training", path=f"file://{file.parent}/kept") == DONE
    assert len([*(file.parent / "kept").iterdir()]) == 1

    with find(f"{file.name}:training").iterator(workers=0) as elements:
        assert [seen.doing for seen in elements.stats.snapshots] == ["read"]
