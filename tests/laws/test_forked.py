"""The laws with workers that are forked from the consumer: ``TUNDISH_START=fork``."""

from __future__ import annotations

import os
import sys

import pytest
from tests.laws.otherwise import assert_laws_hold, assert_some_laws_hold

from tundish.testing import forks

SOME = {
    "test_operators.py": "resumes and (map or filter or batch or shuffle or snapshot or generator)",
    "test_errors.py": "map or batch",
    "test_death.py": "not random_steps",
    "test_closing.py": "",
    "test_caller.py": "main or (workers and augment)",
}
"""What `make test` runs; `make thorough` runs all of `tests/laws` so."""

NOT_HERE = pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or "TUNDISH_START" in os.environ
    or "TUNDISH_PORTABLE" in os.environ,
    reason="forks on Linux only; or it is what runs",
)


@NOT_HERE
@pytest.mark.slow
def test_some_laws_hold() -> None:
    assert_some_laws_hold(SOME, TUNDISH_START="fork")


@NOT_HERE
@pytest.mark.thorough
def test_all_laws_hold() -> None:
    assert_laws_hold("-m", "not thorough", "tests/laws", TUNDISH_START="fork")


@NOT_HERE
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:workers are forked from this process:RuntimeWarning")
@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6])
def test_forks_while_locks_are_held_do_not_hang(number: int) -> None:
    """`python -m tundish.testing.forks` has the rest, with threads of every kind at once."""
    with forks.busy():
        assert sum(forks.run(number).values()) == forks.ELEMENTS
