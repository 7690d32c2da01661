"""Laws 1 and 2 of what is kept in files, whatever of it stands there."""

from __future__ import annotations

import dataclasses

import pytest

from tundish.testing import assert_resumes_anywhere, assert_workers_do_not_show
from tundish.testing.cases.case import Case
from tundish.testing.cases.storing import CASES, STANDS
from tundish.testing.compare import collect, difference

KEPT = CASES["snapshot"]
FORMS = [dataclasses.replace(case, stands=stands) for case in KEPT for stands in STANDS]


def named(case: Case) -> str:
    return f"{case.name}-{'all' if case.stands is None else case.stands}"


@pytest.mark.parametrize("case", FORMS, ids=named)
def test_what_stands_there_does_not_show(case: Case) -> None:
    expected = case.expected()
    for workers in (0, 2)[: 1 + (len(case.name) % 3 == 0)]:
        with case.build().iterator(workers=workers) as iterator:
            found = collect(iterator, limit=case.limit, exact=False)

        told = difference(expected, found, ("reference", f"{workers} workers"))
        assert told is None, told


@pytest.mark.parametrize("case", KEPT[::4], ids=named)
def test_the_first_run_writes_and_the_others_read(case: Case) -> None:
    """One folder for all runs of a law."""
    assert_workers_do_not_show(case.build(), (0, 2), limit=case.limit)
    assert_resumes_anywhere(case.build(), (2, 0), steps=3, limit=case.limit)


@pytest.mark.parametrize(
    ("name", "stands"), [("snapshot-window", 7), ("snapshot-concatenate", None)]
)
def test_forms_that_once_did_not_resume(name: str, stands: int | None) -> None:
    """A replay that read a commit on its way; a map over a concatenate, all of it in files."""
    [case] = [case for case in KEPT if case.name == name]
    form = dataclasses.replace(case, stands=stands)
    assert_resumes_anywhere(form.build, (2, 0, 3), steps=6, limit=60)
    assert_resumes_anywhere(form.build, (0,), limit=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stands", [STANDS[1], *(pytest.param(s, marks=pytest.mark.thorough) for s in STANDS[::2])]
)
def test_a_fresh_process_goes_on(stands: int | None) -> None:
    [case] = [case for case in KEPT if case.name == "snapshot-augment"]
    form = dataclasses.replace(case, stands=stands)
    assert_resumes_anywhere(form.build, (0, 2), steps=3, fresh_process=True)


@pytest.mark.thorough
@pytest.mark.parametrize("case", FORMS, ids=named)
def test_every_form_resumes_anywhere(case: Case) -> None:
    assert_resumes_anywhere(case.build, (0,), limit=case.limit)
    assert_resumes_anywhere(case.build, (2, 0, 3), steps=6, limit=case.limit)
    assert_workers_do_not_show(case.build(), limit=case.limit)
