"""The page of conformance is what its results give, our column holds, and adapters stay short."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "benchmarks" / "conformance"
PEERS = sorted(path for path in (HOME / "peers").glob("*.py") if path.stem != "__init__")
RESULTS = json.loads((HOME / "results.json").read_text(encoding="utf-8"))
LONGEST = 30


def test_the_page_is_what_the_results_give() -> None:
    code = "import json; from conformance.page import RESULTS, render; print(render(json.loads(RESULTS.read_text())), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HOME.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    page = ROOT / "docs" / "benchmarks" / "conformance.md"
    assert page.read_text(encoding="utf-8") == made.stdout


def test_the_table_is_whole_and_our_column_holds() -> None:
    cells = RESULTS["cells"]
    code = "import json; from conformance.cell import LAWS; print(json.dumps(list(LAWS)))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME.parent, capture_output=True, check=True, timeout=120
    )

    assert list(cells) == json.loads(run.stdout)
    assert len({frozenset(row) for row in cells.values()}) == 1
    assert {peer for row in cells.values() for peer in row} <= {path.stem for path in PEERS}
    assert not [law for law, row in cells.items() if row["tundish"]["mark"] != "holds"]


def test_each_failure_of_another_was_seen_twice_and_is_dated() -> None:
    for law, row in RESULTS["cells"].items():
        for peer, cell in row.items():
            assert all(each["at"].endswith("UTC") for each in cell["tries"]), (law, peer)
            if cell["mark"] == "fails":
                assert [each["mark"] for each in cell["tries"]] == ["fails"] * 2, (law, peer)


@pytest.mark.parametrize("path", PEERS, ids=lambda path: str(path.stem))
def test_an_adapter_is_short(path: Path) -> None:
    """Lines with code, without docstring and imports."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    apart = {
        line
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and number not in apart and not line.strip().startswith("#")
    ]

    assert len(code) <= LONGEST


@pytest.mark.slow
@pytest.mark.parametrize("law", ["exception-told", "corrupt-rest", "kill-worker-survived"])
def test_a_cell_of_ours_runs_by_its_command(law: str) -> None:
    run = subprocess.run(
        [sys.executable, str(HOME / "run.py"), "--peer", "tundish", "--law", law],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert not run.returncode, run.stdout + run.stderr
    assert f"{law:22} tundish" in run.stdout
    assert "holds" in run.stdout
