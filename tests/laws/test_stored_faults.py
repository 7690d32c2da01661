"""A fault in a stored file is told, or does not show: no element is ever another one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tundish import Dataset
from tundish.testing.faults import assert_faults_are_told
from tundish.testing.folders import folder, standing
from tundish.testing.functions import Become, Key, Tag

SMALL: dict[str, Any] = {"batch_bytes": 90, "shard_bytes": 400}
KINDS = ("int", "str", "array", "image", "ragged", "words", "dict", "nested")
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lz4": {"compression": "lz4"},
    "sorted": {"shard_func": Key(2, 3)},
}


def check(seed: str, form: str, stands: int | None, workers: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    path = folder()
    kept = Dataset.range(rng.randrange(1, 40)).map(Become(kind))
    if form == "sorted":
        kept = Dataset.range(rng.randrange(1, 40))
    ds: Dataset = kept.snapshot(path, **SMALL, **FORMS[form])
    if rng.random() < 0.3:
        ds = ds.repeat(2)
    if workers:
        ds = ds.map(Tag(1)) if form == "sorted" else ds.map(Become(kind))
    assert_faults_are_told(standing(ds, stands), [path], rng, workers=workers)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stands", [None, 11])
def test_a_fault_between_two_passes(form: str, stands: int | None) -> None:
    for seed in range(12):
        check(f"{form}/{stands}/{seed}", form, stands, workers=0)


@pytest.mark.parametrize("form", FORMS)
def test_a_fault_that_workers_meet(form: str) -> None:
    for seed in range(2):
        check(f"{form}/workers/{seed}", form, None, workers=2)
