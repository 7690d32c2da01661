"""The registry's pipelines through a host process: elements, errors and states are those of the dataset alone."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import pytest
from tests.laws.sampling import some

from tundish.loader.plan.node import set_seed
from tundish.loader.plan.options import Options
from tundish.loader.service.host.host import host
from tundish.testing.compare import Outcome, collect, difference
from tundish.testing.registry import CASES, Case

pytestmark = pytest.mark.usefixtures("forks_hosts")


def outcomes(it: Any) -> tuple[list[Outcome], list[str]]:
    """Return what an iterator gives first, with its states on the way."""
    found: list[Outcome] = []
    states = []
    for count in (0, 1, 2, 7, 14):
        found += collect(it, limit=count) if count else []
        states.append(json.dumps(it.state_dict(), default=str))
    return found, states


QUITS = [case for case in CASES if "quits" in case.name.split("-")]


@pytest.mark.parametrize("case", some(30, CASES), ids=attrgetter("name"))
def test_a_host_process_does_not_show(case: Case) -> None:
    set_seed(7)
    try:
        with iter(case.build()) as plain:
            expected, their_states = outcomes(plain)
        with iter(host(case.build(), "law", linger=0.0)) as it:
            found, states = outcomes(it)
    finally:
        set_seed(None)
    assert difference(expected, found) is None
    assert states == their_states


@pytest.mark.parametrize("case", QUITS, ids=attrgetter("name"))
def test_with_workers_what_is_no_exception_is_an_elements_error_too(case: Case) -> None:
    options = Options()
    options.workers = 2
    with iter(case.build()) as plain:
        expected, _ = outcomes(plain)
    assert any(outcome.error for outcome in expected)
    with iter(host(case.build().with_options(options), "law", linger=0.0)) as it:
        found, _ = outcomes(it)
    assert difference(expected, found) is None
