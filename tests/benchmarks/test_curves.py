"""The page of scaling curves and its plots are what the results give."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "benchmarks"
CODE = (
    "import json, curves; print(json.dumps(curves.pages(json.loads(curves.RESULTS.read_text()))))"
)


def test_page_and_plots_are_what_the_results_give() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT / "benchmarks",
        capture_output=True,
        check=True,
        timeout=120,
    )
    made = json.loads(run.stdout)

    assert made == {name: (DOCS / name).read_text(encoding="utf-8") for name in made}
    assert {path.name for path in DOCS.glob("curves*")} == set(made)


def test_plots_are_well_formed() -> None:
    for path in DOCS.glob("curves-*.svg"):
        assert ET.fromstring(path.read_text(encoding="utf-8")).tag.endswith("svg")


def test_a_point_is_measured_by_its_command() -> None:
    run = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / "curves.py"),
            "--point",
            "indices",
            "1000000000",
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )

    point = json.loads(run.stdout)
    assert point["state"] < 1_000
    assert point["pss"] < 200e6
