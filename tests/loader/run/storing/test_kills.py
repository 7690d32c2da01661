"""A run that is killed at any instant, and run again: nothing is lost, doubled, or left over.

In long form: ``python -m tests.loader.run.storing.test_kills 200 [SEED]``, with one more kill at each
step of a commit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from tests.loader.run.storing.killed import pipeline

from tundish.snapshot.catalog import Catalog
from tundish.snapshot.failpoints import STEPS
from tundish.testing.compare import collect, difference

SCRIPT = Path(__file__).with_name("killed.py")
EXPECTED = 540


def run(folder: Path, workers: int, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


def hit(process: subprocess.Popen[str], rng: random.Random) -> str:
    """Kill the run, or one of its workers, at some instant; its output."""
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(rng.uniform(0, 0.7))
    victim = psutil.Process(process.pid)
    with contextlib.suppress(psutil.Error):
        below = victim.children(recursive=True)
        if below and rng.random() < 0.4:
            victim = rng.choice(below)
        victim.send_signal(signal.SIGKILL)
    if victim.pid == process.pid:
        output, errors = process.communicate()
        return output
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def check(folder: Path) -> None:
    """Assert that the snapshot has all elements, once, and that nothing else is there."""
    catalog = Catalog(folder)
    (key,) = catalog.keys()
    manifest = catalog.manifest(key)
    assert manifest is not None
    assert manifest.rows == EXPECTED
    names = {str(p.relative_to(folder / key)) for p in folder.rglob("*") if p.is_file()}
    (run,) = [entry.run for entry in manifest.runs]
    known = {"pipeline.json", "manifest.json", f"runs/{run}/run.json", f"runs/{run}/index.arrow"}
    left = [
        name
        for name in names - known
        if not name.startswith((f"runs/{run}/journal/", f"runs/{run}/state/"))
        and not (name.startswith(f"runs/{run}/shard-") and name.endswith(".arrow"))
    ]
    assert not left
    with pipeline(str(folder)).iterator(workers=0) as it:
        assert [s.doing for s in it.stats.snapshots] == ["read"]
        found = collect(it)
    with tempfile.TemporaryDirectory() as other, pipeline(other).iterator(workers=0) as it:
        expected = collect(it)
    assert difference(expected, found, ("uninterrupted", "killed and continued")) is None


def hunt(folder: Path, kills: int, rng: random.Random) -> int:
    """Run, kill, run again; how often it was begun anew from the start."""
    done = 0
    for _ in range(kills):
        output = hit(run(folder, rng.choice([0, 1, 2])), rng)
        done += "done" in output
        if "done" in output:
            check(folder)
            for name in sorted(folder.rglob("*"), reverse=True):
                name.unlink() if name.is_file() else name.rmdir()
    last = run(folder, 2)
    output, errors = last.communicate(timeout=120)
    assert "done" in output, errors
    check(folder)
    return done


@pytest.mark.slow
def test_killed_anywhere(tmp_path: Path) -> None:
    hunt(tmp_path / "snapshot", 5, random.Random(8))


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step(tmp_path: Path, step: str, workers: int) -> None:
    killed_at(tmp_path / "snapshot", step, workers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "workers"), [("journal.linked", 2), ("shard.linked", 0), ("manifest.linked", 2)]
)
def test_killed_at_a_step(tmp_path: Path, step: str, workers: int) -> None:
    killed_at(tmp_path / "snapshot", step, workers)


def killed_at(folder: Path, step: str, workers: int) -> None:
    assert step in STEPS, f"{step} is no fail point; there are {', '.join(STEPS)}"
    first = run(folder, workers, TUNDISH_FAILPOINT=f"{step}:kill")
    first.communicate(timeout=120)
    last = run(folder, workers)
    output, errors = last.communicate(timeout=120)
    assert "done" in output, errors
    check(folder)


def main(kills: int, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as root:
        whole = hunt(Path(root, "random"), kills, rng)
        print(f"{kills} kills at random instants, {whole} runs were over before", flush=True)  # noqa: T201 - what it is for
        for step in STEPS:
            for workers in (0, 2):
                killed_at(Path(root, f"{step}-{workers}"), step, workers)
        print(f"{len(STEPS)} named steps, without workers and with two")  # noqa: T201 - what it is for


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
