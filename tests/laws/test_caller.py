"""Law 9: the caller is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.laws import functions
from tests.laws.sampling import some

from tundish import Dataset
from tundish.testing import assert_caller_left_alone
from tundish.testing.registry import FIRST, Case


@pytest.mark.parametrize("case", [*FIRST, *some(8)], ids=lambda c: c.name)
def test_nothing_moves_in_process(case: Case) -> None:
    assert_caller_left_alone(case.build, workers=0, limit=case.limit)


@pytest.mark.parametrize("case", [*FIRST, *some(16)], ids=lambda c: c.name)
def test_nothing_moves_with_workers(case: Case) -> None:
    assert_caller_left_alone(case.build, workers=2, limit=case.limit)


def test_a_function_that_draws_globally_is_found() -> None:
    ds = Dataset.range(5).map(functions.draws_globally)

    with pytest.raises(AssertionError, match=r"numpy\.random"):
        assert_caller_left_alone(ds, workers=0)
    assert_caller_left_alone(ds, workers=2)


SCRIPT = """
import os
print("main", os.getpid(), flush=True)
from tundish import Dataset

class Point:
    def __init__(self, x):
        self.x = x

def make(x):
    return Point(int(x) * factor)

factor = 3
with Dataset.range(20).map(make).iterator(workers=2) as it:
    points = list(it)
assert all(type(p) is Point for p in points)
print(sum(p.x for p in points), flush=True)
"""


def started(how: str, folder: Path) -> list[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT)
    return {
        "a script": [str(path)],
        "-c": ["-c", SCRIPT],
        "-m": ["-m", "script"],
        "stdin": ["-"],
    }[how]


@pytest.mark.parametrize("how", ["a script", "-c", "-m", "stdin"])
def test_main_is_not_run_again(how: str, tmp_path: Path) -> None:
    """Without a guard; functions and classes of ``__main__`` cross all the same."""
    done = subprocess.run(
        [sys.executable, *started(how, tmp_path)],
        input=SCRIPT if how == "stdin" else "",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    lines = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in lines] == ["main", str(3 * sum(range(20)))]
