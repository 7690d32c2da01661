"""Writers that are killed at random and at every step; the long forms are in `tests.snapshot.kills`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tundish.snapshot.failpoints import STEPS

MEMORY = Path("/dev/shm")  # death of a process is the same there, and waiting for disks is not
ROOT = Path(__file__).resolve().parents[3]
# Steps of the catalog, the lease and compact, which a writer does not come to.
ELSEWHERE = ("pipeline.", "lease.", "replace.")


def kills(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.snapshot.kills", *arguments]
    if MEMORY.is_dir():
        command += ["--folder", str(MEMORY)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_random_kills() -> None:
    assert "each exact at its end" in kills("--random", "20")


@pytest.mark.slow
def test_a_kill_at_every_step() -> None:
    reached = json.loads(kills("--steps", "kill", "--times", "1"))

    assert set(reached) == {step for step in STEPS if not step.startswith(ELSEWHERE)}


@pytest.mark.slow
def test_an_error_at_the_steps_of_a_shard_and_its_record() -> None:
    shard = json.loads(kills("--steps", "raise", "--times", "2", "--only", "shard."))
    journal = json.loads(kills("--steps", "raise", "--times", "2", "--only", "journal."))

    assert set(shard) == {step for step in STEPS if step.startswith("shard.")}
    assert set(journal) == {step for step in STEPS if step.startswith("journal.")}
