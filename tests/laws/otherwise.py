"""The laws in a process of their own, whose environment changes how workers begin or share memory."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

NOT_FORKED = pytest.mark.skipif(
    os.environ.get("TUNDISH_START") == "fork",
    reason="a forked worker has what the consumer has, and costs other descriptors",
)
"""Marks tests of what a worker that imports for itself has of its own."""


def assert_some_laws_hold(chosen: Mapping[str, str], **variables: str) -> None:
    """Run the quick tests of some files in one process: of each those that its ``-k`` expression chooses."""
    tests = " or ".join(f"({file} and ({some}))" if some else file for file, some in chosen.items())
    files = [f"tests/laws/{file}" for file in chosen]
    assert_laws_hold("-m", "not slow and not thorough", "-k", tests, *files, **variables)


def assert_laws_hold(*arguments: str, **variables: str) -> None:
    """Run pytest with these arguments and environment variables; all must pass, and some must run."""
    faulthandler.cancel_dump_traceback_later()  # the limit of one test; each in there has its own
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
