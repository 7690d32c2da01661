"""Ranges of a plan: one after the other they are the whole plan, or the plan is refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import RangeError
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.operator import Operator
from tundish.loader.run.evaluating.ranges import base_of, bounds, range_of
from tundish.loader.run.iterator import Iterator as Elements
from tundish.testing import fuzz
from tundish.testing.compare import Outcome, collect
from tundish.testing.functions import Draw, Fail, Inner, Keep, Records, Tag
from tundish.testing.registry import CASES, Case


def outcomes(node: Operator, workers: int = 0) -> list[Outcome]:
    with Elements(node, workers=workers, base_seed=5) as elements:
        return collect(elements, limit=10_000)


def parts(node: Operator, count: int, workers: int = 0) -> list[list[Outcome]]:
    return [outcomes(range_of(node, index, count), workers) for index in range(count)]


def joined(node: Operator, count: int, workers: int = 0) -> list[Outcome]:
    return list(itertools.chain.from_iterable(parts(node, count, workers)))


def dividable(node: Operator) -> bool:
    try:
        base_of(node)
    except RangeError:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_is_divided_rightly_or_refused(case: Case) -> None:
    node = case.build()._node
    if not dividable(node):
        return
    whole = outcomes(node)

    for count in (2, 5):
        assert joined(node, count) == whole


def test_most_operators_that_look_at_one_element_are_divided() -> None:
    divided = {case.name for case in CASES if dividable(case.build()._node)}

    assert divided >= {
        "map", "map-augment", "map-errors", "map-skip", "map-arguments", "filter", "filter-augment",
        "flat_map", "unbatch", "unbatch-augment", "unbatch-uneven", "list_files", "zip", "batch",
        "from_tensor_slices", "concatenate-augment", "shuffle-permutation", "map_batches-augment",
        "repeat", "shard", "take", "skip",
    }  # fmt: skip


@pytest.mark.slow
def test_random_pipelines_are_divided_rightly_or_refused() -> None:
    divided = 0
    for seed in range(400):
        node = fuzz.pipeline(random.Random(seed)).build(td.Dataset)._node
        if dividable(node):
            divided += 1
            assert joined(node, 3) == outcomes(node), seed

    assert divided > 25


def test_workers_do_not_show() -> None:
    ds = td.Dataset.range(23).map(Fail(2, 20)).map(Draw(1), seed=1).flat_map(Inner(td.Dataset, 3))
    node = ds.filter(Keep(1)).ignore_errors().map(Draw(2), seed=2).cache().prefetch(2)._node

    assert joined(node, 3, workers=2) == outcomes(node)


@pytest.mark.parametrize("count", [1, 2, 7, 23, 40])
def test_sizes_differ_by_one_and_may_be_none(count: int) -> None:
    sizes = [len(part) for part in parts(td.Dataset.range(23).map(Tag(1))._node, count)]

    assert sum(sizes) == 23
    assert max(sizes) - min(sizes) <= 1
    assert [bounds(23, k, count)[1] - bounds(23, k, count)[0] for k in range(count)] == sizes


def test_augmentation_is_that_of_the_whole() -> None:
    files = td.Dataset.range(10).shuffle(None, seed=3).map(augment, seed=4)
    last = [x for _, x in td.Dataset._of(range_of(files._node, 4, 5))]

    assert last == [x for _, x in files][8:]


def augment(index: Any, rng: np.random.Generator) -> Any:
    return index, rng.integers(1 << 40)


def refused() -> Iterator[tuple[str, td.Dataset, str]]:
    numbers = td.Dataset.range(20)
    work = numbers.map(Tag(1))
    above = "put it after the snapshot"
    yield "shuffle", work.shuffle(5, seed=1), above
    yield "batch", work.batch(4), above
    yield "batch", work.batch(4).map(Tag(1)), above
    yield "padded_batch", numbers.padded_batch(4), above
    yield "window", work.window(3), above
    yield "unique", numbers.unique(), above
    yield "scan", numbers.scan(0, lambda s, x: (s, x)), above
    yield "enumerate", work.filter(Keep(1)).enumerate(), above
    yield "repeat", work.filter(Keep(1)).repeat(2), above
    yield "take", work.filter(Keep(1)).take(2), above
    yield "skip", work.filter(Keep(1)).skip(2), above
    yield "shard", work.filter(Keep(1)).shard(2, 0), above
    yield "take_while", numbers.take_while(Keep(1)), above
    yield "zip", td.Dataset.zip(numbers, work.filter(Keep(1))), above
    yield "concatenate", work.filter(Keep(1)).concatenate(work), above
    yield "interleave", numbers.interleave(Inner(td.Dataset, 1), cycle_length=2), above
    yield "group_by_window", numbers.group_by_window(lambda x: x % 2, lambda k, d: d, 3), above
    yield "assert_cardinality", work.filter(Keep(1)).assert_cardinality(5), above
    yield "batch", td.Dataset.from_source(Records(9)).map_batches(len, 4), above
    yield "shuffle", td.Dataset.list_files(__file__, seed=1).map(len), r"shuffle=False"
    yield "enumerate", work.enumerate().with_options(td.Options(on_error="skip")), above
    yield "shard_by_process", numbers.shard_by_process(td.InputContext(2, 1)), "leave it out"
    yield "from_generator", td.Dataset.from_generator(lambda: range(3)).map(Tag(1)), "from_source"
    yield "repeat", numbers.repeat().map(Tag(1)), r"take\(n\)"
    yield "counter", td.Dataset.counter(), r"take\(n\)"
    yield "shuffle", numbers.shuffle(None).map(Tag(1)), "seed"
    yield "random", td.Dataset.random().take(9), "seed"


@pytest.mark.parametrize(
    ("name", "ds", "hint"),
    [pytest.param(*case, id=f"{case[0]}-{n}") for n, case in enumerate(refused())],
)
def test_what_looks_across_a_border_is_refused(name: str, ds: td.Dataset, hint: str) -> None:
    with pytest.raises(RangeError, match=rf"\n  {name} .*{hint}"):
        range_of(ds._node, 1, 3)


def test_all_that_is_in_the_way_is_named() -> None:
    ds = td.Dataset.from_generator(lambda: range(3)).shuffle(9, seed=1).map(Tag(1)).batch(2)

    with pytest.raises(RangeError) as caught:
        range_of(ds._node, 0, 2)
    assert [line.split()[0] for line in caught.value.obstacles] == [
        "batch",
        "shuffle",
        "from_generator",
    ]


def test_one_range_is_the_whole_whatever_it_is() -> None:
    node = td.Dataset.range(9).map(Tag(1)).shuffle(3, seed=1)._node

    assert range_of(node, 0, 1) is node


def test_a_seed_for_all_makes_an_unseeded_permutation_one(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: td.set_seed(None))
    td.set_seed(3)
    node = td.Dataset.range(9).shuffle(None)._node

    assert node.cardinality != INFINITE_CARDINALITY
    assert joined(node, 2) == outcomes(node)


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 3), (0, 0), (0, -1)])
def test_ranges_that_do_not_exist(index: int, count: int) -> None:
    with pytest.raises(ValueError, match="range"):
        range_of(td.Dataset.range(9)._node, index, count)
