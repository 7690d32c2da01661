"""A law: passes as people make them do not show in later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tundish import Dataset
from tundish.loader.operators.cache import CacheStore
from tundish.testing import assert_passes_do_not_show
from tundish.testing.folders import folder
from tundish.testing.functions import Emit, Keep
from tundish.testing.passes import PASSES, Count, calls
from tundish.testing.registry import READERS, REGISTRY, Case

FAMILIES = [REGISTRY[name] for name in ("cache", "snapshot", "shuffle", "from_generator", "load")]
KEEPING = [
    case if number < 4 else pytest.param(case, marks=pytest.mark.thorough)
    for cases in (*FAMILIES, [cases[0] for cases in READERS.values()])
    for number, case in enumerate(case for case in cases if "unseeded" not in case.name)
]
"""Cases of what keeps something."""


@pytest.mark.parametrize("case", KEEPING, ids=lambda c: c.name)
def test_passes_do_not_show(case: Case) -> None:
    assert_passes_do_not_show(case.build, limit=case.limit)


KEEPERS: dict[str, Callable[[Dataset], Dataset]] = {
    "cache": lambda ds: ds.cache(),
    "cache in files": lambda ds: ds.cache(folder()),
    "snapshot": lambda ds: ds.snapshot(folder(), batch_bytes=60),
}
SOURCES: dict[str, Callable[[], Dataset]] = {
    "map": lambda: Dataset.range(9).map(Count()),
    "filter": lambda: Dataset.range(30).filter(Keep(1)).map(Count()),
    "generator": lambda: Dataset.from_generator(Emit(9, 5)).map(Count()).batch(2),
    "shuffle": lambda: Dataset.range(9).map(Count()).shuffle(4, seed=1),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_the_first_full_pass_completes_what_is_kept(keeper: str, source: str) -> None:
    # Files have one writer at a time: while an iterator that was left is held, others compute.
    passes = [name for name in PASSES if keeper == "cache" or name != "abandoned"]
    assert_passes_do_not_show(
        lambda: KEEPERS[keeper](SOURCES[source]()), passes=passes, computed=calls
    )


@pytest.mark.parametrize("keeper", KEEPERS)
def test_passes_do_not_show_with_workers(keeper: str) -> None:
    passes = ("abandoned", "two at once")
    assert_passes_do_not_show(lambda: KEEPERS[keeper](SOURCES["map"]()), 2, passes=passes)


@pytest.mark.parametrize("name", ["abandoned", "two at once"])
def test_a_cache_that_one_pass_alone_may_fill_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = CacheStore.begin

    def once(store: Any) -> Any:
        return None if store._fillings else begin(store)

    monkeypatch.setattr(CacheStore, "begin", once)
    monkeypatch.setattr(CacheStore, "finish", lambda *_: None)
    with pytest.raises(AssertionError, match="computed"):
        assert_passes_do_not_show(lambda: SOURCES["map"]().cache(), passes=(name,), computed=calls)
    assert name in PASSES
