"""``tundish top``: frames of made-up numbers, a terminal that is as it was, and a real pipeline."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish.cli import main, top
from tundish.cli import terminal as terminals
from tundish.cli.frame import BoardReading, History, IteratorReport, clip, frame
from tundish.loader.run.watching import publishing
from tundish.loader.watch.histogram import Durations
from tundish.loader.watch.stats import NodeStats, StageStats, Stats, WorkerStats
from tundish.shm.board import Board, pids_with_a_board, read_board

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="boards are Linux's")

DEADLINE_S = 20
END = b"\x00that was all\x00"

# A process that tells every number of milliseconds, until its input ends.
TELLER = """
import json, select, sys, time
from tundish.shm.board import Board

told, board, number = json.load(open(sys.argv[1])), Board(), 0
while not select.select([sys.stdin], [], [], 0.02)[0]:
    number += 1
    for each in told["iterators"]:
        each["at"] = time.time()
        each["stats"]["elements"] += 5
        each["stats"]["wall_s"] += 0.02
    board.publish(json.dumps(told).encode())
    if number == 2:
        print("told", flush=True)
"""


def stats(**given: Any) -> Stats:
    """Make the stats of a pipeline in which two workers are the limit."""
    times = Durations()
    for _ in range(99):
        times.add(0.016)
    times.add(0.2)
    nodes = (NodeStats("range#0", 1600), NodeStats("map#1", 1600, busy_s=6.0, calls=True))
    stage = StageStats(
        "batch#2",
        nodes,
        elements=100,
        tasks=100,
        rows=1600,
        busy_s=6.4,
        cpu_s=6.0,
        time=times.frozen(),
        in_flight=4,
        ready=2,
        window=8,
    )
    pool = (
        WorkerStats(1, 901, tasks=50, rows=800, busy_s=3.9, cpu_s=3.7, alive_s=4.0),
        WorkerStats(2, None, tasks=50, rows=800, busy_s=2.5, cpu_s=2.3, alive_s=4.0),
    )
    made = Stats(
        workers=2,
        elements=100,
        leased=3,
        used_bytes=40_000_000,
        budget_bytes=160_000_000,
        nbytes=20_000_000,
        wall_s=4.0,
        waited_s=3.0,
        own_s=0.2,
        outside_s=0.8,
        cores=4,
        watched=True,
        stages=(stage,),
        pool=pool,
    )
    return replace(made, **given)


def told(name: str = "1", **given: Any) -> IteratorReport:
    return IteratorReport(name, "range -> map -> batch", time.time(), stats(**given))


def lines_of(*readings: IteratorReport, width: int = 120) -> list[str]:
    """The frame after several readings of one iterator."""
    history = History()
    for each in readings:
        history.add(BoardReading(("train.py",), (each,)))
    return frame(4711, BoardReading(("train.py",), (readings[-1],)), history, width)


def line(lines: list[str], start: str) -> str:
    (found,) = [each for each in lines if each.startswith(start)]
    return found


# -- frames ---------------------------------------------------------------------------------------


def test_a_first_frame_tells_since_the_start() -> None:
    lines = lines_of(told())

    assert lines[0] == "process 4711  train.py"
    assert lines[2] == "range → map → batch  iterator 1"
    assert line(lines, "given") == "given     100 in 0:04, 25/s"
    assert line(lines, "consumer").endswith("outside 20 %   own work 5 %   waits for workers 75 %")
    assert "  █████▓░░░░░░░░░░░░░░░░░░  " in line(lines, "consumer")
    assert line(lines, "memory").endswith("40 MB of 160 MB   3 slots leased")
    assert re.search(
        r"→ map#1 +2 workers +25/s +80 % +4 ms +.*▓▓▒▒▒▒░░  2 \+ 4 of 8$", line(lines, "range#0")
    )
    assert "1 ████████  98 % 901" in line(lines, "  1")
    assert "2 █████░░░  62 % …" in line(lines, "  1")
    assert line(lines, "limit")


def test_now_is_what_lies_between_two_readings() -> None:
    later = replace(told(elements=400, wall_s=6.0, waited_s=3.0, own_s=0.2, outside_s=2.8))
    lines = lines_of(replace(told(), at=1.0), later)

    assert line(lines, "given") == "given     150 elements/s now   400 in 0:06, 66.7/s"
    assert line(lines, "consumer").endswith("outside 100 %   own work 0 %   waits for workers 0 %")


def test_a_state_that_was_restored_begins_anew() -> None:
    lines = lines_of(replace(told(wall_s=50.0, elements=5000), at=1.0), told())

    assert "now" not in line(lines, "given")
    assert "-" not in "".join(lines)


def test_what_was_read_before_is_not_another_reading() -> None:
    first, last = replace(told(), at=1.0), told(elements=400, wall_s=6.0)

    assert "150 elements/s now" in line(lines_of(first, *[last] * 9), "given")


def test_what_is_wrong_is_named() -> None:
    lines = lines_of(told(errors=1, restarts=2, copies=7))

    assert "1 error   2 workers restarted" in line(lines, "given")
    assert "7 private copies" in line(lines, "memory")


def test_one_that_is_asked_for_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    lines = lines_of(replace(told(), at=993.0), replace(told(), at=995.0))

    assert "asked for nothing for 5" in line(lines, "given")
    assert "now" not in line(lines, "given")


def test_in_process_there_are_no_workers_to_wait_for() -> None:
    lines = lines_of(told(workers=0, pool=(), stages=(), budget_bytes=0))

    assert "computes 75 %" in line(lines, "consumer")
    assert not [each for each in lines if each.startswith(("memory", "worker"))]


def test_what_is_not_measured_is_not_shown() -> None:
    lines = lines_of(IteratorReport("1", "range", time.time(), Stats(elements=3, wall_s=1.0)))

    assert lines[2:] == ["range  iterator 1", "given     3 in 0:01, 3/s"]


def test_no_iterator() -> None:
    assert frame(1, BoardReading(("x",), (), 2), History(), 80) == [
        "process 1  x",
        "",
        "no iterator lives now",
        "",
        "2 more iterators, asked longer ago",
    ]


@pytest.mark.parametrize("width", [1, 20, 60, 80, 300])
def test_lines_are_no_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = tuple(WorkerStats(name, 90_000 + name, alive_s=1.0) for name in range(64))
    monkeypatch.setattr(terminals, "live", lambda: True)

    lines = lines_of(told(), told(pool=pool, wall_s=5.0), width=width)

    plain = [re.sub("\x1b\\[[0-9;]*m", "", each) for each in lines]
    assert max(map(len, plain)) <= width
    assert all(each.endswith("\x1b[0m") for each in lines if each.count("\x1b") % 2)
    if width == 300:
        assert any("\x1b[1m" in each for each in lines)


def test_clipped_styles_end() -> None:
    assert clip("\x1b[1mabcdef\x1b[0m", 4) == "\x1b[1mabc…\x1b[0m"
    assert clip("ab\x1b[1mcd\x1b[0mefgh", 6) == "ab\x1b[1mcd\x1b[0me…"
    assert clip("abc", 3) == "abc"


def test_a_low_terminal_shows_what_it_has_room_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = os.terminal_size((12, 6))
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: size)

    top.Screen().show([f"line {number} is long" for number in range(10)])
    low = capsys.readouterr().out
    top.Screen().show(["one", "two"])
    high = capsys.readouterr().out

    shown = [each.removesuffix("\x1b[K") for each in low.split("\n")]
    assert shown[0] == "\x1b[Hline 0 is l…"
    assert shown[3:] == ["line 3 is l…", "", "6 more line…\x1b[K\x1b[J"]
    assert high == "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[K\nq: leave\x1b[K\x1b[J"


# -- a process that tells -------------------------------------------------------------------------


@pytest.fixture
def teller(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a process that tells of an iterator; it ends with its input."""
    started: list[subprocess.Popen[str]] = []
    about = {"name": "1", "at": 0.0, "plan": "range -> map", "stats": stats().to_dict()}
    path = tmp_path / "told.json"
    path.write_text(json.dumps({"argv": ["teller"], "left_out": 0, "iterators": [about]}))

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", TELLER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def test_one_frame_of_another_process(
    teller: Callable[[], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    process = teller()

    assert main(["top", str(process.pid), "--once"]) == 0

    text = capsys.readouterr().out
    assert f"process {process.pid}  teller" in text
    assert "250 elements/s now" in text
    assert "\x1b" not in text


def test_json(
    teller: Callable[[], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    process = teller()

    assert main(["top", str(process.pid), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["pid"], found["argv"]) == (process.pid, ["teller"])
    (iterator,) = found["iterators"]
    assert iterator["plan"] == "range -> map"
    assert Stats.from_dict(iterator["stats"]).workers == 2
    now = Stats.from_dict(iterator["now"])
    assert now.elements / now.wall_s == pytest.approx(250)


def test_without_a_pid_those_that_tell_are_listed(
    teller: Callable[[], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    process = teller()

    assert main(["top"]) == 0
    assert re.search(rf"^ *{process.pid} +1 +.*/s +teller$", capsys.readouterr().out, re.MULTILINE)
    assert main(["top", "--json"]) == 0
    assert {"pid": process.pid, "argv": ["teller"]} in json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("pid", "reason"),
    [
        (4194305, "there is no process 4194305"),
        (os.getpid(), "shows no tundish pipeline"),
        (0, "0 is not a pid"),
    ],
    ids=["of nobody", "of one without a pipeline", "zero"],
)
def test_nothing_to_see(pid: int, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(pid)]) == 2
    assert reason in capsys.readouterr().err


def test_what_is_no_pid(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["top", "train.py"])

    assert "the number of a process, not 'train.py'" in capsys.readouterr().err


# -- in a terminal --------------------------------------------------------------------------------


class Terminal:
    """``tundish top`` in a terminal of 30 rows and 100 columns."""

    def __init__(self, *words: object) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self._theirs = theirs
        self.before = termios.tcgetattr(theirs)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tundish", "top", *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        )

    def wait_for(self, text: str) -> None:
        """Read what is written until this is part of it."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += self._decode(os.read(self._ours, 65536))

    def type(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def attributes(self) -> Any:
        """Return how the terminal is set."""
        return termios.tcgetattr(self._theirs)

    def end(self) -> int:
        """Wait for its end, and read the rest: what it wrote last may still be on its way."""
        status = self.process.wait(DEADLINE_S)
        os.write(self._theirs, END)
        self.wait_for(END.decode())
        return status

    def close(self) -> None:
        """End what is left."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(
    teller: Callable[[], subprocess.Popen[str]],
) -> Iterator[tuple[Terminal, subprocess.Popen[str]]]:
    process = teller()
    shown = Terminal(process.pid)
    yield shown, process
    shown.close()


def is_left(shown: Terminal) -> bool:
    """Return True if the terminal is as it was: its settings, its screen, its cursor."""
    entered, left = shown.text.count("\x1b[?1049h"), shown.text.count("\x1b[?1049l")
    cursor = shown.text.rfind("\x1b[?25h") > shown.text.rfind("\x1b[?25l")
    return entered == left > 0 and cursor and shown.attributes() == shown.before


@pytest.mark.slow
def test_q_leaves_it_as_it_was(terminal: tuple[Terminal, Any]) -> None:
    shown, _ = terminal
    shown.wait_for("250 elements/s now")
    assert shown.attributes() != shown.before
    shown.type(b"x")  # is nothing
    shown.type(b"q")

    assert shown.end() == 0
    assert is_left(shown)
    frames = shown.text.split("\x1b[H")[1:]
    assert all(frame.count("\n") < 30 for frame in frames)
    assert "process" not in shown.text[shown.text.rfind("\x1b[?1049l") :]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_it_as_it_was(terminal: tuple[Terminal, Any], number: int) -> None:
    shown, _ = terminal
    shown.wait_for("q: leave")
    shown.process.send_signal(number)

    assert shown.end() == 128 + number
    assert is_left(shown)
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_paused_it_gives_the_terminal_back_and_takes_it_again(
    terminal: tuple[Terminal, Any],
) -> None:
    shown, _ = terminal
    shown.wait_for("q: leave")
    shown.process.send_signal(signal.SIGTSTP)
    shown.wait_for("\x1b[?1049l")
    stopped = os.waitid(os.P_PID, shown.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert stopped is not None
    assert is_left(shown)

    shown.text = ""
    shown.process.send_signal(signal.SIGCONT)
    shown.wait_for("q: leave")
    shown.type(b"q")
    assert shown.end() == 0


@pytest.mark.slow
def test_a_process_that_ends_meanwhile(terminal: tuple[Terminal, Any]) -> None:
    shown, process = terminal
    shown.wait_for("q: leave")
    process.stdin.close()

    assert shown.end() == 0
    assert is_left(shown)
    last = shown.text[shown.text.rfind("\x1b[?1049l") :]
    assert f"process {process.pid} has ended" in last
    assert "range → map" in last  # how it stood


# -- what publishes -------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has told nothing yet."""
    monkeypatch.delenv("TUNDISH_WATCH", raising=False)
    for telling in publishing._current:  # of tests before: it comes back when there is news
        telling.board.close()
    monkeypatch.setattr(publishing, "_current", [])
    yield
    for telling in publishing._current:
        telling.board.close()


class Asked:
    """Stands for an iterator."""


def names() -> list[str]:
    return [each.name for each in BoardReading.of(read_board(os.getpid())).iterators]


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
def test_a_pipeline_is_told_of_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with td.Dataset.range(1 << 30).map(abs).batch(2).iterator(workers=1) as batches:
        deadline = time.monotonic() + DEADLINE_S
        while os.getpid() not in pids_with_a_board():
            next(batches)
            assert time.monotonic() < deadline
        assert main(["top", str(os.getpid()), "--once"]) == 0
        text = capsys.readouterr().out
        assert "range → map → batch  iterator 1" in text
        assert str(batches.worker_pids()[0]) in text
    assert names() == []  # it is closed


@pytest.mark.usefixtures("fresh")
def test_it_tells_every_half_second_of_those_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    calls = []

    def measure() -> Stats:
        calls.append(now[0])
        return Stats(elements=len(calls))

    one, other = Asked(), Asked()
    for _ in range(100):
        publishing.publish(one, "one", measure)
        now[0] += 0.0625
    assert len(calls) == 13  # 6.25 s
    publishing.publish(other, "other", Stats)
    assert names() == ["1", "2"]

    publishing.withdraw(other)
    publishing.withdraw(other)
    assert names() == ["1"]
    del one
    publishing.publish(other, "other", Stats)
    assert names() == ["3"]  # it came back as another


@pytest.mark.usefixtures("fresh")
def test_nothing_goes_wrong_in_the_training_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    iterator = Asked()

    def fail(*_: object) -> Any:
        raise ValueError("a bug")

    publishing.publish(iterator, "plan", fail)
    now[0] += 1.0
    publishing.publish(iterator, "plan", Stats)  # not asked again so soon
    assert os.getpid() not in pids_with_a_board()
    now[0] += 60.0
    publishing.publish(iterator, "plan", Stats)
    assert names() == ["2"]
    monkeypatch.setattr(Board, "publish", fail)
    publishing.withdraw(iterator)


@pytest.mark.usefixtures("fresh")
def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_WATCH", "0")

    publishing.publish(Asked(), "plan", Stats)

    assert os.getpid() not in pids_with_a_board()


@pytest.mark.usefixtures("fresh")
def test_what_is_too_much_is_left_out() -> None:
    iterators = [Asked() for _ in range(30)]
    for iterator in iterators:
        publishing.publish(iterator, "x" * 20_000, Stats)

    reading = BoardReading.of(read_board(os.getpid()))
    assert reading.left_out + len(reading.iterators) == 30
    assert reading.left_out > 0
    assert reading.iterators[-1].name == "30"


@pytest.mark.usefixtures("fresh")
def test_a_forked_child_tells_only_of_its_own() -> None:
    iterator = Asked()
    publishing.publish(iterator, "the parent's", Stats)
    publishing._current[0].lock.acquire()  # as another thread may hold it
    child = os.fork()
    if child == 0:
        try:
            mine = Asked()
            publishing.publish(mine, "the child's", Stats)
            plans = [each.plan for each in BoardReading.of(read_board(os.getpid())).iterators]
            os._exit(0 if plans == ["the child's"] else 1)
        finally:
            os._exit(2)  # whatever is raised: no test goes on in here
    publishing._current[0].lock.release()

    assert os.waitpid(child, 0)[1] == 0
    assert names() == ["1"]


@pytest.mark.usefixtures("fresh")
def test_one_in_the_place_of_another_is_not_taken_for_it() -> None:
    """A dead iterator's id is given again."""
    one, other = Asked(), Asked()
    publishing.publish(one, "one", Stats)
    told = publishing._current[0].told
    told[id(other)] = told.pop(id(one))

    publishing.publish(other, "other", Stats)

    assert names() == ["2"]
