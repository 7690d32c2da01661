"""Progress that is told while the command works: a bar for a terminal, lines for a file, objects for a program."""

from __future__ import annotations

import codecs
import io
import json
import os
import pty
from typing import Any

import pytest

from tundish.cli.snapshot.log import HumanLog, JsonLog, Reached, RecentRates, amount, duration

REACHED = Reached(250, 5_000_000, 2, 1000, 25.0, 500_000.0)


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
            shown = HumanLog(terminal, io.StringIO())
            shown.progress(REACHED)
            shown.progress(Reached(500, 10_000_000, 2, 1000, 25.0, 500_000.0))
            shown.finished(0, "done")
            print("that was all", file=terminal, flush=True)
            text = ""
            while not text.endswith("that was all\r\n"):  # it comes when the system gets to it
                text += decode(os.read(ours, 65536))
    finally:
        os.close(ours)

    first, second, last = text.split("\r\x1b[K")[1:]
    assert first.startswith("━━━━───────────  250")  # as long as there is room beside the numbers
    assert "250/1,000 elements  25%" in first
    assert "\n" not in first
    assert second.startswith("━━━━━━━━───────  500")
    assert len(first.rstrip()) <= 79
    assert first.endswith("2 failed")
    assert last == "that was all\r\n"


def test_a_file_gets_plain_lines() -> None:
    err, out = io.StringIO(), io.StringIO()
    shown = HumanLog(err, out)
    shown.started(target="train:data", path="kept", key="k", shard=(1, 4), durable=7, workers=1)
    shown.progress(REACHED)
    shown.finished(0, "all is well")

    assert err.getvalue().splitlines() == [
        "writing shard 1/4 of train:data to kept (key k, 1 worker)",
        "7 elements are there already: continuing after them",
        "250/1,000 elements  25%  25.0/s  0.5 MB/s  30 s left  2 failed",
    ]
    assert out.getvalue() == "all is well\n"


def test_what_went_wrong_goes_to_stderr() -> None:
    err, out = io.StringIO(), io.StringIO()
    HumanLog(err, out).finished(6, "no")

    assert (err.getvalue(), out.getvalue()) == ("no\n", "")


def test_of_many_bad_records_the_first_are_shown() -> None:
    err = io.StringIO()
    shown = HumanLog(err, io.StringIO())
    for index in range(50):
        shown.bad_record({"index": index, "error": "ValueError: no", "reproduce": "again"})

    lines = err.getvalue().splitlines()
    assert lines[0] == "element 0 failed: ValueError: no"
    assert "run it again: again" in lines[1]
    assert len(lines) == 21
    assert "--bad-records" in lines[-1]


def test_a_program_gets_objects() -> None:
    out = io.StringIO()
    shown = JsonLog(out)
    shown.started(elements=5)
    shown.progress(REACHED)
    shown.committed(250, 5_000_000)
    shown.bad_record({"index": 3})
    shown.finished(0, "done", elements=5)

    found: list[dict[str, Any]] = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [each["event"] for each in found] == [
        "started",
        "progress",
        "committed",
        "bad record",
        "finished",
    ]
    assert all("time" in each for each in found)
    assert found[1]["eta_seconds"] == 30.0
    assert found[1]["elements_per_second"] == 25.0


def test_rates_are_those_of_the_last_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    pace = RecentRates(10_000, 500)

    def after_a_second(elements: int, nbytes: int) -> Reached:
        clock[0] += 1.0
        return pace.reached(elements, nbytes, 0)

    idle = [after_a_second(500, 0) for _ in range(200)]
    assert idle[-1].rate == 0.0
    assert idle[-1].left_s is None
    reached = [after_a_second(500 + 10 * step, 1000 * step) for step in range(1, 41)][-1]

    assert reached.rate == pytest.approx(10.0, rel=0.05)
    assert reached.bytes_rate == pytest.approx(1000.0, rel=0.05)
    assert reached.left_s == pytest.approx(910, rel=0.05)


def test_numbers_for_people() -> None:
    assert [amount(n) for n in (0, 999, 1000, 2.5e6, 7e13)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "2.5 MB",
        "70.0 TB",
    ]
    assert [duration(s) for s in (0.4, 59.4, 61, 3599, 7260)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "59 min 59 s",
        "2 h 1 min",
    ]
