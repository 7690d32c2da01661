"""Who dies with whom, and who does not. Real processes, killed for real."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tundish.loader.run.launcher import Launcher

ROOT = Path(__file__).parents[3]
KINDS = pytest.mark.parametrize("kind", ["zygote", "spawn"])
SOON_S = 5.0  # nothing here takes a tenth of this, unless it never happens


def is_gone(pid: int) -> bool:
    """Whether a process has ended; an orphan may stay in the table until init looks."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def happens(condition: Callable[[], bool], timeout_s: float = SOON_S) -> bool:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


@contextlib.contextmanager
def trainer(kind: str, entry: str, how: str = "", **options: object) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Run a training process; yield it with the pids of its zygote, workers and the rest."""
    with subprocess.Popen(
        [sys.executable, "tests/loader/run/trainer.py", kind, entry, how],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    ) as process:
        try:
            assert process.stdout is not None
            told = [int(word) for word in process.stdout.readline().split()]
            try:
                yield process, [pid for pid in told if pid > 0]
            finally:
                for pid in told:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(abs(pid), signal.SIGKILL)
        finally:
            process.kill()


@KINDS
@pytest.mark.parametrize("entry", ["sleep", "hold_gil", "stop", "deaf", "threads", "parent"])
def test_all_end_with_a_killed_parent(kind: str, entry: str) -> None:
    with trainer(kind, entry) as (process, pids):
        assert len(pids) == (9 if entry == "parent" else 3)
        assert not any(map(is_gone, pids))

        process.kill()

        assert happens(lambda: all(map(is_gone, pids))), [pid for pid in pids if not is_gone(pid)]
