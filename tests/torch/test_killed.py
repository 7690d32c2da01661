"""Killed in the middle of an epoch by SIGKILL, resumed by another process: the batches of torch's own loader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch import killed  # noqa: E402 - after the skip
from tests.torch.killed import KILLED_AFTER, Rows, loader  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.untidy,  # trainers keep things
    pytest.mark.filterwarnings("ignore"),  # their advice
]
ROOT = Path(__file__).resolve().parents[2]


def run_program(*arguments: Any, **variables: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in variables.items()}}
    command = [sys.executable, "-m", "tests.torch.killed", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def rows(batches: Any) -> list[list[float]]:
    return [batch["x"].flatten().tolist() for batch in batches]


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("plain", "torch"),
        ("lightning", "lightning"),
        ("accelerate", "accelerate"),
    ],
)
def test_the_rest_is_torch_s(tmp_path: Path, name: str, needs: str) -> None:
    pytest.importorskip(needs)
    with run_program(name, tmp_path) as process:
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    seen: list[Any] = []

    def step(batch: Any) -> None:
        if batch is not None:
            seen.append(batch.flatten().tolist())

    try:
        getattr(killed, name)(tmp_path, step, resume=True)
    finally:
        if needs != "torch":
            accelerate = pytest.importorskip("accelerate")
            accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
            accelerate.state.GradientState._reset_state()
    theirs: Any = torch.utils.data.DataLoader
    whole = rows(loader(theirs))
    assert sorted(x for batch in whole for x in batch) == list(range(len(Rows())))
    assert seen == whole[KILLED_AFTER:]
