"""The outputs that the page on snapshots shows are those of `tundish snapshot`, with the page's program made shorter.

Numbers, sizes, keys and paths are left out: they differ from run to run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guide" / "snapshots.md").read_text(encoding="utf-8")
BATCHED = """

def batched():
    return data().shuffle(100, seed=1).batch(10)
"""
HOLD = """
import os
import time


def hold(index):
    while index >= 1500 and not os.path.exists("go"):
        time.sleep(0.01)
"""
VARYING = [
    (r"\S*/(python\S* -m )?tundish snapshot", "tundish snapshot"),
    (r"\b[0-9a-f]{16}\b", "KEY"),
    (r"\brun [0-9a-f]{8}\b", "run NAME"),
    (r"\d[\d,.]*(?: (?:B|kB|MB|GB)\b)?", "N"),
    (r"\bN (h|min)( N (min|s))? left", "N s left"),
    (r"\bfiles?\b", "files"),
    (r"-{2,}", "--"),
    (r" +", " "),
]
pytestmark = pytest.mark.slow


def program(count: int) -> str:
    """Return the page's program, over fewer elements, of which two fail."""
    found: str
    (found,) = re.findall(r"^```python\n(# train\.py\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shorter = found.replace("100_000", f"{count:_}").replace(
        "20_000 == 1234", f"{count // 2} == 34"
    )
    assert shorter != found
    return shorter


def shown(command: str) -> str:
    """Return the output on the page that begins with a command."""
    (found,) = re.findall(
        rf"^```text\n(\$ (?:cd \S+ && )?{re.escape(command)}.*?)^```$",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
    return str(found)


def commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield each command of an output, and what it prints."""
    for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = each.partition("\n")
        yield command.rpartition("&& ")[2].replace("'", "").split(), printed


def plain(text: str, folder: Path) -> list[str]:
    text = text.replace(str(folder), "FOLDER").replace("/home/me/photos", "FOLDER")
    for pattern, put in VARYING:
        text = re.sub(pattern, put, text)
    return [line.strip() for line in text.strip().splitlines()]


def start(folder: Path, words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def printed(folder: Path, words: list[str]) -> str:
    with start(folder, words) as process:
        return process.communicate(timeout=60)[0]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the program."""
    (tmp_path / "train.py").write_text(program(400) + BATCHED)
    return tmp_path


def test_an_estimate(job: Path) -> None:
    ((words, expected),) = commands(shown("tundish snapshot write train.py:data kept --estimate"))

    assert plain(printed(job, words), job) == plain(expected, job)


def test_a_job_that_is_stopped_and_continued(tmp_path: Path) -> None:
    """The last elements wait until the job was stopped; it says the same on the way, though other numbers."""
    head = "def load(index, rng):\n"
    waiting = program(2000).replace(head, f"{head}    hold(index)\n")
    assert "hold(index)" in waiting
    (tmp_path / "train.py").write_text(waiting + HOLD)
    (words, first), (again, second) = commands(
        shown("tundish snapshot write train.py:data kept --max")
    )
    assert words == again

    lines: list[str] = []
    with start(tmp_path, words) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if sum(each.startswith("  run it again") for each in lines) == 1 and "again" in line:
                process.send_signal(signal.SIGTERM)  # once: after a second one it ends at once
    (tmp_path / "go").touch()
    continued = printed(tmp_path, again)

    assert process.returncode == 143
    assert set(plain("".join(lines), tmp_path)) == set(plain(first, tmp_path))
    assert set(plain(second.replace("...\n", ""), tmp_path)) <= set(plain(continued, tmp_path))


def test_a_bad_record_is_made_again(job: Path) -> None:
    shown_ = shown("tundish snapshot write train.py:data kept --only-element 'map#1:1234'")
    ((words, expected),) = commands(shown_)
    words[-1] = "map#1:34"

    assert plain(printed(job, words), job) == plain(expected, job)


def test_shards_that_are_missing(job: Path) -> None:
    (words, expected), (_, status) = commands(shown("tundish snapshot finalize parts --of 4"))
    write = ["tundish", "snapshot", "write", "train.py:data", "parts", "--max-errors", "10"]
    for task in [start(job, [*write, "--shard", f"{shard}/4"]) for shard in (0, 1, 3)]:
        task.communicate(timeout=60)
    with start(job, words) as process:
        told = process.communicate(timeout=60)[0]

    assert plain(told, job) == plain(expected, job)
    assert process.returncode == int(status)


def test_a_pipeline_that_cannot_be_divided(job: Path) -> None:
    ((words, expected),) = commands(shown("tundish snapshot write train.py:batched kept"))

    assert plain(printed(job, words), job) == plain(expected, job)


def test_what_a_folder_holds(job: Path) -> None:
    printed(job, ["tundish", "snapshot", "write", "train.py:data", "kept", "--max-errors", "10"])
    ((words, expected),) = commands(shown("tundish snapshot info kept"))

    assert plain(printed(job, words), job) == plain(expected, job)
