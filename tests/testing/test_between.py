"""`tundish.testing.between` finds nothing between a version and itself, and what is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ONLY = ("map", "load", "cache-files")


def between(how: str, folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tundish.testing.between", how, str(folder), "--only", *ONLY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("between")
    assert between("--write", folder) == (0, "3 cases written\n")
    return folder


@pytest.mark.slow
def test_a_version_understands_itself(written: Path) -> None:
    assert between("--check", written) == (0, "3 cases compared, 0 differences\n")


def fingerprint(case: Any, snapshots: Path) -> None:
    case["fingerprints"]["plain"] = "0"


def position(case: Any, snapshots: Path) -> None:
    case["states"][1]["state"] = case["states"][2]["state"]


def refusal(case: Any, snapshots: Path) -> None:
    case["states"][1]["state"]["plan"][0][1]["stop"] = 5


def run(case: Any, snapshots: Path) -> None:
    shutil.rmtree(next(snapshots.glob("plain/half/*/runs/*")))


def key(case: Any, snapshots: Path) -> None:
    (found,) = snapshots.glob("plain/complete/*")
    found.rename(found.with_name("0123456789abcdef"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (fingerprint, ["map: fingerprint.plain: "]),
        (position, ["map: state after 2 with 0 workers.position", "map: rest after state after 2"]),
        (refusal, ["map: state after 2 with 0 workers is refused: "]),
        (run, ["map: plain snapshot.runs: "]),
        (key, ['map: plain snapshot.complete: "17 elements', '"incomplete" here']),
    ],
)
def test_what_is_changed_is_reported(
    written: Path, change: Callable[[Any, Path], None], reported: list[str]
) -> None:
    before = (written / "written.json").read_text()
    kept = shutil.copytree(written / "snapshots" / "map", written / "kept")
    cases = json.loads(before)
    change(cases["map"], written / "snapshots" / "map")
    (written / "written.json").write_text(json.dumps(cases))
    try:
        status, told = between("--check", written)
    finally:
        (written / "written.json").write_text(before)
        shutil.rmtree(written / "snapshots" / "map")
        shutil.move(kept, written / "snapshots" / "map")

    assert status == 1
    for text in reported:
        assert text in told
