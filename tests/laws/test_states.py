"""A state that was changed is refused with what is wrong in it, or is a state of that pipeline."""

from __future__ import annotations

import itertools
import json
import random
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.laws.functions import pure

from tundish import Dataset
from tundish.errors import CheckpointError, TundishError
from tundish.testing import collect
from tundish.testing.functions import Become, Inner, Keep
from tundish.testing.registry import CASES, FIRST, Case

CUT = object()
HOSTILE: tuple[Any, ...] = (
    CUT, None, True, -1, 7, 2**62 + 1, 2**64, 10**30, 1.5, float("nan"), "x", "0", [], [[]], {},
    [0, [1, 2]],
)  # fmt: skip
LIMIT = 50
NAMING = [
    case for case in CASES if re.search("shuffl|interleave|turns|pack|group|window", case.name)
]


def changed(case: Case, count: int) -> Iterator[dict[str, Any]]:
    """Some of the states of a pipeline with one thing in them changed."""
    with case.build().iterator(workers=0) as it:
        some = itertools.islice(outcomes(it), 40)
        states = [json.loads(json.dumps(it.state_dict())) for _ in some]
    rng = random.Random(case.name)
    whole = [{k: v for k, v in state.items() if k != "plan"} for state in states[1::12]]
    places = [(n, path) for n, state in enumerate(whole) for path in paths(state)]
    every = list(itertools.product(places, HOSTILE))
    for (n, path), value in rng.sample(every, min(count, len(every))):
        state = json.loads(json.dumps(states[1::12][n]))
        *above, last = path
        at = state
        for key in above:
            at = at[key]
        if value is CUT:
            del at[last]
        else:
            at[last] = value
        yield state


def paths(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a state."""
    if path:
        yield path
    if isinstance(state, (dict, list)):
        for key, below in state.items() if isinstance(state, dict) else enumerate(state):
            yield from paths(below, (*path, key))


def outcomes(it: Any) -> Iterator[BaseException | None]:
    """Yield for each element None, or its error."""
    while True:
        try:
            next(it)
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - the element's own
            yield error
        else:
            yield None


def own_errors(case: Case) -> tuple[type[BaseException], ...]:
    """The types of a pipeline's own errors: of what it reads, and of its functions."""
    found: set[type[BaseException]] = set()
    for iteration in range(4):  # in each a shard may be of other files
        with case.build().iterator(workers=0, iteration=iteration) as it:
            found |= {type(error) for error in itertools.islice(outcomes(it), 200) if error}
    return (TundishError, *found)


def gives_elements(
    case: Case, state: dict[str, Any], known: tuple[type[BaseException], ...]
) -> None:
    """Check that a state is refused, or that what comes after it are elements and errors that have been seen to."""
    with case.build().iterator(workers=0) as it:
        try:
            it.load_state_dict(state)
        except CheckpointError:
            return
        for error in itertools.islice(outcomes(it), LIMIT):
            if error is None or isinstance(error, known):
                continue
            last = traceback.extract_tb(error.__traceback__)[-1].filename
            assert "testing" in last, f"{error!r} is no error of a function of the pipeline's"
        it.state_dict()


@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.name)
def test_a_changed_state_is_refused_or_one_of_the_pipeline(case: Case) -> None:
    known = own_errors(case)
    for state in changed(case, 24):
        gives_elements(case, state, known)


@pytest.mark.slow
@pytest.mark.parametrize("case", NAMING[::3], ids=lambda c: c.name)
def test_a_state_that_names_elements_may_name_others(case: Case) -> None:
    known = own_errors(case)
    for state in changed(case, 30):
        gives_elements(case, state, known)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_any_changed_state_is_refused_or_one_of_the_pipeline(case: Case) -> None:
    known = own_errors(case)
    for state in changed(case, 100):
        gives_elements(case, state, known)


@pytest.mark.slow
@pytest.mark.parametrize("case", NAMING[::6], ids=lambda c: c.name)
def test_workers_do_not_show_in_what_a_changed_state_gives(case: Case) -> None:
    for state in changed(case, 5):
        found: list[Any] = []
        for workers in (0, 2):
            with case.build().iterator(workers=workers) as it:
                try:
                    it.load_state_dict(state)
                except CheckpointError as refused:
                    found.append(str(refused))
                else:
                    found.append([str(each) for each in collect(it, limit=LIMIT)])
        assert found[0] == found[1]


def shuffled() -> Dataset:
    return Dataset.range(40).filter(Keep(1)).shuffle(5, seed=1).map(pure).batch(2)


WRONG = {
    "cut": ("['up']", {}, "['position']['up'] has no 'draws'"),
    "another type": ("['up']['draws']", "x", "['draws'] is 'x', not an integer from 0 to"),
    "negative": ("['n']", -3, "['position']['n'] is -3, not an integer from 0 to"),
    "far": ("['n']", 2**63, f"['position']['n'] is {2**63}, not an integer from 0 to"),
    "no number": ("['n']", float("nan"), "['position']['n'] is nan, not an integer"),
    "no object": ("['up']", 4, "['position']['up'] is 4, not an object with 'draws'"),
    "a ref": ("['up']['window'][2]", 40, "['window'][2] is 40, which is not an element"),
    "no ref": ("['up']['window'][2]", [0, 1], "['window'][2] is (0, 1), which is not an element"),
    "a window": ("['up']['window']", [1] * 6, "['window'] has 6 entries; there are at most 5"),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_and_the_iterator_stays_where_it_is(what: str, workers: int) -> None:
    path, value, told = WRONG[what]
    with shuffled().iterator(workers=0) as it:
        expected = [batch.tolist() for batch in it]
    with shuffled().iterator(workers=workers) as it:
        found = [next(it).tolist() for _ in range(3)]
        state = json.loads(json.dumps(it.state_dict()))
        keys = [key.strip("'") for key in re.findall(r"\[(.*?)\]", path)]
        at = state["position"]
        for key in keys[:-1]:
            at = at[key]
        at[int(keys[-1]) if isinstance(at, list) else keys[-1]] = value
        with pytest.raises(CheckpointError, match=re.escape(told)):
            it.load_state_dict(state)
        assert found + [batch.tolist() for batch in it] == expected


@pytest.mark.parametrize("name", ["iteration", "seed", "graph_seed", "ended", "python", "plan"])
@pytest.mark.parametrize("value", [CUT, -1.5, "x", [[]], {}, [["range"]], [[1, {}]]])
def test_around_the_position_too(name: str, value: Any) -> None:
    with shuffled().iterator(workers=0) as it:
        state = json.loads(json.dumps(it.state_dict()))
        if value is CUT:
            del state[name]
        else:
            state[name] = value
        if name == "python" and isinstance(value, str):
            it.load_state_dict(state)  # of another interpreter: code is not compared
        else:
            with pytest.raises(CheckpointError):
                it.load_state_dict(state)


def test_a_state_too_deep_to_read() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    with shuffled().iterator(workers=0) as it:
        state = it.state_dict()
        state["position"]["up"]["window"] = [deep]
        with pytest.raises(CheckpointError, match="is not an element"):
            it.load_state_dict(state)
        while deep:  # dropped at once it would be too deep for the interpreter
            deep = deep.pop()


ROWS = Dataset.range(12).map(Become("ragged"))
NAMES: dict[str, tuple[Callable[[], Dataset], Any]] = {
    "flat_map": (lambda: Dataset.range(9).flat_map(Inner(Dataset, 1)), [0, 99]),
    "unbatch": (lambda: Dataset.range(9).map(Become("image")).unbatch(), [0, 99]),
    "rebatch": (lambda: Dataset.range(12).batch(4).rebatch(3), [0, [[[0, [0, 1]], 0, 3]]]),
    "pack": (lambda: ROWS.pack(5), [0, [[1, 0, 5]]]),
    "scan": (
        lambda: Dataset.range(9).filter(lambda x: x % 2 == 0).scan(0, lambda s, x: (s + x, s)),
        1,
    ),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("what", NAMES)
def test_what_is_not_there_is_an_error_in_its_place(what: str, workers: int) -> None:
    """A ref of the right form that names nothing fails as the element is made."""
    make, ref = NAMES[what]
    ds = make().shuffle(3, seed=1)
    with ds.iterator(workers=workers) as it:
        next(it)
        state = json.loads(json.dumps(it.state_dict()))
        state["position"]["window"] = [ref]
        it.load_state_dict(state)
        errors = [error for error in outcomes(it) if error is not None]
    assert [type(error) for error in errors] == [CheckpointError]
    assert "which does not exist" in str(errors[0])


def eight(x: Any) -> Any:
    """A sequence of eight tokens."""
    return np.full(8, x)


def halves(x: Any) -> Any:
    """A dataset of two elements."""
    return Dataset.range(2).map(lambda y: y + 2 * x)


@pytest.mark.parametrize(
    "ds",
    [
        Dataset.range(2).interleave(halves, cycle_length=4, block_length=9).shuffle(40, seed=4),
        Dataset.range(6)
        .map(eight)
        .pack(2, method="first_fit", open_rows=4, too_long="split", separator=1, pad_value=-1),
    ],
    ids=["a cycle that ended where no slot is", "a row that begins with a separator"],
)
def test_every_state_that_is_written_is_read(ds: Dataset) -> None:
    with ds.iterator(workers=0) as it:
        states, elements = [it.state_dict()], []
        for element in it:
            elements.append(str(element))
            states.append(it.state_dict())
    for at, state in enumerate(states):
        with ds.iterator(workers=at % 2) as it:
            it.load_state_dict(state)
            assert [str(element) for element in it] == elements[at:]
