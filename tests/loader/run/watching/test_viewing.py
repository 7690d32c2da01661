"""The verdict's view of a plan: names as in the statistics, and what may be said of each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tundish as td
from tundish.cli.outline import outline
from tundish.loader.run.watching.viewing import view_of
from tundish.loader.watch import verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tundish.loader.watch.view import PlanView


def double(x: int) -> int:
    return 2 * x


def passed(row: dict[str, object]) -> dict[str, object]:
    return row


def noisy(x: int, rng: object) -> int:
    return x


def view(ds: td.Dataset, workers: int = 0) -> PlanView:
    with ds.iterator(workers=workers) as it:
        return view_of(it._engine.context)


def chained() -> td.Dataset:
    return (
        td.Dataset.range(1000)
        .shuffle(None, seed=1)
        .map(double)
        .prefetch(2)
        .map(noisy, seed=3)
        .filter(lambda x: True)
        .shuffle(100, seed=2)
        .prefetch(1)
        .batch(10)
        .prefetch(3)
        .with_options(td.Options(max_deaths=2))
    )


def test_a_chain() -> None:
    plan = view(chained())
    nodes = {node.op + str(at): node for at, node in enumerate(plan.nodes)}

    assert list(nodes) == ["range0", "shuffle1", "map2", "map3", "filter4", "shuffle5", "batch6"]
    assert nodes["range0"].count == 1000
    assert nodes["shuffle1"].shuffles
    assert not nodes["shuffle1"].draws
    assert not nodes["shuffle1"].window, "a permutation holds nothing"
    assert (nodes["map2"].function, nodes["map2"].each, nodes["map2"].draws) == (
        "double",
        True,
        False,
    )
    assert nodes["map3"].draws
    assert (nodes["filter4"].drops, nodes["filter4"].function) == (True, "lambda")
    assert nodes["shuffle5"].window == 100, "behind a filter they are computed"
    assert nodes["batch6"].rows == 10
    assert [node.name for node in plan.chain()] == [node.name for node in plan.nodes]
    assert plan.last.op == "batch"
    assert plan.rows_above(nodes["filter4"].name) == 10
    assert plan.rows_above(nodes["map2"].name) == 0, "a filter may leave any number out"
    assert plan.ordered


def test_a_window_of_names_holds_nothing_that_is_computed() -> None:
    plan = view(td.Dataset.range(1000).map(double).shuffle(100, seed=1))

    assert plan.last.op == "map", "a shuffle makes nothing of an element"
    assert plan.nodes[-1].window == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_names_are_those_of_the_statistics(workers: int) -> None:
    with chained().iterator(workers=workers) as it:
        for _ in it:
            pass
        plan = view_of(it._engine.context)
        told = {node.name for stage in it.stats.stages for node in stage.nodes}

    assert {"map#2", "filter#4"} <= told
    assert told <= {node.name for node in plan.nodes}


def test_inputs_that_are_joined() -> None:
    ds = td.Dataset.zip((td.Dataset.range(5).map(double), td.Dataset.range(5).prefetch(1))).batch(2)
    plan = view(ds)

    assert [node.op for node in plan.chain()] == ["zip", "batch"]
    assert [plan[name].op for name in plan["zip#3"].inputs] == ["map", "range"]
    assert {node.op for node in plan.below("zip#3")} == {"zip", "map", "range"}


def test_what_reads_and_what_keeps(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    lines = view(td.TextLineDataset([str(tmp_path / "a.txt")], index=False).cache())
    generated = view(
        td.Dataset.from_generator(lambda: iter([1]), output_signature=td.ArraySpec((), "i8"))
    )

    assert [node.reads for node in lines.nodes] == ["", "stream", ""]
    assert lines.nodes[-1].keeps
    assert generated.last.reads == "generator"


def test_an_order_that_is_given_up() -> None:
    ds = td.Dataset.range(5).map(double, deterministic=False)

    assert not view(ds).ordered
    assert not view(td.Dataset.range(5).with_options(td.Options(deterministic=False))).ordered


def test_explain_knows_the_plan() -> None:
    with td.Dataset.range(2000).map(double).batch(10).iterator(workers=0) as it:
        for _ in it:
            pass
        verdict = it.explain()

    assert verdict.plan.last.op == "batch"
    assert "batches" in str(verdict)


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.parquet")
    # Wide rows, so that reading them takes longer than anything that the test does.
    table = pa.table({f"x{column}": list(range(3000)) for column in range(40)})
    pq.write_table(table, path, row_group_size=1000)
    return path


SHUFFLED: dict[str, tuple[Callable[[str], td.Dataset], bool]] = {
    "all": (lambda path: td.ParquetDataset(path).shuffle(None, seed=1).batch(10), True),
    "a window": (lambda path: td.ParquetDataset(path).shuffle(100, seed=1).batch(10), True),
    "mapped": (
        lambda path: td.ParquetDataset(path).map(passed).shuffle(100, seed=1).batch(10),
        True,
    ),
    "by units": (lambda path: td.ParquetDataset(path).shuffle(None, 1, units=2).batch(10), False),
    "in order": (lambda path: td.ParquetDataset(path).batch(10), False),
    "batches": (lambda path: td.ParquetDataset(path).batch(10).shuffle(20, seed=1), False),
    "what was read": (
        lambda path: (
            td.ParquetDataset([path] * 2, num_parallel_reads=2).shuffle(100, seed=1).batch(10)
        ),
        False,
    ),
    "what was kept": (
        lambda path: td.ParquetDataset(path).cache().shuffle(100, seed=1).batch(10),
        False,
    ),
}


@pytest.mark.parametrize("name", SHUFFLED)
def test_rows_that_are_decoded_in_groups_and_read_in_another_order_are_told(
    parquet: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "_SHORT_S", 0.0)
    make, slow = SHUFFLED[name]
    ds = make(parquet)

    assert bool(view(ds).scattered()) == slow
    assert bool(outline(ds).slow) == slow
    if slow:
        with ds.iterator(workers=0) as it:
            for _ in zip(range(100), it, strict=False):
                pass
            told = it.explain()
        assert (told.limit, told.name.partition("#")[0]) == ("reader", "ParquetDataset"), str(told)
        assert "decoded again and again" in str(told)
        assert "num_parallel_reads" in str(told)
        assert ("units=4" in str(told)) == (name == "all")
        assert "elements are small" not in str(told)
