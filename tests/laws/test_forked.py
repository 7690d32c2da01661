"""The laws with workers that are forked from the consumer: ``TUNDISH_START=fork``."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tundish.testing import forks

SOME = {
    "test_workers.py": "two_workers and (augment or filtered or misfits or nested)",
    "test_resume.py": "some_steps and (augment or shuffled or mixed)",
    "test_errors.py": "map or batch",
    "test_death.py": "not random_steps",
    "test_closing.py": "",
    "test_caller.py": "main or workers",
}
"""What `make test` runs; `make thorough` runs all of `tests/laws` so."""

NOT_HERE = pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or "TUNDISH_START" in os.environ
    or "TUNDISH_PORTABLE" in os.environ,
    reason="forks on Linux only; or it is what runs",
)


def run_laws(*arguments: str) -> None:
    faulthandler.cancel_dump_traceback_later()  # the limit of one test; each in there has its own
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TUNDISH_START": "fork"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@NOT_HERE
@pytest.mark.slow
@pytest.mark.parametrize("file", SOME)
def test_the_laws_hold(file: str) -> None:
    run_laws("-m", "not slow and not thorough", "-k", SOME[file], f"tests/laws/{file}")


@NOT_HERE
@pytest.mark.thorough
def test_all_laws_hold() -> None:
    run_laws("-m", "not thorough", "tests/laws")


@NOT_HERE
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:workers are forked from this process:RuntimeWarning")
@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6])
def test_forks_while_locks_are_held_do_not_hang(number: int) -> None:
    """`python -m tundish.testing.forks` has the rest, with threads of every kind at once."""
    with forks.busy():
        assert sum(forks.run(number).values()) == forks.ELEMENTS
