"""The simulation of one trainer with many remote workers: the design's table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "service_scale.py"


@pytest.mark.slow
def test_the_table_of_the_design(tmp_path: Path) -> None:
    results = tmp_path / "scale.json"
    command = [sys.executable, str(PROGRAM), "--check", "--json", str(results)]

    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert run.returncode == 0, run.stdout + run.stderr
    rows = json.loads(results.read_text())["tables"]["scale"]
    found = {(row["batch"], int(row["workers"])): row["limit"] for row in rows}
    assert len(found) == 16
    assert found["38.5 MB", 8] == "receiving"
    assert found["1 MB", 64] == "workers"
    assert found["64 KB", 1000] == "thread"
