"""No memory that nobody has written reaches an element or a file, with any number of workers.

In a process of its own, which has new memory hold a pattern: `tundish.testing.poison`. Here are the
operators that make memory of their own; `make thorough` runs all laws so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tundish.testing import poison

LAWS = [str(Path(__file__).with_name(name)) for name in ("test_operators.py", "test_workers.py")]
MAKE_MEMORY = (
    "structs pad ragged sparse rebatch pack batch group snapshot save cache parquet tfrecord"
)


@pytest.mark.slow
@pytest.mark.skipif(poison.wanted(), reason="all laws are run so")
def test_workers_do_not_show() -> None:
    laws = "(test_operators and resumes) or test_two_workers"
    chosen = f"({laws}) and ({' or '.join(MAKE_MEMORY.split())})"

    assert poison.run(["-m", "pytest", "-q", *LAWS, "-k", chosen, "-m", "not thorough"]) == 0


@pytest.mark.slow
@pytest.mark.skipif(poison.wanted(), reason="all laws are run so")
def test_random_pipelines() -> None:
    assert poison.run(["-m", "tundish.testing.fuzz", "--seed", "40", "--cases", "6"]) == 0
