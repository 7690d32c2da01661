"""Options: set as attributes or given as arguments, checked at once, merged, closed in a dataset."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tundish import Dataset, Options
from tundish.loader.plan.options import options_of
from tundish.loader.plan.settings import ThreadingOptions
from tundish.loader.run.iterator import how_many_workers


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
    with pytest.raises(ValueError, match=r"give them to Dataset\.with_options"):
        ds.options().deterministic = True
    with pytest.raises(ValueError, match=r"ThreadingOptions\.private_threadpool_size belongs"):
        ds.options().threading.private_threadpool_size = 1
    with pytest.raises(ValueError, match="belongs to a dataset"):
        Dataset.range(1).options().workers = 1
    again = ds.options().merge(Options(workers=3))
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
    assert a.with_options(second).options().given() == want
    assert Dataset.zip((Dataset.range(1), a)).options() == first
    assert first.merge(second).given() == want
    assert first.given() == a.options().given()  # neither was changed


def test_equal_copied_and_pickled() -> None:
    options = Options(workers=2)
    options.threading.private_threadpool_size = 3

    for again in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert again == options
    assert options != Options(workers=2)
    assert options.copied().threading is not options.threading


def test_a_plan_of_many_nodes_asks_for_its_options_quickly() -> None:
    ds = Dataset.range(1)
    for _ in range(200):
        ds = ds.map(double)

    assert options_of(ds._node) is options_of(Dataset.range(2)._node)  # nothing was merged


def test_a_pool_of_threads_has_the_size_of_threading() -> None:
    options = Options(executor="thread")
    options.threading = ThreadingOptions(private_threadpool_size=2)
    ds = Dataset.range(4).map(double)

    assert how_many_workers(ds._node, options, None) == 2
    options.workers = 1
    assert how_many_workers(ds._node, options, None) == 1
    options = Options()
    options.threading.private_threadpool_size = 2
    assert how_many_workers(ds._node, options, None) == 0
