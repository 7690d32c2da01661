"""Every program that the results cite runs to its end: a change of the library must not break what measures it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SHORT = ("--rounds", "1")
BRIEF = (*SHORT, "--seconds", "0.05")
OPTIONS = {
    "guard": (),
    "host": (*SHORT, "--consumers", "2", "--batches", "3"),
    "service_control": SHORT,
}
"""The options of programs that have others than `common.arguments`."""

LEFT_OUT = {
    "against": "compares two commits",
    "curves": "test_curves.py runs it",
    "firsts": "takes the name of a peer",
    "watch": "takes longer than a test may",
}
PROGRAMS = sorted(
    path.stem
    for path in FOLDER.glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8") and path.stem not in LEFT_OUT
)


@pytest.mark.thorough
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs_to_its_end(program: str, tmp_path: Path) -> None:
    options = OPTIONS.get(program, (*BRIEF, "--json", str(tmp_path / "results.json")))

    run = subprocess.run(
        [sys.executable, str(FOLDER / f"{program}.py"), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert "Traceback" not in run.stderr, run.stderr
    assert run.stdout
