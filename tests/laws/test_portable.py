"""The laws over the portable back end, which is what macOS gets: ``TUNDISH_PORTABLE=1``."""

from __future__ import annotations

import os

import pytest
from tests.laws.otherwise import assert_laws_hold

from tundish.testing.registry import CASES

FILES = {
    "test_workers.py": "two_workers and (augment or filtered or misfits or nested)",
    "test_resume.py": "some_steps and (augment or shuffled or mixed or kinds)",
    "test_errors.py": "",
    "test_death.py": "not random_steps",
    "test_closing.py": "",
    "test_batches_held.py": "",
    "test_budget.py": "",
    "test_caller.py": "main or workers",
    "test_globals.py": "kind or late",
    "test_settings.py": "",
}


@pytest.mark.slow
@pytest.mark.skipif(
    bool({"TUNDISH_PORTABLE", "TUNDISH_START"} & os.environ.keys()),
    reason="it is what runs, or another way is",
)
@pytest.mark.parametrize("file", FILES)
def test_the_laws_hold(file: str) -> None:
    assert_laws_hold(
        *("-m", "not slow and not thorough", "-k", FILES[file], f"tests/laws/{file}"),
        TUNDISH_PORTABLE="1",
    )


def test_the_chosen_cases_exist() -> None:
    names = {case.name for case in CASES}

    for word in ("augment", "filtered", "misfits", "nested", "shuffled", "mixed", "kinds"):
        assert sum(name.endswith(word) for name in names) > 1, word
