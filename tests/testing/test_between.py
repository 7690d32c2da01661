"""`tundish.testing.between` finds nothing between a version and itself, and what is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ONLY = ("map", "load", "cache-files")


def between(how: str, folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tundish.testing.between", how, str(folder), "--only", *ONLY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_it_finds_nothing_between_a_version_and_itself_and_all_that_is_changed(
    tmp_path: Path,
) -> None:
    assert between("--write", tmp_path) == (0, "3 cases written\n")
    assert between("--check", tmp_path) == (0, "3 cases compared, 0 differences\n")

    cases = json.loads((tmp_path / "written.json").read_text())
    cases["map"]["fingerprints"]["plain"] = "0"
    states = cases["load"]["states"]
    states[0]["state"]["plan"][0][1]["rows"] = 5
    states[1]["state"] = states[2]["state"]
    (tmp_path / "written.json").write_text(json.dumps(cases))
    (key,) = (tmp_path / "snapshots/map/plain/complete").iterdir()
    key.rename(key.with_name("0123456789abcdef"))
    shutil.rmtree(next((tmp_path / "snapshots/cache-files/plain/half").glob("*/runs/*")))

    status, told = between("--check", tmp_path)

    assert status == 1
    for text in (
        "map: fingerprint.plain: ",
        "load: state after 0 with 0 workers is refused: ",
        "load: state after 2 with 0 workers.position",
        "load: rest after state after 2 with 0 workers: ",
        'map: plain snapshot.complete: "17 elements',
        '"incomplete" here',
        "cache-files: plain snapshot.runs: ",
    ):
        assert text in told
