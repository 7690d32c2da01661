"""Killed in the middle of an epoch by SIGKILL, resumed by another process: the batches of torch's own loader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch import killed  # noqa: E402 - after the skip
from tests.torch.killed import KILLED_AFTER, RANKS, Rows, loader  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.untidy,  # trainers keep things
    pytest.mark.filterwarnings("ignore"),  # their advice
]
ROOT = Path(__file__).resolve().parents[2]
TorchLoader: Any = torch.utils.data.DataLoader


def run_program(*arguments: Any, **variables: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in variables.items()}}
    command = [sys.executable, "-m", "tests.torch.killed", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def rows(batches: Any) -> list[list[float]]:
    return [batch["x"].flatten().tolist() for batch in batches]


def run(name: str, folder: Path, **options: Any) -> list[list[float]]:
    """Train here; the rows of each step."""
    seen: list[list[float]] = []

    def step(batch: Any) -> None:
        if batch is not None:
            seen.append(batch.flatten().tolist())

    getattr(killed, name)(folder, step, **options)
    return seen


@pytest.fixture(autouse=True)
def accelerate_begins_anew() -> Iterator[None]:
    yield
    if "accelerate" in sys.modules:
        state = sys.modules["accelerate"].state
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("plain", "torch"),
        ("lightning", "lightning"),
        ("accelerate", "accelerate"),
        ("trainer", "transformers"),
        ("trainer_stream", "transformers"),
    ],
)
def test_the_rest_is_torch_s(tmp_path: Path, name: str, needs: str) -> None:
    pytest.importorskip(needs)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    with run_program(name, ours) as process:
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    if needs == "transformers":  # a Trainer seeds the order itself
        whole = run(name, theirs, resume=False, kind=TorchLoader)
    else:
        whole = rows(loader(TorchLoader))
    assert sorted(x for batch in whole for x in batch) == list(range(len(Rows())))
    assert run(name, ours, resume=True) == whole[KILLED_AFTER:]


def test_the_rest_of_each_rank_is_torch_s(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    texts: list[str] = []
    for code, resumed in ((-signal.SIGKILL, ()), (0, ("resumed",))):
        group = [run_program("ranks", tmp_path, *resumed, RANK=rank) for rank in range(RANKS)]
        texts = [process.communicate(timeout=120)[0] for process in group]
        assert [process.returncode for process in group] == [code] * RANKS
    for rank, text in enumerate(texts):
        theirs = rows(killed.sharded(TorchLoader, rank))
        assert [json.loads(line) for line in text.splitlines()] == theirs[KILLED_AFTER:]
