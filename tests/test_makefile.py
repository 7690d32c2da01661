"""`make` alone prints what there is to make."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
INNER = {"help", "venv", "check"}
"""Targets that others need, which nobody names."""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_alone_prints_help() -> None:
    done = subprocess.run(
        ["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )

    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)) - INNER
    named = set(re.findall(r"^  make ([a-z-]+)  ?", done.stdout, re.MULTILINE))
    assert named == targets
    assert "\nPYTHON ?=" not in done.stdout


def test_targets_that_are_no_files_are_phony() -> None:
    """A file of such a name would else stand for the target, and nothing would run."""
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None

    targets = re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE)
    assert sorted(phony[1].replace("\\", "").split()) == sorted(targets)


def test_continuous_integration_names_its_targets() -> None:
    """It does not rely on what `make` alone does."""
    calls = re.findall(r"^make\b(.*)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)

    assert calls
    assert all(call.split() for call in calls)
