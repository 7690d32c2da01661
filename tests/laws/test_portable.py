"""The laws over the portable back end, which is what macOS gets: ``TUNDISH_PORTABLE=1``."""

from __future__ import annotations

import os

import pytest
from tests.laws.otherwise import assert_some_laws_hold

FILES = {
    "test_operators.py": "resumes and (map or padded or shuffle or snapshot or generator)",
    "test_errors.py": "",
    "test_death.py": "not random_steps",
    "test_closing.py": "",
    "test_batches_held.py": "",
    "test_budget.py": "",
    "test_caller.py": "main or (workers and augment)",
    "test_globals.py": "kind or late",
    "test_settings.py": "",
}


NOT_HERE = pytest.mark.skipif(
    bool({"TUNDISH_PORTABLE", "TUNDISH_START"} & os.environ.keys()),
    reason="it is what runs, or another way is",
)


@NOT_HERE
@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1])
def test_the_laws_hold(part: int) -> None:
    """The laws hold in two processes, which may run side by side."""
    assert_some_laws_hold(dict(list(FILES.items())[part::2]), TUNDISH_PORTABLE="1")


@NOT_HERE
@pytest.mark.thorough
def test_every_operator_is_under_the_laws() -> None:
    """A worker is a new interpreter here: minutes."""
    chosen = {"test_operators.py": "", "test_workers.py": "two_workers", "test_resume.py": "steps"}
    assert_some_laws_hold(chosen, TUNDISH_PORTABLE="1")
