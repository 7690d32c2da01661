"""DATA: the rows of each global batch, divided over processes and replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests.distribute.together import (
    contexts,
    each,
    globally,
    meeting,
    plain,
    run,
    steps,
    with_policy,
)

import tundish as td
from tundish.errors import SpecError

numbers = td.Dataset.range


def test_a_global_batch_is_divided_over_all_replicas() -> None:
    """For sizes that divide these are tensorflow 2.21's rows too, of one replica a process."""
    assert run(numbers(16).batch(8), 2) == [[[[0, 1, 2, 3]], [[8, 9, 10, 11]]], [[[4, 5, 6, 7]], [[12, 13, 14, 15]]]]  # fmt: skip
    assert run(numbers(8).batch(8), 1, 4) == [[[[0, 1], [2, 3], [4, 5], [6, 7]]]]
    assert run(numbers(8).batch(8), 2, 2) == [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]]


def test_parts_differ_by_one_row_at_most() -> None:
    assert run(numbers(13).batch(8), 1, 4) == [
        [[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9], [10], [11], [12]]]
    ]
    assert run(numbers(7).batch(7), 2, 2) == [[[[0, 1], [2, 3]]], [[[4, 5], [6]]]]


def test_a_process_without_rows_has_the_step_too() -> None:
    found = run(numbers(9).map(lambda x: {"a": x, "b": np.zeros(3)}).batch(8), 3)

    assert [len(process) for process in found] == [2, 2, 2]
    assert found[2][1] == [{"a": [], "b": []}]
    ds = each(numbers(1).map(lambda x: {"a": x, "b": np.zeros(3)}).batch(8), 3)[2]
    (step,) = list(ds)
    assert step["a"].shape == (0,)
    assert step["a"].dtype == np.int64
    assert step["b"].shape == (0, 3)


PLANS: dict[str, Callable[[td.Dataset, int], td.Dataset]] = {
    "batch": lambda ds, n: ds.batch(n),
    "whole batches": lambda ds, n: ds.batch(n, drop_remainder=True),
    "prefetched": lambda ds, n: ds.batch(n).prefetch(2),
    "repeated": lambda ds, n: ds.batch(n).repeat(2),
    "repeated below": lambda ds, n: ds.repeat(2).batch(n),
    "some batches": lambda ds, n: ds.batch(n).skip(1).take(2),
    "mapped batches": lambda ds, n: ds.batch(n).map(lambda x: x[::-1]),
    "filtered": lambda ds, n: ds.filter(lambda x: x % 3 > 0).batch(n),
    "permuted": lambda ds, n: ds.shuffle(None, seed=1).batch(n),
    "shuffled": lambda ds, n: ds.shuffle(5, seed=1).map(lambda x: -x).batch(n),
    "padded": lambda ds, n: ds.map(lambda x: np.full(x % 4, x)).padded_batch(n),
    "skipping": lambda ds, n: ds.map(lambda x: 6 // (x % 4), on_error="skip").batch(n),
    "shuffled batches": lambda ds, n: ds.batch(n).shuffle(3, seed=1),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("uneven", [None, "drop"])
def test_side_by_side_the_parts_are_the_batches(plan: str, uneven: str | None) -> None:
    ds = PLANS[plan](numbers(37), 8)
    batches = [b.tolist() for b in ds if uneven is None or len(b) == 8]
    for count, replicas in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1)]:
        found = run(ds, count, replicas, uneven=uneven)

        assert globally(found) == batches, (count, replicas)


@pytest.mark.parametrize("uneven", [None, "drop"])
@pytest.mark.parametrize(
    "chosen",
    [
        lambda ds: ds.take(2),
        lambda ds: ds.skip(1),
        lambda ds: ds.take(9).skip(2),
        lambda ds: ds.repeat(2).take(7),
    ],
    ids=["take", "skip", "both", "repeated"],
)
def test_the_number_of_steps_is_known_after_batches_are_chosen(
    chosen: Callable[[td.Dataset], td.Dataset], uneven: str | None
) -> None:
    for n in (0, 7, 8, 37):
        distributed = each(chosen(numbers(n).batch(8)), 2, uneven=uneven)

        assert [one.cardinality for one in distributed] == [
            len(steps(one.iterator(workers=0))) for one in distributed
        ]


@settings(max_examples=60)
@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_every_row_once_for_any_numbers(
    n: int, size: int, count: int, replicas: int, drop: bool
) -> None:
    ds = numbers(n).batch(size)
    if size < count * replicas:
        with pytest.raises(ValueError, match="cannot be divided"):
            each(ds, count, replicas)
        return
    distributed = each(ds, count, replicas, uneven="drop" if drop else None)
    found = [steps(one.iterator(workers=0)) for one in distributed]

    assert globally(found) == [b.tolist() for b in ds if len(b) == size or not drop]
    for process in found:
        for step in process:
            lengths = [len(part) for part in step]
            assert max(lengths) - min(lengths) <= 1
    assert {one.cardinality for one in distributed} == {len(found[0])}


def test_a_process_computes_its_own_rows_only() -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    for index, one in enumerate(each(numbers(16).map(note).batch(8), 2)):
        seen.clear()
        with one.iterator(workers=0) as iterator:
            steps(iterator)
        assert seen == [x for x in range(16) if x // 4 % 2 == index]


def test_padding_says_which_rows_are_real() -> None:
    ds = numbers(11).map(lambda x: {"x": x + 1, "text": f"t{x}", "row": np.full(2, x)}).batch(8)
    for plan in (ds, ds.map(lambda batch: batch)):
        found = run(plan, 2, 2, uneven="pad")
        rows = [
            (x, text, real)
            for process in zip(*found, strict=True)
            for step in process
            for part in step
            for x, text, real in zip(part["x"], part["text"], part["valid"], strict=True)
        ]

        assert {len(part["x"]) for process in found for step in process for part in step} == {2}
        assert [x for x, _, real in rows if real] == list(range(1, 12))
        assert all(x == 0 and text == "" for x, text, real in rows if not real)
        assert [len(process) for process in found] == [2, 2]


def test_padding_of_one_step_with_less_rows_than_processes() -> None:
    found = run(numbers(1).map(lambda x: {"x": x}).batch(4), 3, uneven="pad", mask_key="real")

    assert found == [
        [[{"x": [0, 0], "real": [True, False]}]],
        [[{"x": [0], "real": [False]}]],
        [[{"x": [0], "real": [False]}]],
    ]


@pytest.mark.parametrize(
    "above", [lambda ds: ds, lambda ds: ds.map(lambda x: x)], ids=["last", "mapped"]
)
def test_an_end_that_is_an_error_is_one_in_every_process(above: Any) -> None:
    for one in each(above(numbers(9).batch(8)), 3, uneven="error"):
        with one.iterator(workers=0) as iterator:
            next(iterator)
            with pytest.raises(SpecError, match="uneven='error'"):
                next(iterator)
            assert list(iterator) == []
    assert globally(run(above(numbers(16).batch(8)), 3, uneven="error")) == [
        list(range(8)),
        list(range(8, 16)),
    ]


def test_batches_of_many_sizes() -> None:
    ds = numbers(12).map(lambda x: {"x": np.full(x % 5 + 1, x)})
    sized = ds.bucket_by_sequence_length(lambda e: len(e["x"]), [3], [4, 2])
    whole = [b["x"].tolist() for b in sized]
    found = run(sized, 2)
    joined = [[*a[0]["x"], *b[0]["x"]] for a, b in zip(*found, strict=True)]

    assert joined == whole
    padded = run(sized, 2, 2, uneven="pad")
    assert all(
        len({len(part["x"]) for part in step}) == 1 for process in padded for step in process
    )
    with pytest.raises(ValueError, match="how many rows"):
        each(sized, 2, uneven="drop")


def fails(x: Any) -> Any:
    if x in (0, 2, 8):
        raise ValueError(f"bad {x}")
    return x


def outcomes(iterator: td.distribute.DistributedIterator) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_behind_an_error_processes_stay_in_step(workers: int) -> None:
    """The other rows of the step are given up with it, in that process alone."""
    found = []
    for one in each(numbers(16).map(fails).batch(4), 2):
        with one.iterator(workers=workers) as iterator:
            found.append(outcomes(iterator))

    assert found == [
        ["bad 0", [4, 5], "bad 8", [12, 13]],
        ["bad 2", [6, 7], [10, 11], [14, 15]],
    ]


def test_every_state_behind_an_error_is_in_step_too() -> None:
    ds = each(numbers(16).map(fails).batch(4), 2)[0]
    with ds.iterator(workers=0) as iterator:
        with pytest.raises(ValueError, match="bad 0"):
            next(iterator)
        state = iterator.state_dict()
    for one, rest in zip(each(numbers(16).map(fails).batch(4), 2), ([4, 5], [6, 7]), strict=True):
        with one.iterator(workers=0) as iterator:
            iterator.load_state_dict(state)
            assert plain(next(iterator)) == rest


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no batch": (lambda: each(numbers(8), 2), "call batch"),
    "divided already": (
        lambda: each(numbers(8).shard_by_process(td.InputContext(2, 0)).batch(4), 2),
        "divided the dataset already",
    ),
    "too small": (lambda: each(numbers(8).batch(3), 2, 2), "cannot be divided over 4"),
    "a word": (lambda: each(numbers(8).batch(4), 2, uneven="cut"), "uneven must be one of"),
    "replicas": (
        lambda: td.distribute.distribute_dataset(
            numbers(8).batch(4), context=td.InputContext(2, 0, 4), replicas=3
        ),
        "is 6 replicas",
    ),
    "unequal": (
        lambda: td.distribute.distribute_dataset(
            numbers(8).batch(4), context=td.InputContext(2, 0, 3)
        ),
        "does not divide over 2 input pipelines",
    ),
    "a mode": (
        lambda: each(
            numbers(8).batch(4),
            1,
            options=td.distribute.InputOptions(
                experimental_replication_mode=td.distribute.InputReplicationMode.PER_REPLICA
            ),
        ),
        "PER_REPLICA is for",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_divided_is_refused(what: str) -> None:
    build, says = REFUSED[what]
    with pytest.raises(ValueError, match=says):
        build()


def test_arguments_of_other_types() -> None:
    distribute: Any = td.distribute.distribute_dataset
    unmade: Any = td.distribute.DistributedDataset
    ds = numbers(4).batch(2)
    for call, says in [
        (lambda: distribute([1]), "dataset must be a Dataset"),
        (lambda: distribute(ds, td.InputContext()), "pass context="),
        (lambda: distribute(ds, 3), "options must be InputOptions"),
        (lambda: distribute(ds, context=3), "context must be an InputContext"),
        (lambda: distribute(ds, all_min=3), "all_min must be callable"),
        (lambda: distribute(ds, mask_key=3), "mask_key must be a str"),
        (lambda: distribute(ds, replicas="2"), "replicas must be an int"),
        (unmade, "make one with"),
    ]:
        with pytest.raises(TypeError, match=says):
            call()


def test_a_row_that_is_no_row_is_an_error_at_its_step() -> None:
    ds = each(numbers(4).map(lambda x: {"n": 3}), 1)[0]
    with pytest.raises(SpecError, match="call `batch` last"):
        next(iter(ds))
    scalar = each(numbers(2).map(lambda x: x).batch(2), 1, uneven="pad")[0]
    with pytest.raises(SpecError, match="make dicts"):
        next(iter(scalar))
    taken = each(numbers(2).map(lambda x: {"valid": x}).batch(2), 1, uneven="pad")[0]
    with pytest.raises(SpecError, match="name another one"):
        next(iter(taken))


def test_processes_have_one_order_without_a_seed() -> None:
    ds = numbers(40).shuffle(40).batch(8)
    found = globally(run(ds, 4))

    assert sorted(row for step in found for row in step) == list(range(40))
    assert globally(run(ds, 3)) == found != [b.tolist() for b in numbers(40).batch(8)]


def test_a_seed_that_processes_agree_on() -> None:
    ds = numbers(40).shuffle(40).batch(8)

    def distributed(index: int, all_min: Any) -> Any:
        context = contexts(4)[index]
        return td.distribute.distribute_dataset(ds, context=context, all_min=all_min)

    once, again = [globally(meeting(distributed, 4)) for _ in range(2)]

    assert sorted(row for step in once for row in step) == list(range(40))
    assert once != again


def test_a_dataset_without_an_end() -> None:
    ds = each(numbers(5).repeat().batch(4), 2)[1]
    with ds.iterator(workers=0) as iterator:
        assert steps(iterator, 3) == [[[2, 3]], [[1, 2]], [[0, 1]]]
    assert ds.cardinality == td.INFINITE_CARDINALITY
    assert ds.element_spec == td.ArraySpec((2,), np.int64)


def test_what_a_distributed_dataset_says_of_itself() -> None:
    ds = each(numbers(6).map(lambda x: {"x": x}).batch(4), 1, 2, uneven="pad")[0]

    assert ds.cardinality == 2
    specs = td.distribute.local_results(ds.element_spec)
    assert (
        specs
        == ({"x": td.ArraySpec((2,), np.int64), "valid": td.ArraySpec((2,), np.dtype(bool))},) * 2
    )
    assert ds.context == td.InputContext(1, 0, 2)
    assert ds.options == td.distribute.InputOptions()
    assert "process 0 of 1" in repr(ds)
    assert iter(ds).element_spec == ds.element_spec
    assert ds.reduce(0, lambda state, step: state + 1) == 2
    total = td.distribute.distribute_dataset(numbers(5).batch(2)).reduce(
        0, lambda s, x: s + x.sum()
    )
    assert total == 10


def test_iterations_are_counted() -> None:
    ds = each(numbers(8).shuffle(8, seed=1).batch(8), 1)[0]
    first, second = [steps(iter(ds)) for _ in range(2)]

    assert first != second
    assert steps(ds.iterator(iteration=1)) == second


def test_next_in_all_its_forms() -> None:
    with iter(each(numbers(3).batch(2), 1, 2)[0]) as iterator:
        assert plain(td.distribute.local_results(iterator.next())) == ([0], [1])
        found = iterator.get_next_as_optional()
        assert found.has_value()
        assert plain(td.distribute.local_results(found.get_value())) == ([2], [])
        assert not iterator.get_next_as_optional().has_value()
        with pytest.raises(td.errors.OutOfRangeError):
            iterator.get_next()
        assert iterator.stats.elements >= 2  # type: ignore[union-attr]  # of one pipeline


def test_words_for_policies() -> None:
    assert run(with_policy(numbers(8).batch(4), "data"), 2) == run(numbers(8).batch(4), 2)
    with pytest.raises(ValueError, match="not a list of files"):
        run(with_policy(numbers(8).batch(4), "file"), 2)


@pytest.mark.parametrize("sizes", [[1, 2, 1, 1], [3, 2, 1, 1]])
def test_rows_of_ragged_batches_are_not_cut_as_rows_of_arrays(sizes: list[int]) -> None:
    """Four rows with five values have five row splits, which looks like five rows."""
    ds = td.Dataset.from_list(sizes).map(np.arange).ragged_batch(4)

    for one in each(ds, 2):
        with pytest.raises(SpecError, match=r"Ragged\. Let each process batch its own rows"):
            list(one)
    sparse = td.Dataset.from_list([[0, 3], [0, 5]]).sparse_batch(2, row_shape=[2])
    for one in each(sparse, 2):
        with pytest.raises(SpecError, match=r"Sparse\. Let each process"):
            list(one)


@pytest.mark.parametrize("uneven", [None, "drop"])
def test_ragged_batches_of_a_function_are_taken_as_they_are(uneven: str | None) -> None:
    def mine(context: td.InputContext) -> td.Dataset:
        ds = td.Dataset.from_list([1, 2, 1, 1, 3, 3]).shard_by_process(context).map(np.arange)
        return ds.ragged_batch(2, drop_remainder=True)

    distributed = td.distribute.distribute_datasets_from_function(
        mine, replicas=2, context=td.InputContext(), uneven=uneven
    )
    found = [td.distribute.local_results(step) for step in distributed]

    assert [[part.to_list() for part in step] for step in found] == [
        [[[0], [0, 1]], [[0], [0]]],
        *([[[[0, 1, 2], [0, 1, 2]], []]] if uneven is None else []),
    ]
