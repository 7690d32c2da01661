"""Runs that were measured: the verdict names the bottleneck that was put there; the guide shows them as they are."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import pytest
from tests.loader.watch import sentences
from tests.loader.watch.drawn import (
    GUIDE,
    PAGE,
    PICTURES,
    names,
    page,
    picture_of,
    told,
    verdict_of,
)

import tundish as td
from tundish.loader.watch.limit import Kind
from tundish.testing.advising import check_text


@pytest.mark.parametrize("name", names())
def test_the_bottleneck_is_named(name: str) -> None:
    run, verdict = told(name), verdict_of(name)

    assert verdict.limit in run["limits"], str(verdict)
    assert run["name"] in ("", verdict.name)
    assert not run["offered"] or any(run["offered"] in each.what for each in verdict.predictions)


def test_there_are_enough_of_them() -> None:
    limits = {limit for name in names() for limit in told(name)["limits"]}

    assert len(names()) >= 10
    assert {"workers", "process", "consumer", "order", "memory", "generator", "reader"} <= limits


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_guide_are_what_the_program_draws(name: str) -> None:
    drawn = (GUIDE / "watching" / f"{name}.svg").read_text(encoding="utf-8")

    assert drawn == picture_of(name), "python -m tests.loader.watch.drawn"
    assert f"(watching/{name}.svg)" in PAGE.read_text(encoding="utf-8")


def test_verdicts_in_the_guide_are_what_the_program_says() -> None:
    written = PAGE.read_text(encoding="utf-8")

    assert written == page(), "python -m tests.loader.watch.drawn"
    assert len(re.findall("<!-- run: ", written)) >= 2


def test_sentences_are_as_they_were_read() -> None:
    found = [verdict for _, verdict in sentences.verdicts()]

    for verdict in found:
        check_text(verdict)
    assert {verdict.limit for verdict in found} >= set(get_args(Kind)) - {"window"}
    assert sentences.PAGE.read_text(encoding="utf-8") == sentences.page(), (
        "python -m tests.loader.watch.sentences"
    )


def test_arguments_that_are_advised_exist() -> None:
    told = set(re.findall(r"\b([a-z_]+)=", sentences.PAGE.read_text(encoding="utf-8")))
    methods = [getattr(td.Dataset, name) for name in dir(td.Dataset) if not name.startswith("_")]
    takers = [td.Options, td.StatsOptions, td.TFRecordDataset, *filter(inspect.isroutine, methods)]
    known = {name for each in takers for name in inspect.signature(each).parameters}

    assert told - known == set(), "no argument of a dataset or of options"
    assert {"memory_budget", "num_parallel_reads", "units"} <= told
