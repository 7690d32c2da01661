"""The outputs that the page on debugging shows are those of its programs, and of the job below.

Left out are only the folder of the files, the numbers of processes, and times.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guide" / "debugging.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
JOB = """\
import signal
import time

import numpy as np
import tundish as td


def load(n, rng):
    if n % 97 == 96:
        time.sleep(0.05)
    crop = int(rng.integers(0, 8))
    size = 0 if n == 120 else 4
    return {"image": np.full((4, 4), crop, np.float32), "scale": crop // size}


def data():
    return td.Dataset.range(10_000).map(load, seed=7).batch(16)


def decode(n):
    if n == 37:
        signal.raise_signal(signal.SIGSEGV)
    return n


def photos():
    return td.Dataset.range(100).map(decode)
"""
TYPED = "p crop, size\nagain\nn\nq\n"
VARYING = [
    (r"[^\s(\"]*/(?=train\.py)", ""),
    (r"\bworker (process )?\d+", r"worker \1N"),
    (r"\d+\.\d+ s\b", "N s"),
    (r"\d\d:\d\d:\d\d\.\d+", "TIME"),
]
"""What differs between two runs of the same program."""


def shown(start: str) -> str:
    """Return the output on the page that begins so."""
    (found,) = (text for kind, text in fences() if kind == "text" and text.startswith(start))
    return found


def program_before(start: str) -> str:
    """Return the last program before that output."""
    programs = [""]
    for kind, text in fences():
        if kind == "text" and text.startswith(start):
            return programs[-1]
        programs += [text] * (kind == "python")
    raise LookupError(start)


def fences() -> list[tuple[str, str]]:
    return [(kind, text.replace(f"\n{indent}", "\n").removeprefix(indent)) for indent, kind, text in FENCE.findall(PAGE)]  # fmt: skip


def plain(text: str) -> list[str]:
    """Return the lines of an output without what varies."""
    for pattern, put in VARYING:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.strip().splitlines()]


def printed(folder: Path, command: Sequence[str], typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


def ran(folder: Path, code: str) -> str:
    (folder / "train.py").write_text(code, encoding="utf-8")
    return printed(folder, ["train.py"])


@pytest.mark.parametrize("start", ["pixels: ", "map#1 gave values"])
def test_errors_are_printed_as_shown(tmp_path: Path, start: str) -> None:
    told = ran(tmp_path, program_before(start))

    assert plain(told) == plain(shown(start))


def test_placement_is_logged_as_shown(tmp_path: Path) -> None:
    """Workers log to the stderr of the process, so it is not redirected as in the program."""
    start = "tundish: range#0"
    code = program_before(start).replace("x + 1)", "x + 1, num_parallel_calls=1)")
    code = code.replace(
        "contextlib.redirect_stderr(io.StringIO()) as told", "contextlib.nullcontext()"
    )
    told = ran(tmp_path, f"import os\nos.dup2(1, 2)\n{code[: code.rindex('assert')]}")

    assert sorted(plain(told)) == sorted(plain(shown(start)))


def test_a_dump_is_printed_as_shown(tmp_path: Path) -> None:
    start = "dump: "
    ran(tmp_path, program_before(start))
    told = printed(tmp_path, ["-m", "tundish", "debug", "--dump", "dump"])

    assert plain(told) == plain(shown(start))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the program and the states that the page debugs."""
    (tmp_path / "train.py").write_text(JOB, encoding="utf-8")
    save = """
import train

for name, count in (("data", 3), ("photos", 34)):
    ds = getattr(train, name)()
    with ds.iterator(workers=0) as it:
        for _ in range(count):
            next(it)
        it.save(f"{name}.json")
        print(name)
"""
    printed(tmp_path, ["-c", save])
    return tmp_path


@pytest.mark.slow
def test_a_failing_element_is_debugged_as_shown(job: Path) -> None:
    command, _, session = shown("$ tundish debug data.json train.py:data\n").partition("\n")
    told = printed(job, ["-m", "tundish", *command.split()[2:], "--pdb"], TYPED)
    typed = iter(TYPED.splitlines())
    told = re.sub(r"^\(Pdb\) ", lambda _: f"(Pdb) {next(typed)}\n", told, flags=re.MULTILINE)

    assert plain(told.replace("(Pdb) q", "")) == plain(session)


@pytest.mark.slow
def test_an_element_that_kills_its_process_is_found_as_shown(job: Path) -> None:
    command, _, report = shown("$ tundish debug photos.json").partition("\n")
    told = printed(job, ["-m", "tundish", *command.split()[2:]])

    assert plain(told) == plain(report)


@pytest.mark.slow
def test_slow_elements_are_listed_as_shown(job: Path) -> None:
    """Which of the sleeping ones are slowest differs; one is made again."""
    command, _, report = shown("$ tundish debug data.json train.py:data --slow").partition("\n")
    told = printed(job, ["-m", "tundish", *command.split()[2:]])

    assert words(told) == words(report)


def words(text: str) -> list[list[str]]:
    return [re.sub(r"\d[\d.]*", "N", line).split() for line in plain(text)]
