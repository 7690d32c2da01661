"""The node that names a service changes nothing of a pipeline; the service here is this machine's workers."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from tests.laws.sampling import some
from tests.service.inserted import HOME, distributed, everywhere

import tundish as td
from tundish import Dataset
from tundish.loader.operators.map import Map
from tundish.loader.operators.repeat import Repeat
from tundish.loader.plan.node import walk
from tundish.loader.protocols.context import Context
from tundish.loader.run.coordinating.placement import Placement
from tundish.loader.service.distributing.distribute import Copies
from tundish.testing.compare import Outcome, collect, difference
from tundish.testing.functions import Draw, Fail, Keep, Tag
from tundish.testing.registry import CASES, FIRST, Case

STEPS = 12


def outcomes(ds: Dataset, workers: int | None, most: int) -> tuple[list[Outcome], list[str]]:
    """Return what an iterator gives, and its position after each."""
    found: list[Outcome] = []
    states: list[str] = []
    with ds.iterator(workers=workers) as iterator:
        while len(found) < most:
            more = collect(iterator, limit=1)
            if not more:
                break
            found += more
            states.append(json.dumps(iterator.state_dict()["position"], sort_keys=True))
    return found, states


@pytest.fixture(autouse=True)
def seeded() -> object:
    td.set_seed(7)
    yield
    td.set_seed(None)


PLACES = cycle(range(5))
DRAWN = [(case, next(PLACES)) for case in FIRST]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        each if k % 3 == 0 else pytest.param(*each, marks=pytest.mark.thorough)
        for k, each in enumerate(DRAWN)
    ],
    ids=[f"{case.name}-{place}" for case, place in DRAWN],
)
def test_output_and_states_are_those_of_the_plan_without_the_node(case: Case, place: int) -> None:
    expected, states = outcomes(case.build(), 0, STEPS)
    options = list(everywhere(case.build()))
    where, ds = options[place % len(options)]

    found, theirs = outcomes(ds, 2, STEPS)

    assert difference(expected, found, ("without", where)) is None
    assert theirs == states


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_it_may_be_anywhere_in_any_plan(case: Case) -> None:
    expected, states = outcomes(case.build(), 0, STEPS)
    for where, ds in everywhere(case.build()):
        found, theirs = outcomes(ds, 2, STEPS)
        assert difference(expected, found, ("without", where)) is None
        assert theirs == states, where


@pytest.mark.parametrize("case", some(22), ids=lambda c: c.name)
def test_states_are_exchanged_with_the_plan_without_it(case: Case) -> None:
    plain, served = case.build(), distributed(case.build())
    with plain.iterator(workers=0) as whole:
        everything = collect(whole, limit=STEPS)
    for first, second, ws in ((plain, served, (0, 2)), (served, plain, (2, 0))):
        with first.iterator(workers=ws[0]) as iterator:
            begun = collect(iterator, limit=min(4, STEPS))
            state = json.loads(json.dumps(iterator.state_dict()))
        with second.iterator(workers=ws[1]) as iterator:
            iterator.load_state_dict(state)
            rest = collect(iterator, limit=STEPS - len(begun))
        assert difference(everything, [*begun, *rest], ("whole", "in two parts")) is None


def test_its_fingerprint_and_its_description_are_those_without_it() -> None:
    ds = Dataset.range(9).map(Tag(1)).shuffle(3, seed=1).batch(2)

    for _, other in everywhere(ds):
        assert other.fingerprint() == ds.fingerprint()
        assert other.cardinality() == ds.cardinality()


BOTH_SIDES: dict[str, Any] = {
    "maps": lambda d: (d.range(30).map(Tag(1)), lambda e: e.map(Tag(2)).batch(4)),
    "skips": lambda d: (
        d.range(40).map(Fail(1, 5), on_error="skip"),
        lambda e: e.map(Fail(2, 7), on_error="skip").batch(3),
    ),
    "filters": lambda d: (d.range(40).filter(Keep(3)), lambda e: e.map(Tag(1)).filter(Keep(1))),
    "errors": lambda d: (d.range(30).map(Fail(1, 4)), lambda e: e.map(Fail(2, 3))),
    "draws": lambda d: (d.range(20).map(Draw(1), seed=1), lambda e: e.map(Draw(2), seed=2)),
    "shuffled": lambda d: (
        d.range(30).map(Tag(1)),
        lambda e: e.shuffle(7, seed=3).map(Draw(2), seed=2).batch(4),
    ),
    "permuted": lambda d: (
        d.range(30).map(Tag(1)),
        lambda e: e.map(Tag(2)).shuffle(None, seed=3).batch(4),
    ),
    "repeated": lambda d: (d.range(7).map(Draw(1), seed=1), lambda e: e.map(Tag(2)).repeat(3)),
    "batched": lambda d: (d.range(30).map(Tag(1)).batch(4), lambda e: e.map(Tag(2)).unbatch()),
    "sorted": lambda d: (d.range(30).map(Tag(1)), lambda e: e.sort_within(5, Tag(2))),
}


@pytest.mark.parametrize("name", BOTH_SIDES)
def test_functions_on_both_sides(name: str) -> None:
    before, after = BOTH_SIDES[name](Dataset)
    expected, states = outcomes(after(before), 0, 50)

    found, theirs = outcomes(after(distributed(before)), 2, 50)

    assert difference(expected, found, ("without", "with")) is None
    assert theirs == states


@pytest.mark.parametrize("name", ["skips", "filters", "shuffled"])
def test_a_state_of_a_pipeline_that_is_cut_goes_on_anywhere(name: str) -> None:
    before, after = BOTH_SIDES[name](Dataset)
    plain, served = after(before), after(distributed(before))
    everything, _ = outcomes(plain, 0, 50)
    for k in range(0, len(everything), 3):
        with served.iterator(workers=2) as iterator:
            collect(iterator, limit=k)
            state, skipped = iterator.state_dict(), iterator.stats.skipped
        for ds, workers in ((plain, 0), (served, 2)):
            with ds.iterator(workers=workers) as iterator:
                iterator.load_state_dict(state)
                assert iterator.stats.skipped == skipped
                assert (
                    difference(everything[k:], collect(iterator, limit=50), ("all", "rest")) is None
                )


def labels(ds: Dataset) -> tuple[list[str], list[str]]:
    """Return the operators up to which a service computes a stage that goes on at home, and all that is at home."""
    nodes = list(walk(ds._node))
    placement = Placement(nodes)
    cuts = [placement.cut(node) for node in nodes]
    return (
        [each.label for each in cuts if each is not None],
        [
            node.label
            for node in nodes
            if isinstance(node, Map) and placement.is_home(node, placement.cut(node))
        ],
    )


def test_what_is_after_the_node_is_at_home() -> None:
    before = Dataset.range(9).map(Tag(1))

    assert labels(distributed(before).map(Tag(2))) == (["distribute"], ["map"])
    assert labels(distributed(before)) == ([], [])
    assert labels(distributed(before).batch(3)) == ([], [])
    assert labels(distributed(before.batch(3)).map(Tag(2))) == ([], ["map"])
    assert labels(distributed(before).shuffle(3).map(Tag(2))) == (["shuffle"], ["map"])
    assert labels(distributed(Dataset.range(9)).map(Tag(2))) == ([], ["map"])


def test_two_services_in_one_pipeline_are_an_error() -> None:
    other = replace(HOME, target="tcp://other:2")
    one, two = (distributed(Dataset.range(4), terms) for terms in (HOME, other))
    ds = one.concatenate(two)

    with pytest.raises(ValueError, match="names tcp://home:1 and tcp://other:2"):
        ds.iterator(workers=1)
    assert Context(distributed(one)._node, 0, 0).services == (HOME,)


def test_threads_have_no_part_in_a_service() -> None:
    with pytest.raises(ValueError, match="the executor is 'thread'"):
        distributed(Dataset.range(4)).iterator(executor="thread")


def test_without_workers_the_service_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def staff(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(type(HOME), "staff", staff)
    ds = distributed(Dataset.range(4))
    assert [int(x) for x in ds.iterator(workers=0)] == [0, 1, 2, 3]
    monkeypatch.setenv("TUNDISH_WORKERS", "0")
    assert [int(x) for x in ds] == [0, 1, 2, 3]


# -- copies ----------------------------------------------------------------------------------------


def copied(ds: Dataset) -> Dataset:
    return ds._of(Copies(ds._node, None, HOME))


@pytest.mark.parametrize("workers", [0, 2])
def test_there_are_as_many_copies_as_agents(workers: int) -> None:
    ds = Dataset.range(6).shuffle(6, seed=2).map(Draw(1), seed=1).batch(4)
    expected, _ = outcomes(ds.repeat(3), 0, 50)

    found, _ = outcomes(copied(ds), workers, 50)

    assert difference(expected, found, ("repeat", "copies")) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_the_number_of_copies_is_in_the_state(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = Dataset.range(5).map(Draw(1), seed=1)
    with copied(ds).iterator(workers=workers) as iterator:
        begun = collect(iterator, limit=7)
        state = iterator.state_dict()
    assert state["position"]["copies"] == 3

    monkeypatch.setattr(type(HOME), "agents", lambda _: 5)
    with copied(ds).iterator(workers=2 - workers) as iterator:
        iterator.load_state_dict(state)
        rest = collect(iterator)
    everything, _ = outcomes(ds.repeat(3), 0, 50)
    assert difference(everything, [*begun, *rest], ("repeat", "copies")) is None
    assert len(outcomes(copied(ds), 0, 50)[0]) == 25


def test_the_number_of_copies_is_not_in_the_plan() -> None:
    ds = copied(Dataset.range(5))

    assert ds.cardinality() == td.UNKNOWN_CARDINALITY
    assert copied(Dataset.range(5).repeat()).cardinality() == td.INFINITE_CARDINALITY
    with pytest.raises(TypeError, match="as many copies as agents"):
        len(ds)
    assert isinstance(ds._node, Repeat)
