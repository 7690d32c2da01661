"""``tundish trace``: a real run's messages, and files that are none."""

from __future__ import annotations

import functools
import gzip
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

import tundish as td
from tundish.cli import main
from tundish.cli.trace import computed_again, read, shades

if TYPE_CHECKING:
    from pathlib import Path


def die_twice(folder: str, index: Any) -> Any:
    """One element kills its worker twice: the second time it is a task of its own."""
    time.sleep(0.002)
    if index == 100:
        for death in ("first", "second"):
            try:
                os.close(os.open(os.path.join(folder, death), os.O_CREAT | os.O_EXCL))  # noqa: PTH118
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
    return index


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in which a worker was killed."""
    path = tmp_path / "trace"
    monkeypatch.setenv("TUNDISH_TRACE", str(path))
    function = functools.partial(die_twice, str(tmp_path))
    with td.Dataset.range(256).map(function).batch(16).iterator(workers=2) as batches:
        assert len(list(batches)) == 16
    return path


def test_a_run_with_a_death(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(file)]) == 0

    text = capsys.readouterr().out
    assert "TASK" in text
    assert "DIED" in text
    assert "SIGKILL" in text
    assert computed_again(read(file)) > 0
    assert "computed again" in text


def test_one_worker_and_the_summary_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", str(file), "--worker", "2"])
    one = capsys.readouterr().out
    main(["trace", str(file), "--summary"])
    summary = capsys.readouterr().out

    assert "->   2  TASK" in one
    assert "->   1  TASK" not in one
    assert "  TASK    block" not in summary


def test_several_iterators_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    monkeypatch.setenv("TUNDISH_TRACE", str(path))
    for size in (4, 8):
        with td.Dataset.range(64).map(abs).batch(size).iterator(workers=1) as batches:
            list(batches)

    assert main(["trace", str(path), "--summary"]) == 0
    text = capsys.readouterr().out
    heads = [line for line in text.splitlines() if line.startswith("iterator ")]
    assert len(heads) == 2
    assert all(f"of process {os.getpid()}  range -> map -> batch" in head for head in heads)


def test_for_perfetto(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, compressed = tmp_path / "out.json", tmp_path / "out.json.gz"

    assert main(["trace", str(file), "--perfetto", str(plain)]) == 0
    assert "open it at https://ui.perfetto.dev" in capsys.readouterr().out
    assert main(["trace", str(file), "--perfetto", str(compressed)]) == 0

    events = json.loads(plain.read_text())["traceEvents"]
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == [
        "out.json",
        "out.json.gz",
    ]
    names = {event["name"] for event in events}
    assert {"next", "wait", "died: SIGKILL (9)", "tasks in flight"} <= names
    threads = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert "consumer" in threads
    assert sum("(pid " in name for name in threads) >= 3
    done = sum(event["kind"] == "DONE" for event in read(file))
    tasks = [e for e in events if e["ph"] == "X" and e["tid"] > 100 and "died" not in e["name"]]
    assert len(tasks) == sum(event["ph"] == "f" for event in events) == done


def test_for_perfetto_nothing_half_done_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_text("one\ntwo\n")
    out = tmp_path / "out.json"

    assert main(["trace", str(tmp_path / "notes"), "--perfetto", str(out)]) == 2
    assert "no line of it is a message of a trace" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "missing"), "--perfetto", str(out)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_trace_that_the_options_ask_for(tmp_path: Path) -> None:
    options = td.Options()
    options.stats.trace = str(tmp_path / "trace")
    ds = td.Dataset.range(8).map(abs).with_options(options)
    with ds.iterator(workers=1) as elements:
        list(elements)

    kinds = [event["kind"] for event in read(tmp_path / "trace")]
    assert kinds[0] == "BEGIN"
    assert kinds[-1] == "END"
    assert {"STAGE", "TASK", "DONE", "NEXT"} <= set(kinds)


def test_a_run_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "trace", tmp_path / "out.json"
    monkeypatch.setenv("TUNDISH_TRACE", str(path))
    with td.Dataset.range(64).map(abs).batch(4).iterator(workers=0) as batches:
        list(batches)

    assert main(["trace", str(path), "--perfetto", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    assert any(event["name"].startswith("next") for event in events)
    capsys.readouterr()
    assert main(["trace", str(path), "--summary"]) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"^consumer: \d+% of the time in next, 0% waiting for workers$", text, re.MULTILINE
    )
    assert "worker " not in text


def test_torn_lines_are_left_out(file: Path) -> None:
    whole = read(file)
    lines = file.read_text()
    torn = '{"t": 1.5, "dir": "->", "wor'
    file.write_text(lines + torn)

    assert read(file) == whole

    file.write_text(f"{torn}\n{lines}{torn}")  # another process went on behind it

    assert read(file) == whole


def test_where_no_picture_can_be_written_is_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, nowhere = file.read_bytes(), tmp_path / "nowhere" / "out.json"

    assert main(["trace", str(file), "--perfetto", str(nowhere)]) == 2
    assert capsys.readouterr().err.strip() == f"{nowhere}: No such file or directory"
    assert main(["trace", str(file), "--perfetto", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip() == f"{tmp_path}: Is a directory"
    assert main(["trace", str(file), "--perfetto", str(file)]) == 2
    assert "would write over the trace" in capsys.readouterr().err
    assert file.read_bytes() == trace


def test_a_file_that_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("one\ntwo\n")

    assert main(["trace", str(tmp_path / "notes")]) == 2
    assert "no line of it is a message of a trace" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.strip() == f"{tmp_path / 'missing'}: No such file or directory"


def test_shades_show_when() -> None:
    busy_in_the_second_half = [{"t": 10.0, "us": 5_000_000}]

    picture = shades(busy_in_the_second_half, start=0.0, wall=10.0)

    assert picture == " " * 30 + "█" * 30
