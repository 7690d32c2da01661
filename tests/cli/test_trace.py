"""``tundish trace``: a real run's messages, and files that are none."""

from __future__ import annotations

import functools
import os
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


def test_a_torn_last_line_is_left_out(file: Path) -> None:
    whole = read(file)
    with file.open("a") as trace:
        trace.write('{"t": 1.5, "dir": "->", "wor')

    assert read(file) == whole


def test_a_file_that_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("one\ntwo\n")

    assert main(["trace", str(tmp_path / "notes")]) == 2
    assert "line 1 is no message" in capsys.readouterr().out
    assert main(["trace", str(tmp_path / "missing")]) == 2


def test_shades_show_when() -> None:
    busy_in_the_second_half = [{"t": 10.0, "us": 5_000_000}]

    picture = shades(busy_in_the_second_half, start=0.0, wall=10.0)

    assert picture == " " * 30 + "█" * 30
