"""The cases that `make test` takes: one of every operator, some of the others, and some kinds always; `make thorough` takes all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tundish.testing.registry import OTHERS, Case

if TYPE_CHECKING:
    from collections.abc import Iterable


ALWAYS = frozenset({"quits"})
"""Words in the names of cases that no sample leaves out: what goes wrong there goes wrong nowhere else."""


def some(every: int, cases: Iterable[Case] = OTHERS) -> list[Any]:
    """Leave all but one in so many of the cases to `make thorough`, and none of those that are always taken."""
    return [
        case
        if number % every == 0 or not ALWAYS.isdisjoint(case.name.split("-"))
        else pytest.param(case, marks=pytest.mark.thorough)
        for number, case in enumerate(cases)
    ]


def used_by(case: Case) -> set[str]:
    """The names of the methods that a pipeline is made of, but for those within its functions."""
    used: set[str] = set()

    class Spy:
        def __getattr__(self, name: str) -> object:
            used.add(name)
            return lambda *args, **kwargs: self

    case.pipeline(Spy())
    return used
