"""The cases that `make test` takes: one of every operator, some of the others, and some kinds always; `make thorough` takes all."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tundish import Dataset
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


def used_by(case: Case) -> dict[str, set[str]]:
    """The methods that a pipeline is made of, and the parameters they are given; but for those within its functions."""
    used: dict[str, set[str]] = {}

    class Spy:
        def __getattr__(self, name: str) -> object:
            method = getattr(Dataset, name, None)
            parameters = () if method is None else inspect.signature(method).parameters

            def call(*args: object, **kwargs: object) -> object:
                given = [each for each in parameters if each != "self"][: len(args)]
                used.setdefault(name, set()).update(given, kwargs)
                return self

            return call

    case.pipeline(Spy())
    return used
