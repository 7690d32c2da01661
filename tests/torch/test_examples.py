"""The training of `examples/digits.py`, killed and gone on with, ends with the same weights."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits.py"


def train(state: Path, *options: str) -> int:
    """Run the example; its exit status."""
    fixed = ("--epochs", "2", "--save-every", "5", "--state", state.name)
    done = subprocess.run(
        [sys.executable, EXAMPLE, *fixed, *options],
        cwd=state.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a run leaves that nobody kills."""
    state = tmp_path_factory.mktemp("undisturbed") / "state.pt"
    assert not train(state, "--workers", "2")
    parts: dict[str, Any] = torch.load(state, weights_only=True)
    assert parts["at"] == (2, 48)
    return parts


@pytest.mark.slow
def test_killed_twice_ends_with_same_weights(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    state = tmp_path / "state.pt"

    # Between two saves: in the first epoch, which has 24 steps, and in the second.
    assert train(state, "--workers", "2", "--stop-after", "12") == -signal.SIGKILL
    assert train(state, "--workers", "0", "--stop-after", "16") == -signal.SIGKILL
    assert torch.load(state, weights_only=True)["at"] == (1, 25)
    assert not train(state, "--workers", "1")

    found = torch.load(state, weights_only=True)
    assert found["model"].keys() == undisturbed["model"].keys()
    for name, value in undisturbed["model"].items():
        assert torch.equal(found["model"][name], value), name
    assert torch.equal(found["random"], undisturbed["random"])
