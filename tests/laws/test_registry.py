"""Every public operator has cases and a reference meaning, and they agree in process."""

from __future__ import annotations

import inspect

import pytest
from tests.laws.sampling import some, used_by

import tundish
from tundish import Dataset
from tundish.testing.compare import collect, difference
from tundish.testing.model import Model
from tundish.testing.model.reading import MEANINGS
from tundish.testing.registry import CASES, FIRST, NOT_OPERATORS, READERS, REGISTRY, Case


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_operator_and_source_is_in_the_registry() -> None:
    assert public(Dataset) - NOT_OPERATORS == set(REGISTRY)


def test_every_reader_of_files_has_cases() -> None:
    readers = {name for name in tundish.__all__ if name.endswith("Dataset") and name != "Dataset"}

    assert readers == set(READERS) == set(MEANINGS)


def test_every_case_uses_the_operator_it_stands_for() -> None:
    for name, cases in REGISTRY.items():
        for case in cases:
            assert name in used_by(case)
            assert case.name.split("-")[0] == name


ELSEWHERE = {
    "deterministic",  # False leaves the order open, which is no matter of the reference
    "name",  # is ignored
    "datasets",  # zip's older form
    "storage_options",  # tests/remote
    "units",  # READERS
}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_parameter_is_given_in_a_case(name: str) -> None:
    parameters = {
        each.name
        for each in inspect.signature(getattr(Dataset, name)).parameters.values()
        if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    }
    given = set[str]().union(*(used_by(case).get(name, ()) for case in REGISTRY[name]))

    assert parameters - given <= {"self", *ELSEWHERE}


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_what_is_said_to_be_no_operator_is_there() -> None:
    assert public(Dataset) >= NOT_OPERATORS


def is_what_the_reference_says(case: Case, iteration: int) -> None:
    with case.build().iterator(workers=0, iteration=iteration) as iterator:
        found = collect(iterator, limit=case.limit, exact=False)

    told = difference(case.expected(iteration), found, ("reference", "in process"))
    assert told is None, told


MODELLED = [case for case in CASES if case.modelled]


@pytest.mark.parametrize("case", MODELLED, ids=lambda c: c.name)
def test_a_later_iteration_is_what_the_reference_says(case: Case) -> None:
    is_what_the_reference_says(case, 2)


@pytest.mark.parametrize("case", [*FIRST, *some(4)], ids=lambda c: c.name)
def test_the_first_iteration_is_what_the_reference_says(case: Case) -> None:
    if case.modelled:
        is_what_the_reference_says(case, 0)


def test_reference_knows_every_operator() -> None:
    assert set(REGISTRY) <= public(Model)
