"""Every example runs as it stands, twice: the second time it may find what the first one left."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

OPTIONAL = re.compile(r"^(?:from|import) (sklearn|torch)\b", re.MULTILINE)


def needed(example: Path) -> set[str]:
    return set(OPTIONAL.findall(example.read_text(encoding="utf-8")))


EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.framework] if needed(path) else [])
    for path in sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    missing = {name for name in needed(example) if find_spec(name) is None}
    if missing:
        pytest.skip(f"needs {', '.join(sorted(missing))}")

    for _ in range(2):
        done = subprocess.run(
            [sys.executable, example],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert not done.returncode, done.stderr
        assert not done.stderr
        assert done.stdout
