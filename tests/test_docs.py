"""Every Python block of the documents runs as it stands, as a script of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block[1], id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_block_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert not done.returncode, done.stderr
    assert not done.stderr
