"""The fuzzer finds nothing here, finds what is wrong, and says how to see it again."""

from __future__ import annotations

import random

import pytest

from tundish import Dataset
from tundish.testing import fuzz
from tundish.testing.model import Model


def fuzzed(*arguments: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    return fuzz.main(arguments, lines.append), lines


@pytest.mark.parametrize("seed", range(4))
def test_random_pipelines_hold_in_process(seed: int) -> None:
    status, lines = fuzzed("--seed", str(seed), "--cases", "25", "--workers", "0")

    assert lines == ["25 passed, 0 failed"]
    assert status == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_random_pipelines_hold_with_workers(seed: int) -> None:
    status, lines = fuzzed("--seed", str(seed), "--cases", "15")

    assert lines == ["15 passed, 0 failed"]
    assert status == 0


def test_every_operator_comes_up() -> None:
    drawn = "".join(str(fuzz.pipeline(random.Random(seed))) for seed in range(400))
    # list_files depends on the machine's files, and a process's share on its place among others
    names = set(dir(Model)) & set(dir(Dataset)) - {"list_files", "shard_by_process", "outcomes"}

    assert all(f"{name}(" in drawn for name in names if not name.startswith("_"))


def test_a_wrong_operator_is_found_and_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `take` that takes one too many, in this process."""
    take = Dataset.take
    monkeypatch.setattr(Dataset, "take", lambda self, count: take(self, count + 1))
    status, lines = fuzzed("--seed", "2", "--cases", "40", "--workers", "0")
    shortened = next(line for line in lines if "shortened to" in line).split("shortened to\n")[1]

    assert status == 1
    assert lines[-1].endswith("failed")
    assert not lines[-1].endswith(" 0 failed")
    assert ".take(" in shortened.splitlines()[0]
    assert "--only" in shortened.splitlines()[-1]
    expression = shortened.splitlines()[0].strip()
    assert expression.count(".") <= 4, expression
