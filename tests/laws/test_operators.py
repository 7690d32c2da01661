"""Laws 1 to 3 on one small pipeline of every operator and source: the laws that `make fast` runs.

They are held against the reference, so a wrong element is found as well as one that differs by workers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tundish
from tundish import Dataset
from tundish.testing import assert_resumes_anywhere, collect
from tundish.testing.compare import difference
from tundish.testing.functions import Fail
from tundish.testing.registry import NOT_OPERATORS, READERS, REGISTRY, Case

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = REGISTRY | READERS
each_operator = pytest.mark.parametrize("operator", OPERATORS)


def failing(operator: str) -> Case:
    """A case whose elements fail upstream of the operator; else its first one, failing after it."""
    cases = [case for case in OPERATORS[operator] if case.modelled]
    for case in cases:
        if any(outcome.error for outcome in case.expected()):
            return case
    first = cases[0]

    def fails(d: Any) -> Any:
        return first.pipeline(d).map(Fail(4, 60))

    return replace(first, name=f"{operator}-fails", pipeline=fails)


def test_every_public_operator_is_here() -> None:
    public = {name for name in dir(Dataset) if not name.startswith("_")}
    readers = {name for name in tundish.__all__ if name.endswith("Dataset")}

    assert set(OPERATORS) == public - NOT_OPERATORS | readers - {"Dataset"}


def test_make_fast_runs_this_file() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    [chosen] = re.findall(r"^FAST := (.*)$", makefile, re.MULTILINE)

    assert Path(__file__).relative_to(ROOT).as_posix() in chosen.split()
    assert [path for path in chosen.split() if not (ROOT / path).exists()] == []


@each_operator
def test_workers_do_not_show_and_it_resumes(operator: str) -> None:
    """Laws 1 and 2: elements and states with two workers are those of none, and so is the rest."""
    case = OPERATORS[operator][0]
    assert_resumes_anywhere(case.build, workers=(0, 2), steps=3, limit=case.limit)


@each_operator
def test_errors_stand_where_the_reference_has_them(operator: str) -> None:
    """Law 3: an error comes in its element's place, and the elements after it follow."""
    case = failing(operator)
    expected = case.expected()
    assert any(outcome.error for outcome in expected)
    for workers in (0, 2):
        with case.build().iterator(workers=workers) as iterator:
            found = collect(iterator, limit=case.limit, exact=False)

        told = difference(expected, found, ("reference", f"{workers} workers"))
        assert told is None, told
