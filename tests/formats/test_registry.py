"""Every format has samples, over which the suites of this folder run."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from tests.formats.registry import ELSEWHERE, SAMPLES, Sample

import tundish.formats
from tundish.formats.format import Format


def formats() -> set[type[Format]]:
    """Every format there is, in whichever module."""
    for module in pkgutil.walk_packages(tundish.formats.__path__, "tundish.formats."):
        importlib.import_module(module.name)
    found, left = set(), [Format]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.startswith("tundish.") and not kind.__abstractmethods__:
            found.add(kind)
    return found


def test_every_format_is_registered() -> None:
    missing = formats() - {type(sample.form) for sample in SAMPLES} - ELSEWHERE.keys()

    assert not missing, "tests/formats/registry.py has no sample of these"
    assert all((Path(__file__).parent / file).is_file() for file in ELSEWHERE.values())


def test_names_are_distinct() -> None:
    names = [sample.name for sample in SAMPLES]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", sorted(formats(), key=str))
def test_every_format_is_asked_about_every_compression(kind: type[Format]) -> None:
    asked = {getattr(each.form, "compression", "") for each in SAMPLES if type(each.form) is kind}
    known = hasattr(kind(), "compression")

    assert not known or asked >= {"", "GZIP", "ZSTD"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_format_says_what_it_is(sample: Sample) -> None:
    form = sample.form

    assert form.name.endswith("Dataset")
    assert form.tuning <= set(type(form).__dataclass_fields__)
    assert type(form)() == type(form)()
    assert not form.cheap or form.seekable
