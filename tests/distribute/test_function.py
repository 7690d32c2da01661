"""Datasets that a function makes: one for the process, or one for each replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.distribute.together import Meeting, contexts, meeting, plain, steps

import tundish as td
from tundish.distribute import InputOptions, InputReplicationMode, local_results
from tundish.errors import IncompatibleCheckpointError, SpecError

PER_REPLICA = InputOptions(experimental_replication_mode=InputReplicationMode.PER_REPLICA)


def strided(context: td.InputContext) -> td.Dataset:
    ds = td.Dataset.range(22).shard(context.num_input_pipelines, context.input_pipeline_id)
    return ds.batch(context.get_per_replica_batch_size(8))


def by_process(context: td.InputContext) -> td.Dataset:
    ds = td.Dataset.range(24).shard_by_process(context)
    return ds.batch(context.get_per_replica_batch_size(8))


def distribute(function: Any, context: td.InputContext, **arguments: Any) -> Any:
    return td.distribute.distribute_datasets_from_function(function, context=context, **arguments)


def test_a_step_takes_an_element_for_each_replica() -> None:
    found = [steps(iter(distribute(strided, one))) for one in contexts(2, 2)]

    assert found[0][0] == [[0, 2], [4, 6]]
    assert found[1] == [[[1, 3], [5, 7]], [[9, 11], [13, 15]], [[17, 19], [21]]]


def test_the_function_is_told_which_process_this_is() -> None:
    told: list[td.InputContext] = []

    def function(context: td.InputContext) -> td.Dataset:
        told.append(context)
        return td.Dataset.range(4).batch(2)

    distribute(function, td.InputContext(2, 1, 4))
    assert told == [td.InputContext(2, 1, 4)]
    told.clear()
    distribute(function, td.InputContext(2, 1, 4), options=PER_REPLICA)
    assert told == [td.InputContext(4, 2, 4), td.InputContext(4, 3, 4)]


def test_every_replica_may_have_a_pipeline_of_its_own() -> None:
    ds = distribute(strided, td.InputContext(2, 1, 4), options=PER_REPLICA)
    with iter(ds) as iterator:
        first = steps(iterator, 1)
        state = iterator.state_dict()
        rest = steps(iterator)
        assert len(iterator.stats) == 2
        assert [each.limit for each in iterator.explain()] == ["unknown", "unknown"]
        assert [each.stats.elements for each in iterator.explain(iterator.stats)] == [0, 0]
    assert first == [[[2, 6], [3, 7]]]
    assert rest == [[[10, 14], [11, 15]], [[18], [19]]]
    with iter(ds) as iterator:
        iterator.load_state_dict(state)
        assert steps(iterator) == rest


def test_replicas_without_an_element_have_no_rows() -> None:
    ds = distribute(lambda context: td.Dataset.range(6).batch(2), td.InputContext(1, 0, 2))
    found = [local_results(step) for step in ds]

    assert [plain(parts) for parts in found] == [([0, 1], [2, 3]), ([4, 5], [])]
    assert found[1][1].dtype == np.int64
    assert ds.cardinality == 2


@pytest.mark.parametrize(("bad", "given_up"), [(1, 0), (3, 1)])
def test_an_error_tells_of_the_elements_of_other_replicas(bad: int, given_up: int) -> None:
    def broken(x: Any) -> Any:
        if x == bad:
            raise LookupError(bad)
        return x

    ds = distribute(
        lambda _: td.Dataset.range(8).map(broken).batch(2), td.InputContext(), replicas=2
    )
    with iter(ds) as iterator:
        with pytest.raises(LookupError) as caught:
            next(iterator)
        told = [note for note in caught.value.__notes__ if "other replicas" in note]
        assert (
            told
            == [f"tundish: {given_up} element(s) of other replicas at this step were given up"][
                :given_up
            ]
        )
        first = 2 if bad == 1 else 4
        assert steps(iterator, 1) == [[[first, first + 1], [first + 2, first + 3]]]


@pytest.mark.parametrize("uneven", ["drop", "pad"])
def test_ends_that_processes_agree_on(uneven: str) -> None:
    def function(context: td.InputContext) -> td.Dataset:
        count = (5, 8)[context.input_pipeline_id]
        return td.Dataset.range(count).map(lambda x: {"x": x}).batch(2)

    found = meeting(
        lambda index, all_min: distribute(
            function, contexts(2)[index], uneven=uneven, all_min=all_min
        ),
        2,
    )

    lengths = [len(process) for process in found]
    if uneven == "drop":
        assert lengths == [2, 2]
        return
    assert lengths == [4, 4]
    assert found[0][2:] == [
        [{"x": [4, 0], "valid": [True, False]}],
        [{"x": [0, 0], "valid": [False, False]}],
    ]


def test_a_failed_agreement_loses_nothing() -> None:
    calls: list[int] = []

    def all_min(number: int) -> int:
        calls.append(number)
        if len(calls) == 2:
            raise TimeoutError("no answer")
        return number

    ds = distribute(
        lambda context: td.Dataset.range(6).batch(2),
        td.InputContext(1, 0, 1),
        uneven="drop",
        all_min=all_min,
    )
    with iter(ds) as iterator:
        assert steps(iterator, 1) == [[[0, 1]]]
        with pytest.raises(TimeoutError):
            next(iterator)
        with pytest.raises(RuntimeError, match="all_min failed at step 1"):
            iterator.state_dict()
        assert steps(iterator) == [[[2, 3]], [[4, 5]]]


def test_a_state_of_shard_by_process_is_for_any_number() -> None:
    states = []
    for one in contexts(2, 1):
        with iter(distribute(by_process, one)) as iterator:
            steps(iterator, 1)
            states.append(iterator.state_dict())
    assert states[0] == states[1]

    def same_rows(context: td.InputContext) -> td.Dataset:
        return td.Dataset.range(24).shard_by_process(context).batch(4)

    rest = []
    for one in contexts(4, 1):
        with iter(distribute(same_rows, one)) as iterator:
            iterator.load_state_dict(states[0])
            rest += steps(iterator)
    assert sorted(row for step in rest for part in step for row in part) == list(range(8, 24))


def test_a_process_goes_on_from_its_own_state_behind_a_share() -> None:
    """Its shuffle holds elements of this process alone."""

    def function(context: td.InputContext) -> td.Dataset:
        return td.Dataset.range(24).shard_by_process(context).shuffle(5, seed=1).batch(3)

    one, other = (distribute(function, each) for each in contexts(2))
    with one.iterator() as iterator:
        steps(iterator, 2)
        state = iterator.state_dict()
        rest = steps(iterator)
    with one.iterator() as iterator:
        iterator.load_state_dict(state)
        assert steps(iterator) == rest
    with other.iterator() as iterator, pytest.raises(IncompatibleCheckpointError, match="0 of 2"):
        iterator.load_state_dict(state)


def test_one_order_is_divided_without_a_seed_too() -> None:
    def function(context: td.InputContext) -> td.Dataset:
        return td.Dataset.range(24).shuffle(24).shard_by_process(context).batch(3)

    found = [steps(iter(distribute(function, one))) for one in contexts(2)]
    assert sorted(
        row for process in found for step in process for part in step for row in part
    ) == [*range(24)]


def test_ends_that_differ_are_one_error_in_each() -> None:
    """After the error comes the end: who goes on does not ask the others for ever."""

    def function(context: td.InputContext) -> td.Dataset:
        return td.Dataset.range(3 - context.input_pipeline_id).batch(1)

    def outcome(iterator: Any) -> list[Any]:
        found: list[Any] = []
        while len(found) < 9:
            try:
                found.append(plain(next(iterator)))
            except StopIteration:
                break
            except SpecError:
                found.append("uneven")
                assert iterator.state_dict()["distributed"]["ended"]
        return found

    all_min = Meeting(2)
    made = [
        distribute(function, one, uneven="error", all_min=all_min.of(at))
        for at, one in enumerate(contexts(2))
    ]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda one: outcome(iter(one)), made))
    assert found == [[[0], [1], "uneven"]] * 2


def test_any_other_state_is_of_its_process() -> None:
    with iter(distribute(strided, td.InputContext(2, 0, 2))) as iterator:
        steps(iterator, 1)
        state = iterator.state_dict()
    with (
        iter(distribute(strided, td.InputContext(2, 1, 2))) as iterator,
        pytest.raises(IncompatibleCheckpointError, match="made that process's own dataset"),
    ):
        iterator.load_state_dict(state)


def test_what_is_refused() -> None:
    one = td.InputContext(2, 0, 2)
    with pytest.raises(TypeError, match="must return a Dataset"):
        distribute(lambda context: [1], one)
    with pytest.raises(TypeError, match="dataset_fn must be callable"):
        distribute(3, one)
    with pytest.raises(ValueError, match="all_min="):
        distribute(strided, one, uneven="drop")
    with pytest.raises(ValueError, match="last operator"):
        distribute(lambda context: td.Dataset.range(3), td.InputContext(), uneven="pad")
    assert distribute(lambda c: strided(c).repeat(), one, uneven="drop").cardinality == -1
