"""``tundish debug``: what is found of a state, pdb driven through stdin and a terminal, and deaths."""

from __future__ import annotations

import builtins
import codecs
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tundish as td
from tundish.cli import main

PIPELINE = """
import os
import signal
import time

import numpy as np

import tundish as td


def load(n, rng):
    drawn = int(rng.integers(0, 1000))
    left = 20 - int(n)
    return drawn // left


def data():
    return td.Dataset.range(40).map(load, seed=7, num_parallel_calls=2).batch(4)


def crash(n):
    print("at", int(n))
    if n == 13:
        os.kill(os.getpid(), signal.SIGSEGV)
    return n


def crashing():
    return td.Dataset.range(40).map(crash).batch(4)


def leave(n):
    return os._exit(3) if n == 5 else n


def leaving():
    return td.Dataset.range(40).filter(lambda n: True).map(leave)


def hang(n):
    while n == 9:
        open(os.environ["HUNG"], "w").close()
        time.sleep(60)
    return n


def hanging():
    return td.Dataset.range(40).map(hang)


def uneven(n):
    time.sleep(0.02 if n == 14 else 0)
    return n


def slow():
    return td.Dataset.range(24).map(uneven).batch(4)


def ragged():
    return td.Dataset.range(8).map(lambda n: np.zeros(3 if n == 5 else 2)).batch(4)


fine = td.Dataset.range(6)
"""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A training job's file, and states of its datasets."""
    path = tmp_path / "job_to_debug.py"
    path.write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    with td.Dataset.range(6).iterator(workers=0) as it:
        next(it)
        it.save(tmp_path / "fine.json")
    return path


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command with what is typed; its status and what it prints."""

    def run(state: str, name: str, *words: str, typed: str = "") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        status = main(["debug", state, f"{file}:{name}", *words])
        out, err = capfd.readouterr()
        return status, err if status == 2 else out

    return run


def test_a_failure_is_told(run: Run) -> None:
    status, text = run("-", "data", "--no-isolate")

    assert status == 1
    assert text.startswith("element 5 after the state fails\n")
    assert re.search(r"^  in +map#1, element 20$", text, re.MULTILINE)
    assert re.search(r"^  function +load \(.*job_to_debug.py:11\)$", text, re.MULTILINE)
    assert re.search(r"^  element +np.int64\(20\)$", text, re.MULTILINE)
    assert re.search(
        r"^  rng +Philox \(counter \[0, 0, 20, 0\], key \[7, 0\]\)$", text, re.MULTILINE
    )
    frames = re.findall(r'File "(.*?)"', text)
    assert [Path(frame).name for frame in frames] == ["job_to_debug.py"]
    assert "ZeroDivisionError" in text
    assert "During handling" not in text
    assert "(Pdb)" not in text


def test_pdb_where_it_was_raised_and_again_from_the_start(run: Run) -> None:
    drawn = int(
        np.random.Generator(np.random.Philox(key=[7, 0], counter=[0, 0, 20, 0])).integers(0, 1000)
    )

    status, text = run(
        "-",
        "data",
        "--no-isolate",
        "--pdb",
        typed="p left, drawn\np element, node\np call.rng.integers(0, 1000)\nup\n"
        "again\nn\np int(element), drawn\nn\nc\np left\nq\n",
    )

    assert status == 1
    said = text[text.index("where it was raised") :].split("(Pdb) ")
    assert "-> return drawn // left" in said[0]
    assert said[1].strip() == f"(0, {drawn})"
    assert said[2].strip() == "(np.int64(20), 'map#1')"
    assert said[3].strip() == str(drawn) or said[3].strip() == f"np.int64({drawn})"
    assert "Oldest frame" in said[4]
    assert "at its start" in said[5]
    assert "-> drawn = int(rng.integers(0, 1000))" in said[5]
    assert said[7].strip() == f"(20, {drawn})"
    assert "ZeroDivisionError" in said[9]
    assert said[10].strip() == "0"


def test_nothing_stays_in_builtins(run: Run) -> None:
    before = set(vars(builtins))
    run("-", "data", "--no-isolate", "--pdb", typed="again\nq\n")

    assert set(vars(builtins)) - before <= {"_"}


def test_end_of_file_leaves_pdb(run: Run) -> None:
    status, text = run("-", "data", "--no-isolate", "--pdb", typed="")

    assert status == 1
    assert text.count("(Pdb)") == 1


def test_an_error_that_is_no_functions(run: Run) -> None:
    status, text = run("-", "ragged", "--no-isolate", "--pdb", typed="again\nq\n")

    assert status == 1
    assert "SpecError" in text
    assert "no function of yours was called" in text


def test_one_element(run: Run) -> None:
    assert run("-", "data", "--index", "5")[1].startswith("element 5 after the state fails\n")

    status, text = run("-", "data", "--index", "2", "--pdb", typed="p int(element) // 4\nq\n")
    assert status == 0
    assert "map#1" in text
    assert "(Pdb) 2" in text


def test_slow_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    status, text = run("-", "slow", "--slow", "--next", "6", "--pdb", typed="p int(n)\nq\n")

    lines = text.splitlines()
    assert status == 0
    assert lines[0] == "the slowest of at most 6 elements after the state"
    assert lines[1].split()[:3] == ["element", "took", "core"]
    assert lines[2].split()[0] == "3"
    assert "map#1" in lines[2]
    assert re.search(r"^  element +np.int64\(14\)$", text, re.MULTILINE)
    assert "(Pdb) 14" in text


def test_slow_asks_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(io, "StringIO", Terminal)

    assert "(Pdb)" not in run("-", "slow", "--slow", "--next", "6", typed="n\n")[1]
    assert "(Pdb)" not in run("-", "slow", "--slow", "--next", "6", typed="")[1]
    assert "(Pdb)" in run("-", "slow", "--slow", "--next", "6", typed="y\nq\n")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none.json", "{}:data"], "there is no state none.json: name a file"),
        (["job_to_debug.py", "{}:data"], "job_to_debug.py is not an iterator state"),
        (["fine.json", "{}:data"], "operators here: range -> map -> batch"),
        (["fine.json", "{}:nothing"], "no attribute 'nothing'"),
        (["fine.json", "{}:load"], "missing 2 required positional arguments"),
        (["fine.json", "no_such_module:data"], "No module named 'no_such_module'"),
        (["fine.json", "data"], "name a dataset as MODULE:NAME"),
        (["fine.json"], "takes STATE and MODULE:NAME (- for STATE"),
        ([], "takes STATE and MODULE:NAME (- for STATE"),
        (["--dump", "none"], "there is no such folder"),
        (["--dump", "."], "no dump is in this folder"),
    ],
)
def test_what_there_is_not(
    words: list[str], told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(file) for word in words]

    assert main(["debug", *given, "--no-isolate"]) == 2
    text = capsys.readouterr().err
    assert told in text
    assert "Traceback" not in text


@pytest.mark.parametrize("words", [["--next", "0"], ["--next", "x"], ["--index", "-1"]])
def test_numbers(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["debug", "-", "a:b", *words])


def test_nothing_fails(run: Run) -> None:
    assert run("fine.json", "fine", "--no-isolate") == (
        0,
        "none of the next 5 elements fails, and there are no more\n",
    )
    assert run("-", "data", "--no-isolate", "--next", "3") == (
        0,
        "none of the next 3 elements fails; --next N looks at more\n",
    )


# -- a process of its own ---------------------------------------------------------------------


@pytest.mark.slow
def test_apart_it_is_the_same(run: Run) -> None:
    apart, here = run("-", "data"), run("-", "data", "--no-isolate")

    assert apart == here
    assert run("fine.json", "fine") == run("fine.json", "fine", "--no-isolate")
    assert run("-", "data", "--next", "3") == run("-", "data", "--no-isolate", "--next", "3")
    assert run("fine.json", "data")[0] == 2


@pytest.mark.slow
def test_an_element_that_kills(run: Run) -> None:
    status, text = run("-", "crashing", "--pdb", typed="p int(n)\nq\n")

    assert status == 1
    assert "element 3 after the state kills its process: SIGSEGV" in text
    assert re.search(r"^  in +map#1$", text, re.MULTILINE)
    assert re.search(r"^  function +crash \(.*job_to_debug.py:21\)$", text, re.MULTILINE)
    assert re.search(r"^  element +np.int64\(13\)$", text, re.MULTILINE)
    assert "(Pdb) 13" in text
    assert text.count("at 13") == 1  # in the process of its own; here it is not called


@pytest.mark.slow
def test_a_file_that_fails_is_no_element(run: Run, file: Path) -> None:
    file.write_text(PIPELINE + "\nraise RuntimeError('at import')\n")

    status, text = run("-", "data")

    assert status == 2
    assert "ended (exit status 1) before any element" in text


@pytest.mark.slow
def test_an_element_that_leaves(run: Run) -> None:
    status, text = run("-", "leaving")

    assert status == 1
    assert "element 5 after the state kills its process: exit status 3" in text
    assert "map#2" in text


@pytest.mark.slow
def test_an_interrupt_tells_where_it_was(file: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches the command and the process that it has started, as from a terminal."""
    hung = tmp_path / "hung"
    process = subprocess.Popen(
        [sys.executable, "-m", "tundish", "debug", "-", f"{file}:hanging"],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HUNG": str(hung)},
        start_new_session=True,
        text=True,
    )
    wait_for(hung.exists)
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=20)

    assert process.returncode == 130
    assert text.startswith("interrupted in element 9 after the state, in map#1\n")
    assert "time.sleep(60)" in text


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait, with a deadline."""
    until = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_at_a_terminal(file: Path) -> None:
    """Nothing is asked for: pdb begins by itself, and its answers come."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tundish", "debug", "-", f"{file}:data"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen = answered(mine, "(Pdb) ")
        assert "return drawn // left" in seen
        os.write(mine, b"p int(element) + 1000\n")
        assert "1020" in answered(mine, "(Pdb) ")
        os.write(mine, b"again\n")
        assert "-> drawn = int(rng.integers(0, 1000))" in answered(mine, "(Pdb) ")
        os.write(mine, b"q\n")
        assert process.wait(20) == 1
    finally:
        process.kill()
        process.wait()
        os.close(mine)


def answered(terminal: int, end: str) -> str:
    """Return what is printed up to a prompt."""
    seen, until = "", time.monotonic() + 20
    decode = codecs.getincrementaldecoder("utf-8")().decode
    while not seen.endswith(end):
        assert select.select([terminal], [], [], until - time.monotonic())[0], seen
        seen += decode(os.read(terminal, 4096))
    return seen


# -- dumps --------------------------------------------------------------------------------------


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A dump with one bad element."""
    folder = tmp_path / "dump"
    td.debugging.enable_dump_debug_info(folder, "FULL_HEALTH")
    try:
        ds = td.Dataset.range(6).map(lambda x: {"x": np.float64("inf") if x == 2 else x / 2})
        assert len(list(ds.batch(3).map(lambda e: e))) == 2
    finally:
        td.debugging.disable_dump_debug_info()
    return folder


def test_a_dump_is_summed_up(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["debug", "--dump", str(dump)])

    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert "1 consumer(s) and 0 worker(s) (FULL_HEALTH)" in lines[0]
    assert lines[2] == "range#0 -> map#1 -> batch#2 -> map#3"
    rows = {line.split()[0]: line for line in lines[4:]}
    assert rows["range#0"].split()[:6] == ["range#0", "6", "0", "0", "0", "0"]
    assert rows["map#1"].split()[:6] == ["map#1", "6", "0", "1", "0", "1"]
    assert "element 2" in rows["map#1"]


def test_the_newest_of_a_node(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "--dump", str(dump), "--node", "range"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert len([line for line in lines if "element " in line and "int64" in line]) == 6
    assert "5 .. 5" in lines[-1]

    assert main(["debug", "--dump", str(dump), "--node", "shuffle"]) == 2
    assert "nothing of shuffle is in" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["--isolate", "--no-isolate"])
def test_the_program_finds_its_own_arguments(
    how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job_with_arguments.py"
    file.write_text(
        "import sys, tundish as td\ndata = td.Dataset.range(int(sys.argv[1])).map(lambda x: [0][x // 4])\n"
    )

    assert main(["debug", how, "--no-pdb", "-", f"{file}:data", "4"]) == 0
    assert "none of the next 4 elements fails" in capfd.readouterr().out
    assert main(["debug", how, "--no-pdb", "-", f"{file}:data", "5"]) == 1
    assert "element 4 after the state fails" in capfd.readouterr().out
