"""``len(it)`` is the number of elements that come; a repr tells the plan, the place and the workers."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tundish as td
from tundish.testing.registry import CASES, Case

KEEPING = ("snapshot", "cache", "load")
FINITE = [
    case
    for number, case in enumerate(CASES)
    if number % 5 == 0 and case.limit == 10_000 and not case.name.startswith(KEEPING)
]


def taken(elements: Any, most: int) -> int:
    """Take up to so many elements; errors count."""
    count = 0
    while count < most:
        try:
            next(elements)
        except StopIteration:
            break
        except Exception:  # noqa: BLE001 - an element's
            pass
        count += 1
    return count


@pytest.mark.parametrize("case", FINITE, ids=lambda case: case.name)
def test_the_length_is_what_comes(case: Case) -> None:
    """At each of three places, if it is known at all; and after a state was loaded."""
    first = random.Random(case.name).randint(0, 6)
    if case.modelled and any(outcome.error for outcome in case.expected()):
        pytest.skip("some elements fail")
    with case.build().iterator(workers=0) as elements:
        for most in (0, first, 3):
            taken(elements, most)
            try:
                left = len(elements)
            except TypeError as problem:
                # As in tf.data, endless passes of what has no elements count as infinite.
                endless = case.build().cardinality() == td.INFINITE_CARDINALITY
                assert ("infinite" if endless else "unknown") in str(problem)  # noqa: PT017 - in some cases
                continue
            state = elements.state_dict()
            with case.build().iterator(workers=0) as again:
                again.load_state_dict(state)
                try:
                    assert len(again) == left
                except TypeError as problem:
                    assert "unknown" in str(problem)  # noqa: PT017 - in some cases
                assert taken(again, 10_000) == left


@pytest.mark.parametrize("workers", [0, 2])
def test_it_counts_what_was_delivered_and_not_what_is_ready(workers: int) -> None:
    ds = td.Dataset.range(100).map(abs).shuffle(9, seed=1).batch(8)

    with ds.iterator(workers=workers) as elements:
        assert len(elements) == 13
        for left in range(12, -1, -1):
            next(elements)
            assert len(elements) == left
            assert f"; {13 - left} delivered, {left} remain; {workers} workers>" in repr(elements)
        assert not list(elements)
        assert elements  # it is true, though nothing remains
    assert len(elements) == 0
    assert repr(elements).endswith("; 13 delivered; closed>")


def test_a_length_that_is_not_known_is_a_type_error() -> None:
    for ds, why in [
        (td.Dataset.range(9).filter(bool), "unknown until they have come"),
        (td.Dataset.range(3).repeat(), "infinite"),
    ]:
        elements = iter(ds)
        with pytest.raises(TypeError, match=why):
            len(elements)
        assert "remain" not in repr(elements)
        assert list(td.Dataset.range(9).filter(bool)) == list(range(1, 9))


def test_what_is_asked_changes_nothing() -> None:
    ds = td.Dataset.range(30).map(abs).shuffle(5, seed=1)

    with ds.iterator(workers=1) as elements, ds.iterator(workers=1) as others:
        found = []
        for element in elements:
            len(elements), repr(elements), elements.stats._repr_html_()
            found.append(element)
            assert elements.state_dict()["position"] is not None
        assert found == list(others)


def test_a_table_for_notebooks_escapes_names() -> None:
    with td.Dataset.range(8).map(lambda x: x).batch(2).iterator(workers=1) as elements:
        list(elements)
        shown = elements.stats._repr_html_()

    assert "<th>elements</th><td>4</td>" in shown
    assert "<lambda>" not in shown
