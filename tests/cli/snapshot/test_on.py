"""What ``tundish snapshot write --on ray`` refuses before it asks for a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.snapshot.pipelines import write

from tundish.cli.snapshot import USAGE


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "ray", "--shard", "0/2"), "--shard and --on contradict"),
        (("--on", "ray", "--estimate"), "--estimate and --on contradict"),
        (("--on", "ray", "--only-element", "3"), "--only-element and --on contradict"),
        (("--parts", "2"), "--parts and --address belong to --on ray"),
        (("--address", "a:1"), "--parts and --address belong to --on ray"),
    ],
)
def test_contradictions(
    file: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert write(file, "data", *words) == USAGE
    assert says in capsys.readouterr().err


def test_ray_is_not_installed(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    assert write(file, "data", "--on", "ray") == USAGE
    assert "pip install ray" in capsys.readouterr().err
