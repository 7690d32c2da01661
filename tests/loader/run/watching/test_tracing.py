"""The trace file: what is written when, and that it never is a reason for a pipeline to fail."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tundish.loader.run.watching.tracing import Trace, open_trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_says_when_whose_and_what(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "trace"
    first = Trace(str(path), plan="range -> map", workers=2)
    clock[0] += 1.5
    first("->", 2, "TASK", block=7)
    second = Trace(str(path))
    second.stage(0, "map#1")
    for trace in (first, second, first):
        trace.close()

    found = lines(path)
    assert [each["kind"] for each in found] == ["BEGIN", "TASK", "BEGIN", "STAGE", "END", "END"]
    assert [each["t"] for each in found] == [0.0, 1.5, 0.0, 0.0, 1.5, 0.0]
    assert (found[0]["plan"], found[0]["workers"], found[0]["pid"]) == (
        "range -> map",
        2,
        os.getpid(),
    )
    names = [each["it"] for each in found]
    assert names == [names[0]] * 2 + [names[2]] * 2 + [names[0], names[2]]
    assert names[0] != names[2]
    task = {"t": 1.5, "it": names[0], "dir": "->", "worker": 2, "kind": "TASK", "block": 7}
    assert found[1] == task


def test_short_calls_share_a_line(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "trace"
    trace = Trace(str(path))
    clock[0] += 0.001
    trace.gave(0.0005)  # long: by itself, and the next may join
    for _ in range(3):
        clock[0] += 0.0001
        trace.gave(0.00005)
    clock[0] += 0.005  # the caller is at work
    trace.gave(0.00005)
    clock[0] += 0.002
    trace.waited(0.0019)
    trace.gave(0.002)
    trace.close()

    found = [(each["kind"], each["t"], each.get("us"), each.get("calls")) for each in lines(path)]
    assert found[1:-1] == [
        ("NEXT", 0.0013, 800, 4),
        ("NEXT", 0.0063, 50, None),
        ("WAIT", 0.0083, 1900, None),
        ("NEXT", 0.0083, 2000, None),
    ]


def test_calls_that_share_a_line_are_no_longer_than_a_hundredth(
    tmp_path: Path, clock: list[float]
) -> None:
    path = tmp_path / "trace"
    trace = Trace(str(path))
    for _ in range(1000):
        clock[0] += 0.0001
        trace.gave(0.0001)
    trace.close()

    calls = [each for each in lines(path) if each["kind"] == "NEXT"]
    assert sum(each["calls"] for each in calls) == 1000
    assert all(each["us"] <= 10_000 for each in calls)


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNDISH_TRACE", raising=False)
    assert open_trace(None, "range", 0) is None
    monkeypatch.setenv("TUNDISH_TRACE", str(tmp_path / "env"))
    trace = open_trace(str(tmp_path / "options"), "range", 0)
    assert trace is not None
    trace.close()

    assert [path.name for path in tmp_path.iterdir()] == ["env"]


def test_one_that_cannot_be_opened_says_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "none" / "trace")
    monkeypatch.delenv("TUNDISH_TRACE", raising=False)
    with pytest.raises(FileNotFoundError, match="the trace that StatsOptions") as told:
        open_trace(path, "range", 0)
    monkeypatch.setenv("TUNDISH_TRACE", path)
    with pytest.raises(FileNotFoundError, match="the trace that TUNDISH_TRACE asks for"):
        open_trace(None, "range", 0)

    assert told.value.filename == path


@pytest.mark.skipif(sys.platform != "linux", reason="it needs /dev/full")
def test_a_full_disk_ends_the_trace_and_nothing_else() -> None:
    with pytest.warns(RuntimeWarning, match="the trace /dev/full ends here: No space left"):
        trace = Trace("/dev/full")
    trace("->", 1, "TASK")
    trace.gave(0.1)
    trace.close()
