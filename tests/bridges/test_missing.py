"""A bridge without its framework says what to install; a broken framework says its own error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BRIDGES = {"torch": "torch", "jax": "jax", "tensorflow": "tensorflow", "orbax": "jax"}
"""A framework without which a bridge cannot be imported."""
PACKAGES = {**BRIDGES, "orbax": "orbax-checkpoint"}


def said(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("bridge", BRIDGES)
def test_it_says_what_to_install(bridge: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{BRIDGES[bridge]!r}] = None; import tundish.{bridge}"
    last = said(code, tmp_path)

    assert last.startswith(f"ImportError: tundish.{bridge} needs ")
    assert last.endswith(f"which is not installed: pip install {PACKAGES[bridge]}")


@pytest.mark.parametrize("bridge", ["torch", "jax", "tensorflow"])
def test_a_framework_that_lacks_something_itself(bridge: str, tmp_path: Path) -> None:
    (tmp_path / f"{bridge}.py").write_text("import something_else_entirely\n")
    last = said(f"import tundish.{bridge}", tmp_path)

    assert last == "ModuleNotFoundError: No module named 'something_else_entirely'"


def test_the_core_needs_none_of_them(tmp_path: Path) -> None:
    names = [*BRIDGES, "orbax.checkpoint"]
    code = f"import sys; sys.modules.update(dict.fromkeys({names!r})); import tundish as td; "
    code += "assert td.Dataset.range(3).reduce(0, lambda s, x: s + x) == 3; sys.exit(1)"

    with pytest.raises(IndexError):
        said(code, tmp_path)
