"""Elements that fail: counted, noted, and run again one by one by the command that is noted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.snapshot.pipelines import kept, write

from tundish.cli import main
from tundish.cli.inspect import find
from tundish.cli.snapshot import BAD_RECORDS, DONE
from tundish.cli.snapshot.badrecords import BadRecords
from tundish.cli.snapshot.pipeline import pipeline_of
from tundish.snapshot.records import StoredError

ALL = ("--max-errors", "99", "--bad-records", "bad.jsonl")


def noted() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]


def again(record: dict[str, Any]) -> int:
    """Run a reproducer here, with the words after the name of the program."""
    words = shlex.split(record["reproduce"])
    return main(words[words.index("snapshot") :])


def test_none_may_fail_unless_it_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "bad") == BAD_RECORDS
    told = capsys.readouterr().err
    assert "LookupError: ('no such record'" in told
    assert "more elements failed (1) than --max-errors 0 allows" in told

    assert write(file, "bad", "--max-errors", "2") == BAD_RECORDS
    assert write(file, "bad", "--max-errors", "3") == DONE
    assert "60 elements, 3 of them failed" in capsys.readouterr().out


def test_the_element_that_was_one_too_many_is_tried_again(file: Path) -> None:
    """It may have been the network; what may not fail is not kept as an error."""
    assert write(file, "bad", "--max-errors", "2") == BAD_RECORDS
    file.write_text(file.read_text().replace("% 20 == 7", "% 20 == 99"))
    assert write(file, "bad", "--version", "1", path="other", workers=0) == DONE

    text = file.read_text()
    file.write_text(text.replace("% 20 == 99", "% 20 == (7 if os.path.exists('bad') else 99)"))
    Path("bad").touch()
    assert write(file, "bad", "--version", "1", path="third") == BAD_RECORDS
    Path("bad").unlink()
    assert write(file, "bad", "--version", "1", path="third") == DONE
    dataset = find(f"{file.name}:bad")
    assert kept(dataset.snapshot("third", version="1")) == kept(
        dataset.snapshot("other", version="1")
    )


@pytest.mark.parametrize(
    ("name", "origins"),
    [
        ("bad", ["map#2:27", "map#2:47", "map#2:7"]),
        ("nested", ["map#1:0.3.2", "map#1:0.7.2"]),
        ("batches", [f"map#2:{k}" for k in range(10) if sum(range(4 * k, 4 * k + 4)) > 99]),
        ("chosen", ["map#3:7", "map#3:27", "map#3:47"]),
        ("passes", ["map#4:17", "map#4:3@1"]),
        ("windowed", ["map#2:7", "map#2:27", "map#2:47"]),
    ],
)
def test_each_is_noted_with_what_runs_it_again(
    file: Path, name: str, origins: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, name, *ALL) == DONE
    records = noted()
    assert {record["origin"] for record in records} == set(origins)
    capsys.readouterr()

    for record in records:
        assert again(record) == BAD_RECORDS
        told = capsys.readouterr().err
        assert record["error"] in told
        assert "in this process" in told
        assert "tundish/loader" not in told
    with find(f"{file.name}:{name}").iterator(workers=0) as elements:
        failed = []
        for index in range(60):
            try:
                next(elements)
            except StopIteration:
                break
            except (LookupError, ArithmeticError):
                failed.append(index)
    assert [record["index"] for record in records] == failed


@pytest.mark.slow
def test_the_line_works_when_it_is_pasted_into_a_shell(file: Path) -> None:
    assert write(file, "bad", *ALL, "--shard", "1/2") == DONE
    (record,) = [each for each in noted() if each["origin"] == "map#2:47"]
    done = subprocess.run(
        record["reproduce"],
        shell=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == BAD_RECORDS
    assert done.stderr.splitlines()[-2:][0].startswith("LookupError: ('no such record', 47)")


def test_one_above_a_snapshot(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "divided", path="below") == DONE
    assert write(file, "above", *ALL) == DONE
    (record,) = noted()
    assert record["origin"].endswith(":7")
    assert again(record) == BAD_RECORDS
    assert "LookupError: the eighth" in capsys.readouterr().err


def test_an_element_that_does_not_fail_any_more(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for which in ("map#2:8", "8", "index:3"):
        assert write(file, "bad", "--only-element", which) == DONE
        assert "did not fail this time" in capsys.readouterr().out
    assert not Path("kept").exists()


def test_where_nobody_knows_the_origin_the_index_will_do(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert write(file, "bad", *ALL) == DONE
    for record in noted():
        assert write(file, "bad", "--only-element", f"index:{record['index']}") == BAD_RECORDS
        assert record["error"] in capsys.readouterr().err


def test_the_file_has_each_once_however_often_it_is_continued(file: Path) -> None:
    assert write(file, "bad", "--max-errors", "1", "--bad-records", "bad.jsonl") == BAD_RECORDS
    assert len(noted()) == 2
    assert write(file, "bad", *ALL) == DONE
    records = noted()
    assert len({record["index"] for record in records}) == len(records) == 3
    assert all(record["traceback"].startswith("Traceback") for record in records)


def test_what_was_noted_of_durable_ones_is_kept(file: Path) -> None:
    pipeline = pipeline_of(f"{file.name}:bad", "kept")
    first = BadRecords(pipeline, "bad.jsonl", {})
    error = LookupError("no such record", 7)
    error.add_note("tundish: in map#2, element 7, in this process")
    first.add(5, error)
    first.add(8, error)
    first.close()
    durable = {n: StoredError.of(n, error) for n in (2, 5)}
    again = BadRecords(pipeline, "bad.jsonl", durable)
    again.close()

    unknown, known = noted()
    assert again.count == 2
    assert (known["index"], known["origin"]) == (5, "map#2:7")
    assert (unknown["index"], unknown["origin"]) == (2, None)
    assert unknown["error"] == "LookupError: ('no such record', 7)"
    assert "--only-element index:2" in unknown["reproduce"]


def test_those_that_a_training_run_kept_count_too(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with find(f"{file.name}:bad").snapshot("kept").iterator(workers=0) as elements:
        for _ in range(57):
            with suppress(LookupError):
                next(elements)
    assert write(file, "bad") == BAD_RECORDS
    assert "more elements failed (3) than --max-errors 0 allows" in capsys.readouterr().err
    assert write(file, "bad", *ALL) == DONE
    assert "57 elements are there already" in capsys.readouterr().err
    assert [record["origin"] for record in noted()] == [None] * 3
    assert all(again(record) == BAD_RECORDS for record in noted())


def test_a_program_reads_of_each(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "bad", "--max-errors", "9", "--json") == DONE

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    bad = [line for line in lines if line["event"] == "bad record"]
    assert [line["origin"] for line in bad] == ["map#2:27", "map#2:7", "map#2:47"]
    assert lines[-1]["errors"] == 3
