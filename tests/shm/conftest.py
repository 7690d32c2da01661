"""Scripts in processes of their own, for what a test cannot do to itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

DEADLINE_S = 60


class Run(Protocol):
    """Runs a script and returns what it printed; it must end well and print no error."""

    def __call__(
        self, script: str, *arguments: object, fds: Sequence[int] = (), **environ: str
    ) -> str: ...


@pytest.fixture
def run() -> Run:
    return run_script


def run_script(script: str, *arguments: object, fds: Sequence[int] = (), **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        env={**os.environ, **environ},
        pass_fds=fds,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()
