"""Options: set as attributes or given as arguments, checked at once, merged, closed in a dataset."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tundish import Dataset, Options
from tundish.loader.operators.options import options_of
from tundish.loader.plan.contradictions import CONTRADICTIONS
from tundish.loader.plan.groups import (
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    ExternalStatePolicy,
    ThreadingOptions,
)
from tundish.loader.run.parallelism import parallelism_of
from tundish.loader.watch.summary import StatsAggregator
from tundish.shm.budget import parse_bytes, usable_cores


def double(x: int) -> int:
    return x * 2


def test_attributes_are_set_before_use() -> None:
    options = Options(workers=1)
    options.deterministic = False
    options.threading.private_threadpool_size = 7

    assert options.given() == {
        "workers": 1,
        "deterministic": False,
        "threading.private_threadpool_size": 7,
    }
    assert repr(options) == (
        "Options(workers=1, deterministic=False, threading.private_threadpool_size=7)"
    )


def test_older_spellings_are_the_same() -> None:
    options: Any = Options()
    options.experimental_deterministic = False
    options.experimental_threading.max_intra_op_parallelism = 3
    options.experimental_slack = True
    options.experimental_optimization.map_fusion = True

    assert options.deterministic is False
    assert options.threading.max_intra_op_parallelism == 3
    assert options.intra_op_threads == 3
    assert options.slack is True
    assert options.experimental_optimization.map_fusion is True


OLDER = """experimental_deterministic experimental_distribute experimental_external_state_policy
    experimental_optimization experimental_service experimental_slack experimental_stats
    experimental_symbolic_checkpoint experimental_threading experimental_warm_start"""


@pytest.mark.parametrize("name", OLDER.split())
def test_every_older_spelling_is_there(name: str) -> None:
    assert getattr(Options(), name) == getattr(Options(), name.removeprefix("experimental_"))


def test_enums_are_taken_by_name() -> None:
    options: Any = Options(external_state_policy="fail")  # type: ignore[arg-type]  # kept as a member
    options.distribute.auto_shard_policy = "Data"
    options.autotune.autotune_algorithm = AutotuneAlgorithm.STAGE_BASED

    assert options.external_state_policy is ExternalStatePolicy.FAIL
    assert options.distribute.auto_shard_policy is AutoShardPolicy.DATA
    assert options.autotune.autotune_algorithm is AutotuneAlgorithm.STAGE_BASED


def unknown() -> Any:
    return Options()  # whose attributes no checker looks at


@pytest.mark.parametrize(
    ("set_it", "error", "says"),
    [
        (lambda: setattr(Options(), "determinstic", True), AttributeError, "mean deterministic"),
        (lambda: unknown().zzz, AttributeError, "it has workers, executor"),
        (lambda: setattr(Options().threading, "privat_pool", 1), AttributeError, "Threading"),
        (lambda: setattr(Options(), "deterministic", "yes"), TypeError, "a bool or None, not str"),
        (lambda: setattr(Options(), "threading", 5), TypeError, "must be ThreadingOptions, not"),
        (lambda: setattr(Options(), "threading", None), TypeError, "must be ThreadingOptions"),
        (
            lambda: Options(workers=-2),
            ValueError,
            "workers must be at least 0 and at most 4096, or AUTOTUNE, not -2",
        ),
        (lambda: Options(workers="2"), TypeError, "workers must be an int, not str"),  # type: ignore[arg-type]  # that is refused
        (lambda: Options(executor="gpu"), ValueError, "'process' or 'thread', not 'gpu'"),
        (lambda: Options(on_error="ignore"), ValueError, "'raise', 'skip' or 'retry', not"),
        (lambda: Options(deadline=0.0), ValueError, "seconds above 0, not 0"),
        (lambda: Options(deadline="1"), TypeError, "seconds or None, not str"),  # type: ignore[arg-type]  # that is refused
        (lambda: Options(memory_budget=0), ValueError, "at least 1, not 0"),
        (lambda: Options(memory_budget="plenty"), ValueError, "bytes such as .* not 'plenty'"),
        (lambda: Options(memory_budget="0 GB"), ValueError, "bytes such as .* not '0 GB'"),
        (lambda: Options(external_state_policy="maybe"), ValueError, "WARN, IGNORE, FAIL, not 'm"),  # type: ignore[arg-type]  # that is refused
        (lambda: Options(external_state_policy=1), TypeError, r"ExternalStatePolicy \(WARN, IGN"),  # type: ignore[arg-type]  # that is refused
        (lambda: setattr(Options().distribute, "auto_shard_policy", 1), TypeError, "not int"),
        (lambda: AutotuneOptions(cpu_budget=0), ValueError, "cpu_budget must be at least 1, not 0"),
        (lambda: AutotuneOptions(ram_budget=0), ValueError, "ram_budget must be at least 1, not"),
        (lambda: AutotuneOptions(min_parallelism=-1), ValueError, "must be at least 0, not -1"),
        (lambda: Options(dataset_name=3), TypeError, "dataset_name must be a str, not int"),  # type: ignore[arg-type]  # that is refused
        (lambda: Options(framework_type="x"), TypeError, "must be a list of str, not str"),  # type: ignore[arg-type]  # that is refused
        (
            lambda: unknown().experimental_optimization.autotune_cpu_budget,
            AttributeError,
            "it is Options.autotune.cpu_budget now",
        ),
        (lambda: Options().merge(3), TypeError, r"other must be Options, not int \(3\)"),  # type: ignore[arg-type]  # that is refused
        (lambda: Options(worker_init=3), TypeError, "worker_init must be callable"),  # type: ignore[arg-type]  # that is refused
        (lambda: Dataset.range(1).with_options(5), TypeError, r"td.Options, not int \(5\)"),  # type: ignore[arg-type]  # that is refused
    ],
)
def test_what_is_refused(set_it: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        set_it()


def test_those_of_a_dataset_are_its_own() -> None:
    options = Options(deterministic=False)
    ds = Dataset.range(1).with_options(options)
    options.deterministic = True

    assert ds.options().deterministic is False
    with pytest.raises(ValueError, match=r"pass them to Dataset\.with_options"):
        ds.options().deterministic = True
    with pytest.raises(ValueError, match=r"ThreadingOptions\.private_threadpool_size belongs"):
        ds.options().threading.private_threadpool_size = 1
    with pytest.raises(ValueError, match="belongs to a dataset"):
        Dataset.range(1).options().workers = 1
    again = ds.options().merge(Options(workers=3))  # which nobody had set: no warning
    again.workers = 4
    assert again.given() == {"workers": 4, "deterministic": False}


def test_later_ones_win_group_by_group() -> None:
    first, second = Options(deterministic=False, workers=2), Options(workers=3)
    first.threading.private_threadpool_size = 4
    second.threading.max_intra_op_parallelism = 5
    a, b = Dataset.range(1).with_options(first), Dataset.range(1).with_options(second)

    want = {
        "workers": 3,
        "deterministic": False,
        "threading.max_intra_op_parallelism": 5,
        "threading.private_threadpool_size": 4,
    }
    assert Dataset.zip((a, b)).options().given() == want
    assert a.concatenate(b).batch(2).options().given() == want
    with pytest.warns(UserWarning, match=r"Options\.workers changes from 2 to 3: those set later"):
        assert a.with_options(second).options().given() == want
    assert Dataset.zip((Dataset.range(1), a)).options() == first
    with pytest.warns(UserWarning, match=r"Options\.workers changes from 2 to 3: those merged"):
        assert first.merge(second).given() == want
    assert first.given() == a.options().given()  # neither was changed


def test_equal_copied_and_pickled() -> None:
    options = Options(workers=2)
    options.threading.private_threadpool_size = 3

    for again in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert again == options
    assert options != Options(workers=2)
    with pytest.raises(TypeError, match="unhashable type: 'Options'"):  # it can be changed
        hash(options)
    assert options.copied().threading is not options.threading
    other = copy.copy(options)
    other.threading.private_threadpool_size = 4
    assert options.threading.private_threadpool_size == 3
    other = copy.copy(Dataset.range(1).with_options(options).options())
    other.workers = 3  # a copy is open


@pytest.mark.parametrize(
    "unit", ["", "B", "k", "KB", "KiB", "m", "MIB", " GB", "T", "TiB", "Ki", "x"]
)
@pytest.mark.parametrize("number", ["1", " 1.5", ".5", "2.", "-1", "e", ""])
def test_sizes_are_those_that_are_read_later(number: str, unit: str) -> None:
    try:
        parse_bytes(number + unit)
    except ValueError:
        with pytest.raises(ValueError, match="bytes such as"):
            Options(memory_budget=number + unit)
    else:
        assert Options(memory_budget=number + unit).memory_budget == number + unit


def test_a_plan_of_many_nodes_asks_for_its_options_quickly() -> None:
    ds: Dataset = Dataset.range(1)
    for _ in range(200):
        ds = ds.map(double)

    assert options_of(ds._node) is options_of(Dataset.range(2)._node)  # nothing was merged


def test_a_pool_of_threads_has_the_size_of_threading() -> None:
    options = Options(executor="thread")
    options.threading = ThreadingOptions(private_threadpool_size=2)
    ds = Dataset.range(4).map(double)

    assert parallelism_of(ds._node, options, None).workers == 2
    options.workers = 1
    assert parallelism_of(ds._node, options, None).workers == 1
    options = Options()
    options.threading.private_threadpool_size = 2
    assert parallelism_of(ds._node, options, None).workers == 0


def grouped(**given: Any) -> Options:
    """Options of names with ``__`` for a group's point."""
    options = Options()
    for name, value in given.items():
        group, _, inner = name.partition("__")
        if inner:
            setattr(getattr(options, group), inner, value)
        else:
            setattr(options, name, value)
    return options


TOLD = StatsAggregator()
CLASHES: list[tuple[dict[str, Any], str]] = [
    ({"workers": 0, "deadline": 2.0}, r"workers=0 and deadline=2.0 .*TUNDISH_WORKERS=0"),
    ({"executor": "thread", "deadline": 2.0}, r"executor='thread' and deadline=2.0 .*leave out"),
    ({"executor": "thread", "start": "fork"}, "executor='thread' and start='fork' contradict"),
    ({"executor": "thread", "max_deaths": 2}, r"max_deaths=2 .* use executor='process'"),
    (
        {"max_intra_op_parallelism": 1, "threading__max_intra_op_parallelism": 2},
        r"max_intra_op_parallelism=1 and threading.max_intra_op_parallelism=2 .*set one",
    ),
    (
        {"executor": "thread", "workers": 2, "threading__private_threadpool_size": 3},
        r"executor='thread', workers=2 and threading.private_threadpool_size=3 contradict",
    ),
    ({"workers": 2, "autotune__enabled": True}, r"workers=2 and autotune.enabled=True .*AUTOTUNE"),
    (
        {"autotune__initial_parallelism": 1, "autotune__min_parallelism": 2},
        r"autotune.initial_parallelism=1 and autotune.min_parallelism=2 .*raise the first",
    ),
    (
        {"autotune__min_parallelism": 3, "autotune__cpu_budget": 2},
        r"autotune.min_parallelism=3 and autotune.cpu_budget=2 .*lower the first",
    ),
    (
        {"autotune__min_parallelism": 3, "threading__private_threadpool_size": 2},
        r"autotune.min_parallelism=3 and threading.private_threadpool_size=2 .*lower the first",
    ),
    ({"stats__enabled": False, "stats__aggregator": TOLD}, r"stats.enabled=False and stats.aggr"),
    ({"stats__enabled": False, "stats__trace": "t"}, r"stats.enabled=False and stats.trace='t'"),
    (
        {"stats__enabled": False, "stats__latency_all_edges": True},
        r"stats.latency_all_edges=True .*leave out one",
    ),
]


@pytest.mark.parametrize(("given", "says"), CLASHES)
def test_what_contradicts_is_refused(given: dict[str, Any], says: str) -> None:
    options = grouped(**given)  # where they are set one after another, nothing is said

    with pytest.raises(ValueError, match=f"Options: .*{says}"):
        Dataset.range(3).with_options(options)


@pytest.mark.parametrize(("given", "says"), CLASHES)
def test_what_contradicts_after_merging_is_refused_by_the_iterator(
    given: dict[str, Any], says: str
) -> None:
    ds = Dataset.range(3).map(double)
    for name, value in given.items():
        ds = ds.with_options(grouped(**{name: value}))

    with pytest.raises(ValueError, match=f"Options: .*{says}"):
        iter(ds)


def test_every_contradiction_is_tried() -> None:
    assert len(CLASHES) == len(CONTRADICTIONS)


@pytest.mark.parametrize(
    "given",
    [
        {"workers": 2, "deadline": 2.0},
        {"deadline": 2.0},
        {"executor": "thread", "workers": 0, "threading__private_threadpool_size": 3},
        {"executor": "thread", "workers": 2, "threading__private_threadpool_size": 0},
        {"workers": 2, "threading__private_threadpool_size": 3},
        {"max_intra_op_parallelism": 2, "threading__max_intra_op_parallelism": 2},
        {"max_intra_op_parallelism": 2, "threading__max_intra_op_parallelism": 0},
        {"workers": -1, "autotune__enabled": True},
        {"workers": 2, "autotune__enabled": False},
        {"autotune__min_parallelism": 2, "autotune__initial_parallelism": 2},
        {"autotune__initial_parallelism": 16, "autotune__cpu_budget": 2},
        {"stats__enabled": True, "stats__trace": "t"},
        {"stats__enabled": False, "stats__latency_all_edges": False},
    ],
)
def test_what_is_meaningful_is_left_alone(given: dict[str, Any]) -> None:
    assert Dataset.range(3).with_options(grouped(**given)).options() == grouped(**given)


def test_joined_datasets_that_differ_are_told_once() -> None:
    a = Dataset.range(2).with_options(Options(deterministic=True, max_deaths=4))
    b = Dataset.range(2).with_options(Options(deterministic=False, max_deaths=4))
    both = a.concatenate(b)

    with pytest.warns(UserWarning, match=r"concatenate joins .*deterministic=True and False") as w:
        iter(both)
    assert len(w) == 1
    assert w[0].filename == __file__
    iter(both)  # a second epoch says nothing
    assert both.options().deterministic is False
    with pytest.warns(UserWarning, match="changes from False to True"):
        decided = both.with_options(Options(deterministic=True))
    iter(decided)
    iter(Dataset.zip((a, a)))
    iter(Dataset.zip((a, Dataset.range(2))))


def test_autotune_is_bounded() -> None:
    ds = Dataset.range(4).map(double, num_parallel_calls=-1)
    few, many = grouped(autotune__cpu_budget=7), grouped(autotune__cpu_budget=7)
    few.threading.private_threadpool_size = 3
    many.threading.private_threadpool_size = 0

    assert parallelism_of(ds._node, Options(), None).workers == usable_cores()
    assert parallelism_of(ds._node, many, None).workers == 7
    assert parallelism_of(ds._node, few, None).workers == 3
    assert parallelism_of(ds.map(double, num_parallel_calls=5)._node, few, 5).workers == 5
    assert parallelism_of(ds._node, grouped(executor="thread", workers=-1), None).workers > 0


def test_a_rewrite_that_is_asked_for_asks_for_workers() -> None:
    maps, filters = grouped(), grouped()
    maps.optimization.map_parallelization = True
    filters.optimization.filter_parallelization = True
    ds, kept = Dataset.range(4).map(double), Dataset.range(4).filter(bool)

    assert parallelism_of(ds._node, maps, None).workers == usable_cores()
    assert parallelism_of(ds._node, filters, None).workers == 0
    assert parallelism_of(kept._node, filters, None).workers == usable_cores()
    assert parallelism_of(kept._node, maps, None).workers == 0
