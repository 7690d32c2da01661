"""Real processes: several ranks on this host, killed, and restarted at another count."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.distribute.rank import PLANS

DEADLINE_S = 60.0
RANK = Path(__file__).with_name("rank.py")


class Rank:
    """A rank, as torchrun starts it; it makes a step when it is told to."""

    def __init__(
        self, index: int, count: int, plan: str, replicas: int, state: Path | None
    ) -> None:
        said = {
            "RANK": index,
            "WORLD_SIZE": count,
            "LOCAL_RANK": index,
            "LOCAL_WORLD_SIZE": count,
            "GROUP_RANK": 0,
            "TORCHELASTIC_RUN_ID": "none",
            "MASTER_ADDR": "127.0.0.1",
        }
        others = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TUNDISH_"))}
        arguments = [plan, str(replicas), *([] if state is None else [str(state)])]
        self._process = subprocess.Popen(
            [sys.executable, str(RANK), *arguments],
            env={**others, **{name: str(value) for name, value in said.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()

    def said(self) -> Any:
        """Its next line, within the deadline."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], DEADLINE_S)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"a rank said nothing; its status is {self._process.poll()}"
        return json.loads(line)

    def kill(self) -> list[psutil.Process]:
        """End it at once; what it had started is given back."""
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return started

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def ranks(
    count: int, plan: str, state: Path | None = None, replicas: int = 1
) -> Iterator[list[Rank]]:
    started: list[Rank] = []
    try:
        started += [Rank(index, count, plan, replicas, state) for index in range(count)]
        for index, rank in enumerate(started):
            assert rank.said() == {"ready": index}
        yield started
    finally:
        for rank in started:
            rank.close()


def step(running: list[Rank]) -> tuple[list[Any], list[Any]] | None:
    """One step of all: their rows side by side, and their states; None at the end."""
    for rank in running:
        rank.tell()
    told = [rank.said() for rank in running]
    ended = ["end" in each for each in told]
    assert all(ended) or not any(ended), "some have ended and others have not"
    if all(ended):
        return None
    return [row for each in told for row in each["rows"]], [each["state"] for each in told]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "counts"),
    [("batches", (4, 3, 1, 2)), ("kept", (2, 3))],
    ids=["numbered", "unknown"],
)
def test_killed_and_restarted_at_another_count(tmp_path: Path, plan: str, counts: Any) -> None:
    """Each time all are killed within a step that some have made: it is made again, by others."""
    with PLANS[plan]().iterator(workers=0) as alone:
        whole = [[[int(x), int(d)] for x, d in zip(b["x"], b["drawn"], strict=True)] for b in alone]
    state: Path | None = None
    got: list[Any] = []
    orphans: list[psutil.Process] = []
    states: list[Any] = []
    for count in counts[:-1]:
        with ranks(count, plan, state) as running:
            for _ in range(2):
                made = step(running)
                assert made is not None
                rows, states = made
                got.append(rows)
                assert all(each == states[0] for each in states), "one state for all ranks"
            running[0].tell()  # and nobody else
            running[0].said()
            for rank in running:
                orphans += rank.kill()
            state = tmp_path / f"{len(got)}.json"
            state.write_text(json.dumps(states[-1]))
    with ranks(counts[-1], plan, state) as running:
        while (made := step(running)) is not None:
            got.append(made[0])

    assert got == whole
    _, alive = psutil.wait_procs(orphans, timeout=DEADLINE_S)
    assert not alive, "workers of killed ranks"


@pytest.mark.slow
def test_two_ranks_of_two_replicas() -> None:
    with PLANS["batches"]().iterator(workers=0) as alone:
        whole = [b["x"].tolist() for b in alone]
    with ranks(2, "batches", replicas=2) as running:
        for rows in whole:
            made = step(running)
            assert made is not None
            assert [x for x, _ in made[0]] == rows
        assert step(running) is None
