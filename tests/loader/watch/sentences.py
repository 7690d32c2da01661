"""Every kind of sentence that a verdict may say, with sample numbers: to be read by whoever changes one.

``python -m tests.loader.watch.sentences`` writes them again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.loader.watch.drawn import names, verdict_of
from tests.loader.watch.situations import (
    BATCH,
    LOAD,
    LOADING,
    RANGE,
    elsewhere,
    node,
    stage,
    stats,
    view,
)

from tundish.loader.watch.stats import Stats
from tundish.loader.watch.verdict import explain
from tundish.loader.watch.view import PlanNode
from tundish.testing.advising import tempting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish.loader.watch.verdict import Verdict

PAGE = Path(__file__).parent / "sentences.md"
WIDTH = 110

SHUFFLE = PlanNode("shuffle#1", "shuffle", shuffles=True, count=100_000)
KEEP = PlanNode("filter#2", "filter", function="keep", each=True, drops=True, count=50_000)
WINDOW = PlanNode("shuffle#3", "shuffle", shuffles=True, window=5000, count=50_000)
PERMUTED = PlanNode("shuffle#1", "shuffle", shuffles=True, permutes=True, count=100_000)
ROWS = PlanNode("ParquetDataset#0", "ParquetDataset", grouped=True, count=100_000, units=200)


def verdicts() -> Iterator[tuple[str, Verdict]]:
    """Yield names and verdicts: of runs that were measured, and of made-up measurements."""
    for name in names():
        yield f"measured: {name}", verdict_of(name)
    computing = stage(node("range#0", 0.0, 1000), node("map#1", 0.002, 1000))
    usual: dict[str, Any] = {
        "workers": 4,
        "elements": 100,
        "waited_s": 3.0,
        "own_s": 0.1,
        "cores": 2,
    }
    yield (
        "other programs on the cores",
        explain(stats(_contended(computing), queued=0.7, **usual), LOADING),
    )
    here = stats(replace(_contended(computing), where="consumer"), **{**usual, "workers": 0})
    yield "the same without workers", explain(replace(here, queued_s=2.5), LOADING)
    parquet = view(ROWS, SHUFFLE, replace(BATCH, name="batch#2"))
    read = stage(node("ParquetDataset#0", 0.002, 1000, calls=False), where="consumer")
    yield "Parquet rows in another order", explain(stats(read, **{**usual, "workers": 0}), parquet)
    permuted = view(ROWS, PERMUTED, replace(BATCH, name="batch#2"))
    yield "Parquet rows permuted", explain(stats(read, **{**usual, "workers": 0}), permuted)
    told = replace(
        stats(computing, errors=1, restarts=3, copies=7, **usual),
        skipped={"map#1": 2},
        tuned=((0.5, 4),),
    )
    opener = PlanNode(
        "flat_map#1", "flat_map", ("range#0",), "records", rows=0, reads="stream", serial=True
    )
    opened = stage(node("range#0", 0.0, 100), node("flat_map#1", 0.0025, 1000))
    yield (
        "datasets one after another",
        explain(stats(opened, **usual), view(RANGE, opener, replace(BATCH, name="batch#2"))),
    )
    few = {**usual, "waited_s": 0.1, "own_s": 3.0}
    yield "batches that are copied", explain(stats(computing, copies=90, used=0.5, **few), LOADING)
    total = replace(LOAD, name="scan#2", op="scan", function="total", each=False, stays=True)
    added = stage(node("scan#2", 0.003, 1000), where="consumer")
    yield (
        "a scan beside workers",
        explain(
            stats(computing, added, workers=2, elements=100, waited_s=0.1, own_s=3.1),
            view(RANGE, LOAD, total, replace(BATCH, name="batch#3")),
        ),
    )
    yield (
        "work in no operator",
        explain(stats(replace(computing, busy_s=9.0, cpu_s=9.0), **{**usual, "cores": 8}), LOADING),
    )
    tiny = stage(node("map#1", 1e-6, 10**6))
    yield (
        "small elements",
        explain(
            stats(tiny, workers=2, elements=10**6, own_s=8.0, outside_s=1.0), view(RANGE, LOAD)
        ),
    )
    yield "further remarks", explain(told, LOADING)
    fast = stage(node("range#0", 0.0, 1000), node("map#1", 0.0004, 1000))
    served: dict[str, Any] = {"workers": 2, "elements": 100}
    takes = stats(fast, **served, waited_s=0.01, own_s=2.0)
    yield (
        "large batches from other machines",
        explain(
            replace(takes, pool=elsewhere(0.02, 0.3, 2.0), received=10**9, receiving_s=1.8), LOADING
        ),
    )
    waits = stats(fast, **served, waited_s=4.0, own_s=0.1)
    yield (
        "a slow network",
        explain(replace(waits, pool=elsewhere(0.02, 2.5, 4.1), received=4 * 10**8), LOADING),
    )
    yield (
        "too little",
        explain(
            stats(computing, **{**usual, "elements": 3, "waited_s": 0.05, "own_s": 0.01}), LOADING
        ),
    )
    yield "not measured", explain(Stats(elements=1000, wall_s=10.0))
    plans = {
        "a shuffle, then a map": view(
            RANGE, SHUFFLE, replace(LOAD, name="map#2"), replace(BATCH, name="batch#3")
        ),
        "a filter and a window": view(
            RANGE, LOAD, KEEP, WINDOW, replace(BATCH, name="batch#4", rows=500)
        ),
        "a map of rows": view(RANGE, LOAD, replace(BATCH, rows=500)),
        "a permutation": view(RANGE, replace(SHUFFLE, permutes=True), replace(LOAD, name="map#2")),
    }
    for name, plan in plans.items():
        for number, seen in enumerate(tempting(plan)):
            if number in (0, 5, 6):
                yield f"{name}, {number}", explain(seen, plan)


def _contended(computing: Any) -> Any:
    return replace(computing, busy_s=10.0, cpu_s=2.0)


def page() -> str:
    """All of it, as a page."""
    parts = [f"## {name}\n\n```text\n{verdict.text(WIDTH)}\n```\n" for name, verdict in verdicts()]
    return "# What a verdict may say\n\n" + "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
