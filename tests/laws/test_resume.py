"""Law 2: resume anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.functions import pure

from tundish import Dataset, InputContext
from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.io import decode_raw, parse_tensor, serialize_tensor
from tundish.loader.run import state as state_module
from tundish.testing import assert_resumes_anywhere, collect
from tundish.testing.functions import Become, Draw, Emit, Fail, Inner, Keep, Tag
from tundish.testing.registry import CASES, FIRST, OTHERS, Case


@pytest.mark.parametrize("case", OTHERS[::4], ids=lambda c: c.name)
def test_some_steps_resume_in_process(case: Case) -> None:
    assert_resumes_anywhere(case.build, workers=(0,), steps=8, limit=case.limit)


@pytest.mark.parametrize("case", OTHERS[1::12], ids=lambda c: c.name)
def test_some_steps_resume_with_other_workers(case: Case) -> None:
    assert_resumes_anywhere(case.build, workers=(0, 2), steps=3, limit=case.limit)


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.name)
def test_every_step_resumes(case: Case) -> None:
    """Every step resumes in process; `test_operators.py` has some with two workers."""
    assert_resumes_anywhere(case.build, workers=(0,), limit=case.limit)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_many_steps_resume_in_any_case(case: Case) -> None:
    assert_resumes_anywhere(case.build, workers=(0,), limit=case.limit)
    assert_resumes_anywhere(case.build, workers=(1, 0, 3), steps=6, limit=case.limit)


FRESH = {
    "map-augment": False,
    "shuffle-filtered": True,
    "flat_map-augment": False,
    "from_generator-shuffle": False,
    "shuffle-unseeded": True,
    "cache-augment": True,
    "batch-errors": False,
}
"""Whether `make test` runs them, too."""


def in_a_fresh_process() -> list[Any]:
    """Each step starts two interpreters, so most are left to `make thorough`."""
    later = pytest.mark.thorough
    return [
        case if FRESH[case.name] else pytest.param(case, marks=later)
        for case in CASES
        if case.name in FRESH
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", in_a_fresh_process(), ids=lambda c: c.name)
def test_a_fresh_process_resumes(case: Case) -> None:
    assert_resumes_anywhere(case.build, workers=(2, 1), steps=3, fresh_process=True)


@pytest.mark.slow
def test_a_long_pipeline_resumes() -> None:
    ds = (
        Dataset.range(60)
        .map(Draw(1), seed=1)
        .filter(Keep(1, 80))
        .shuffle(9, seed=3)
        .flat_map(Inner(Dataset, 2))
        .map(Fail(4, 10), on_error="skip")
        .batch(3)
        .unbatch()
        .shuffle(5, seed=1)
        .repeat(2)
        .enumerate()
    )
    assert_resumes_anywhere(ds, workers=(2, 0, 3), steps=9)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_iteration_is_in_the_state(workers: int) -> None:
    ds = Dataset.range(30).shuffle(9, seed=1).map(Draw(1), seed=1).filter(Keep(1, 90))
    with ds.iterator(workers=workers, iteration=2) as it:
        for _ in range(7):
            next(it)
        state = it.state_dict()
        rest = [int(x) for x in it]
    with ds.iterator(workers=0) as other:
        other.load_state_dict(state)
        assert [int(x) for x in other] == rest
    with ds.iterator(workers=0) as zero:
        assert [int(x) for x in zero][7:] != rest


def test_saving_and_restoring(tmp_path: Path) -> None:
    ds = Dataset.range(20).map(pure).batch(3)
    path = tmp_path / "data.json"
    with ds.iterator(workers=0) as it:
        head = [next(it).tolist() for _ in range(3)]
        it.save(path)
        rest = [batch.tolist() for batch in it]
    with ds.iterator(workers=2) as it:
        it.restore(path)

        assert [batch.tolist() for batch in it] == rest
    assert len(head) + len(rest) == 7
    assert json.loads(path.read_text())
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.json"]


def test_a_state_of_another_pipeline_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    with Dataset.range(3).iterator(workers=0) as it:
        it.save(path)
    with (
        Dataset.range(4).iterator(workers=0) as it,
        pytest.raises(IncompatibleCheckpointError) as caught,
    ):
        it.restore(path)
    assert str(path) in " ".join(caught.value.__notes__)


def test_restoring_what_is_not_there(tmp_path: Path) -> None:
    with Dataset.range(3).iterator(workers=0) as it:
        it.restore(tmp_path / "none.json", missing_ok=True)
        assert [int(x) for x in it] == [0, 1, 2]
        with pytest.raises((FileNotFoundError, CheckpointError)):
            it.restore(tmp_path / "none.json")


@pytest.mark.parametrize("workers", [0, 2])
def test_skips_and_retries_are_counted_in_the_state(workers: int) -> None:
    ds = Dataset.range(60).map(Fail(1, 30), on_error="skip")
    ds = ds.map(Fail(2, 30), on_error="retry", retries=2).batch(4)
    with ds.iterator(workers=workers) as it:
        found = collect(it)
        counts = dict(counted(it.state_dict()))

    plain = [Dataset.range(60).map(Fail(k, 30)).iterator(workers=0) for k in (1, 2)]
    failed = [{i for i, x in enumerate(collect(it)) if x.error} for it in plain]
    assert found
    assert counts["map#1 skipped"] == len(failed[0])
    assert counts["map#2 retried"] == 2 * len(failed[1] - failed[0])


def counted(state: object) -> Iterator[tuple[str, int]]:
    """Whatever is counted anywhere in a state."""
    if isinstance(state, dict):
        yield from state.get("counts", {}).items()
        for value in state.values():
            yield from counted(value)


CHANGED = {
    "another operator": lambda: Dataset.range(10).map(pure).skip(1).batch(2),
    "another argument": lambda: Dataset.range(10).map(pure).batch(3),
    "another source": lambda: Dataset.range(11).map(pure).batch(2),
    "another function": lambda: Dataset.range(10).map(abs).batch(2),
    "another seed": lambda: Dataset.range(10).map(Draw(1), seed=2).batch(2),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_state_of_another_pipeline_is_refused(what: str) -> None:
    with Dataset.range(10).map(pure).batch(2).iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
    other = CHANGED[what]().iterator(workers=0)
    with pytest.raises(IncompatibleCheckpointError) as caught:
        other.load_state_dict(state)
    assert caught.value.differences


@pytest.mark.parametrize(
    "share",
    [
        lambda ds, c: ds.map(Draw(1), seed=2).shard_by_process(c),
        lambda ds, c: ds.shuffle(None, seed=1).shard_by_process(c),
        lambda ds, c: (
            ds.map(Draw(1), seed=2).filter(Keep(1)).shuffle(5, seed=1).shard_by_process(c)
        ),
        lambda ds, c: ds.batch(3).shard_by_process(c).map(Tag(1)),
    ],
    ids=["map", "permutation", "window", "batch"],
)
@pytest.mark.parametrize(("before", "after"), [(4, 3), (3, 5), (1, 2)])
def test_saved_on_some_hosts_restored_on_others(share: object, before: int, after: int) -> None:
    """The union of what the hosts deliver is everything, once."""
    source = Dataset.range(48)
    whole = [str(x) for x in share(source, InputContext(1, 0)).iterator(workers=0)]  # type: ignore[operator]
    states, head, rest = [], [], []
    for host in range(before):
        with share(source, InputContext(before, host)).iterator(workers=0) as it:  # type: ignore[operator]
            head += [str(next(it)) for _ in range(2)]
            states.append(it.state_dict())
    assert all(state == states[0] for state in states), "one state for all hosts"
    for host in range(after):
        with share(source, InputContext(after, host)).iterator(workers=0) as it:  # type: ignore[operator]
            it.load_state_dict(states[0])
            rest += [str(x) for x in it]

    assert sorted(head + rest) == sorted(whole)


def first_of(window: Any) -> Any:
    return window.take(1)


OWN: dict[str, Callable[[Dataset], Dataset]] = {
    "filter": lambda ds: ds.filter(Keep(1)),
    "skip": lambda ds: ds.map(Fail(1, 20), on_error="skip"),
    "flat_map": lambda ds: ds.flat_map(Inner(Dataset, 1)),
    "shuffle": lambda ds: ds.shuffle(3, seed=1),
    "window": lambda ds: ds.window(2, shift=1).flat_map(first_of),
    "unique": lambda ds: ds.unique(),
    "cache": lambda ds: ds.cache(),
    "ignore_errors": lambda ds: ds.map(Fail(1, 20)).ignore_errors().batch(2),
    "unbatch": lambda ds: ds.map(Become("image")).unbatch(),
}


@pytest.mark.parametrize("behind", OWN.values(), ids=OWN)
@pytest.mark.parametrize("other", [(2, 1), (3, 0), (1, 0)])
def test_what_is_one_process_s_own_is_refused_by_another(
    behind: Callable[[Dataset], Dataset], other: tuple[int, int]
) -> None:
    def share(count: int, index: int) -> Any:
        ds = behind(Dataset.range(48).shard_by_process(InputContext(count, index)))
        return ds.iterator(workers=0)

    with share(2, 0) as it:
        next(it)
        state = json.loads(json.dumps(it.state_dict()))
    with share(2, 0) as it:
        it.load_state_dict(state)
    with share(*other) as it, pytest.raises(IncompatibleCheckpointError) as caught:
        it.load_state_dict(state)

    assert f"saved by process 0 of 2, restored by {other[1]} of {other[0]}" in str(caught.value)


def test_a_window_over_a_stream_of_objects_keeps_positions_not_data() -> None:
    ds = Dataset.range(500).map(Become("image")).filter(Keep(1, 90)).shuffle(100, seed=1)
    with ds.iterator(workers=0) as it:
        next(it)
        size = len(json.dumps(it.state_dict()))

    assert size < 4 * 4096 + 100 * 16


def test_a_generator_is_run_again_up_to_where_it_was() -> None:
    assert_resumes_anywhere(Dataset.from_generator(Emit(30)).shuffle(8, seed=1).batch(2).repeat(2))


@pytest.mark.parametrize("case", OTHERS[3::8], ids=lambda case: case.name)
def test_one_state_for_every_number_of_workers(case: Case) -> None:
    """A few cases; `assert_resumes_anywhere` looks at others, and `make thorough` at all."""
    ds = case.build()
    states = []
    for workers in (0, 2):
        with ds.iterator(workers=workers) as it:
            states.append([it.state_dict()["position"] for _ in range(12) if stepped(it)])
    assert states[0] == states[1]


def stepped(it: Any) -> bool:
    """Take an element; whether there was one, or its error."""
    try:
        next(it)
    except StopIteration:
        return False
    except BaseException:  # noqa: BLE001 - the element's own
        return True
    return True


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [1, 7, 100])
def test_the_state_is_the_same_behind_close(workers: int, taken: int) -> None:
    for dataset in (Dataset.range(3000), Dataset.range(3000).map(abs)):
        with dataset.iterator(workers=workers) as iterator:
            for _ in range(taken):
                next(iterator)
            state = iterator.state_dict()
        iterator.close()
        assert iterator.state_dict() == state
        assert iterator.stats.elements == taken
        with dataset.iterator(workers=0) as continued:
            continued.load_state_dict(iterator.state_dict())
            assert next(continued) == taken


def half(n: Any) -> Any:
    return n // 2


def add(state: Any, n: Any) -> Any:
    return state + n, state


def rows() -> Dataset:
    return Dataset.range(1, 20).map(Become("ragged"))


def bucketed(length: Any = len, **others: Any) -> Dataset:
    return rows().bucket_by_sequence_length(length, [2], [2, 2], **others)


@pytest.mark.parametrize(
    ("saved", "other", "told"),
    [
        (bucketed, lambda: bucketed(half), "length: half here, len in the state"),
        (bucketed, lambda: bucketed(padding_values=9), "padding_values: '9' here, None in the"),
        (bucketed, lambda: bucketed(drop_remainder=True), "drop_remainder: True here, False in"),
        (
            lambda: rows().pack(5, separator={"tokens": 1}),
            lambda: rows().pack(5, separator={"tokens": 2}),
            "separator.tokens: 2 here, 1 in the state",
        ),
        (
            lambda: Dataset.range(9).scan(0, add),
            lambda: Dataset.range(9).scan(1, add),
            "initial: 'np.int64(1)' here, 'np.int64(0)' in the state",
        ),
        (
            lambda: Dataset.from_tensor_slices({"x": [1]}).pad_to_cardinality(2, "real"),
            lambda: Dataset.from_tensor_slices({"x": [1]}).pad_to_cardinality(2, "valid"),
            "function.key: 'valid' here, 'real' in the state",
        ),
    ],
)
def test_what_an_operator_of_ours_was_given_is_compared(saved: Any, other: Any, told: str) -> None:
    with saved().iterator(workers=0) as iterator:
        state = iterator.state_dict()
    with (
        other().iterator(workers=0) as refusing,
        pytest.raises(IncompatibleCheckpointError, match=re.escape(told)),
    ):
        refusing.load_state_dict(state)
    with saved().iterator(workers=0) as iterator:
        iterator.load_state_dict(state)


def test_counts_on_both_sides_of_a_resume_stay_with_their_stage() -> None:
    """Two stages with nothing between them that has a state of its own."""

    def whole(x: int) -> int:
        if x in {0, 10}:
            raise ValueError(x)
        return x

    mine = Dataset.range(20).map(whole, on_error="skip").shard_by_process(InputContext(4, 2))
    ds = mine.map(lambda x: {"x": x})
    with ds.iterator() as it:
        next(it)
        state = it.state_dict()
        list(it)
        end = it.state_dict()
    with ds.iterator() as it:
        it.load_state_dict(state)
        list(it)
        assert it.state_dict() == end
        assert it.stats.skipped == {"map#1": 2}


OURS: dict[str, Callable[[], Dataset]] = {
    "function": lambda: Dataset.range(4).map(serialize_tensor),
    "method": lambda: Dataset.range(4).flat_map(Dataset.range),
    "partial": lambda: Dataset.range(4).map(partial(serialize_tensor, name="x")),
}
"""Functions of the library; what wraps a user's function has that one's code, as before."""


@pytest.mark.parametrize("name", list(OURS))
def test_a_state_fits_another_version_of_our_own_functions(name: str) -> None:
    """The library's functions are compared by name: a state outlives a change of their code."""
    ds = OURS[name]().batch(2)
    with ds.iterator() as it:
        next(it)
        state = it.state_dict()
        rest = list(map(str, it))
    (function,) = [args["function"] for _, args in state["plan"] if "function" in args]
    assert list(function) == ["function"]

    function["code"] = "0" * 16  # as older states have it
    if name == "partial":
        function["function"] = "partial"
    with ds.iterator() as it:
        it.load_state_dict(json.loads(json.dumps(state)))
        assert list(map(str, it)) == rest


@pytest.mark.parametrize(
    ("saved", "other"),
    [
        (serialize_tensor, parse_tensor),
        (partial(decode_raw, out_type=int), partial(parse_tensor, out_type=int)),
        (pure, serialize_tensor),
    ],
    ids=["functions", "partials", "a user's"],
)
def test_a_state_does_not_fit_another_of_our_own_functions(saved: Any, other: Any) -> None:
    state = Dataset.range(4).map(saved).iterator(workers=0).state_dict()
    with (
        Dataset.range(4).map(other).iterator(workers=0) as it,
        pytest.raises(IncompatibleCheckpointError, match="function"),
    ):
        it.load_state_dict(state)


def test_the_code_of_a_function_within_one_of_our_objects_is_compared() -> None:
    """`rejection_resample` wraps the function that tells the class of an element."""

    def resampled(class_func: Any) -> Dataset:
        return Dataset.range(9).rejection_resample(class_func, [1, 1], seed=1)

    state = resampled(lambda x: int(x % 2)).iterator(workers=0).state_dict()
    with (
        resampled(lambda x: int(x > 4)).iterator(workers=0) as it,
        pytest.raises(IncompatibleCheckpointError, match="the code of Classified has changed"),
    ):
        it.load_state_dict(state)


def padded(values: Any) -> Dataset:
    rows = {"x": np.zeros((2, 1), "i8"), "y": np.zeros((2, 1), "f4")}
    return Dataset.from_tensor_slices(rows).padded_batch(2, padding_values=values)


SCALARS: dict[str, Callable[[], Dataset]] = {
    "a number": lambda: Dataset.range(9).scan(0, add),
    "others": lambda: Dataset.range(9).scan({"on": True, "name": "a", "at": 0.5}, add),
    "padding": lambda: padded({"x": np.int64(-1), "y": np.float32(0.1)}),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_state_fits_another_version_of_numpy(name: str) -> None:
    """Numpy 1 shows scalars without their types, and so does a later one whose print options say so."""
    with np.printoptions(legacy="1.25"):
        older = SCALARS[name]().iterator(workers=0).state_dict()
    newer = SCALARS[name]().iterator(workers=0).state_dict()
    assert older["plan"] != newer["plan"]
    SCALARS[name]().iterator(workers=0).load_state_dict(older)
    with np.printoptions(legacy="1.25"):
        SCALARS[name]().iterator(workers=0).load_state_dict(newer)


@pytest.mark.parametrize("other", [np.int64(1), np.int32(0)])
def test_other_scalars_are_another_plan(other: Any) -> None:
    state = Dataset.range(9).scan(np.int64(0), add).iterator(workers=0).state_dict()
    with pytest.raises(IncompatibleCheckpointError, match="initial"):
        Dataset.range(9).scan(other, add).iterator(workers=0).load_state_dict(state)


def test_a_plan_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To list a million files takes longer than a step."""
    described: list[Any] = []
    describe = state_module.describe_plan

    def noting(root: Any) -> Any:
        described.append(root)
        return describe(root)

    monkeypatch.setattr(state_module, "describe_plan", noting)
    with Dataset.range(9).batch(2).iterator(workers=0) as it:
        it.state_dict()["plan"].clear()  # a state is its caller's
        assert [label for label, _ in it.state_dict()["plan"]] == ["range", "batch"]
    assert len(described) == 1
