"""`next_failure` and `slowest`: the element of a state again, what its function was given, and nothing written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.loader.protocols.items import End
from tundish.testing import FailedElement, collect, difference, next_failure, slowest
from tundish.testing.again.call import Call, shown
from tundish.testing.again.finding import forward, one_call
from tundish.testing.again.replay import Replay
from tundish.testing.again.watcher import Watcher
from tundish.testing.registry import CASES, Case

DREW: list[Any] = []


def draw(x: Any, rng: np.random.Generator) -> Any:
    """Use the generator, change the argument, and fail for one element."""
    first = rng.integers(0, 1000)
    DREW.append((int(x[0]), int(first)))
    x[0] = -1
    rng.normal(size=3)
    if DREW[-1][0] == 13:
        raise ValueError("thirteen")
    return x


def state_after(ds: td.Dataset, count: int) -> dict[str, Any]:
    """Return the state after so many elements."""
    with ds.iterator(workers=0) as it:
        for _ in range(count):
            next(it)
        state: dict[str, Any] = json.loads(json.dumps(it.state_dict()))
        return state


def found(ds: td.Dataset, state: Any = None, limit: int | None = 100) -> FailedElement:
    """The next failure, which there is."""
    failed = next_failure(ds, state, limit)
    assert failed is not None
    return failed


def test_the_arguments_and_the_rng_are_those_of_the_start() -> None:
    ds = td.Dataset.range(40).map(lambda x: np.array([x, 7])).map(draw, seed=5).batch(4)
    state = state_after(ds, 2)
    DREW.clear()

    failed = found(ds, state)

    assert (failed.index, failed.node, failed.origin) == (1, "map#2", "element 13")
    assert type(failed.error) is ValueError
    assert failed.call is not None
    np.testing.assert_array_equal(failed.call.element, [13, 7])  # not [-1, 7]
    assert failed.call.function is draw
    drawn = dict(DREW)[13]
    for _ in range(2):
        assert failed.call.rng.integers(0, 1000) == drawn
        with pytest.raises(ValueError, match="thirteen"):
            failed.call.again()
        assert DREW[-1] == (13, drawn)
    assert (
        str(failed) == "element 1 after the state fails in map#2, element 13: ValueError: thirteen"
    )


def test_its_state_is_just_before_it() -> None:
    ds = td.Dataset.range(40).map(lambda x: np.array([x])).map(draw, seed=5).batch(4)

    failed = found(ds)

    assert failed.index == 3
    assert found(ds, failed.state, 1).index == 0
    with ds.iterator(workers=0) as it:
        it.load_state_dict(failed.state)
        with pytest.raises(ValueError, match="thirteen"):
            next(it)


def bad(x: Any) -> Any:
    """Fail for 13."""
    if x == 13:
        raise ValueError("thirteen")
    return x


PIPELINES: dict[str, tuple[Callable[[], td.Dataset], str]] = {
    "filter": (lambda: td.Dataset.range(40).filter(lambda x: bad(x) >= 0).batch(4), "filter#1"),
    "shuffle": (lambda: td.Dataset.range(40).map(bad).shuffle(10, seed=1), "map#1"),
    "shuffle of computed": (
        lambda: td.Dataset.range(40).map(bad).filter(lambda x: x >= 0).shuffle(10, seed=1).batch(2),
        "map#1",
    ),
    "repeat": (lambda: td.Dataset.range(5).repeat(9).map(lambda x: bad(x + 9)), "map#2"),
    "zip": (lambda: td.Dataset.zip(td.Dataset.range(40), td.Dataset.range(40).map(bad)), "map#2"),
    "flat_map": (
        lambda: td.Dataset.range(5).flat_map(
            lambda x: td.Dataset.range(4).map(lambda y: bad(x * 4 + y))
        ),
        "map#1 within flat_map#1",
    ),
    "map_batches": (
        lambda: td.Dataset.range(40).batch(3).map(lambda b: [bad(x) for x in b]),
        "map#2",
    ),
    "retry": (lambda: td.Dataset.range(40).map(bad, on_error="retry"), "map#1"),
    "scan": (lambda: td.Dataset.range(40).scan(0, lambda s, x: (s + x, bad(x))), "scan#1"),
    "take_while": (lambda: td.Dataset.range(40).take_while(lambda x: bad(x) >= 0), "take_while#1"),
    "group_by_window": (
        lambda: td.Dataset.range(40).group_by_window(
            lambda x: bad(x) % 2, lambda _, ds: ds.batch(3), window_size=3
        ),
        "groups#1",
    ),
    "prefetch": (lambda: td.Dataset.range(40).prefetch(2).map(bad).prefetch(2), "map#2"),
    "workers": (lambda: td.Dataset.range(40).map(bad, num_parallel_calls=2).batch(4), "map#1"),
}


def given_before_the_error(ds: td.Dataset) -> int:
    """Count the elements that come before one fails."""
    seen = 0
    with ds.iterator(workers=0) as it:
        while True:
            try:
                next(it)
            except ValueError:
                return seen
            seen += 1


@pytest.mark.parametrize("name", PIPELINES)
def test_any_pipeline(name: str) -> None:
    make, node = PIPELINES[name]
    ds = make()
    seen = given_before_the_error(ds)
    state = state_after(ds, min(seen, 2))

    failed = found(ds, state)

    assert failed.index == seen - min(seen, 2)
    assert failed.call is not None
    assert (failed.node or "").partition("#")[0] == node.partition("#")[0]
    assert failed.call.node == failed.node
    with pytest.raises(ValueError, match="thirteen"):
        failed.call.again()


def test_labels_are_those_of_the_errors() -> None:
    for name in ("filter", "repeat", "zip", "prefetch"):
        failed = found(PIPELINES[name][0]())
        [note, *_] = failed.error.__notes__

        assert note.startswith(f"tundish: in {failed.node}, {failed.origin}, ")


def test_an_error_that_is_no_functions() -> None:
    ds = td.Dataset.range(8).map(lambda x: np.zeros(3 if x == 5 else 2)).batch(4)

    failed = found(ds)

    assert type(failed.error) is td.errors.SpecError
    assert (failed.index, failed.call) == (1, None)


def test_nothing_fails() -> None:
    ds = td.Dataset.range(10).map(lambda x: x, on_error="skip")

    assert next_failure(ds) is None
    assert next_failure(ds.repeat(), limit=50) is None
    assert next_failure(ds, state_after(ds, 9), None) is None
    ended = state_after(td.Dataset.range(40).map(bad), 10)
    ended["ended"] = True
    assert next_failure(td.Dataset.range(40).map(bad), ended) is None


def test_a_state_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    ds = td.Dataset.range(40).map(bad)
    with ds.iterator(workers=0) as it:
        for _ in range(10):
            next(it)
        it.save(tmp_path / "one.json")
        it.save(tmp_path / "series", keep=2)

    assert found(ds, tmp_path / "one.json").index == 3
    assert found(ds, str(tmp_path / "series")).index == 3
    with pytest.raises(FileNotFoundError):
        next_failure(ds, tmp_path / "none.json")
    with pytest.raises(
        td.errors.IncompatibleCheckpointError, match=r"range#0.stop: 41 here, 40 in"
    ):
        next_failure(td.Dataset.range(41).map(bad), tmp_path / "one.json")


def test_what_a_check_of_the_whole_pipeline_refuses(tmp_path: Path) -> None:
    ds = td.Dataset.range(6).map(reciprocal).batch(2)
    td.debugging.enable_check_numerics()
    td.debugging.enable_dump_debug_info(tmp_path)
    try:
        failed = next_failure(ds)
        first = next_failure(td.Dataset.from_tensors(np.array([1, np.nan], np.float32)))
    finally:
        td.debugging.disable_check_numerics()
        td.debugging.disable_dump_debug_info()

    assert failed is not None
    assert isinstance(failed.error, td.errors.NumericsError)
    assert (failed.index, failed.node, failed.origin) == (1, "map#1", "element 3")
    assert failed.call is not None
    assert failed.call.element == 3
    assert first is not None
    assert (first.node, first.call) == ("from_tensors#0", None)
    assert not list(tmp_path.glob("*.dump"))
    assert next_failure(ds) is None


def test_nothing_is_written(tmp_path: Path) -> None:
    """A snapshot that is half written is read, and stays as it is."""
    folder = tmp_path / "snapshot"
    ds = td.Dataset.range(40).map(bad).snapshot(str(folder))
    with ds.iterator(workers=0) as it:
        for _ in range(5):
            next(it)
        it.save(tmp_path / "state.json")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    failed = found(ds, tmp_path / "state.json")

    assert (failed.index, failed.node) == (8, "map#1")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_worker_init_is_called() -> None:
    set_by: list[int] = []
    ds = td.Dataset.range(3).map(lambda x: 1 // (2 - int(x) - len(set_by) + 1))

    found(ds.with_options(td.Options(worker_init=lambda: set_by.append(1))))

    assert set_by


class Clock:
    """Time that goes on only where it is told to."""

    def __init__(self) -> None:
        self.now = self.cpu = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.cpu += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made_up = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made_up.now)
    monkeypatch.setattr(time, "process_time", lambda: made_up.cpu)
    return made_up


def test_the_slowest(clock: Clock) -> None:
    def uneven(x: Any) -> Any:
        clock.work(0.03)
        clock.sleep(0.15 if x == 9 else 0.05 if x == 2 else 0)
        return x

    ds = td.Dataset.range(16).filter(lambda x: True).map(uneven).batch(4)

    first, second = slowest(ds, None, 10, most=2)

    assert (first.index, second.index) == (2, 0)
    assert first.slowest_node == "map#2"
    assert first.calls == {"filter#1": 4, "map#2": 4}
    assert first.seconds == pytest.approx(0.27)
    assert first.cpu_s == pytest.approx(0.12)
    assert first.nodes == pytest.approx({"filter#1": 0.0, "map#2": 0.27})
    assert first.elsewhere_s == pytest.approx(0.0)
    assert first.call is not None
    assert (first.call.element, first.call.function) == (9, uneven)
    assert first.call.seconds == pytest.approx(0.18)
    assert second.call is not None
    assert second.call.element == 2
    assert next_failure(ds, first.state) is None


def test_what_is_outside_of_functions_is_elsewhere(clock: Clock) -> None:
    def read() -> Any:
        for x in range(3):
            clock.sleep(0.25)
            yield x

    def double(x: Any) -> Any:
        clock.sleep(0.5)
        return 2 * x

    [slow, *_] = slowest(td.Dataset.from_generator(read).map(double))

    assert slow.seconds == pytest.approx(0.75)
    assert slow.elsewhere_s == pytest.approx(0.25)


def test_the_slowest_of_those_that_fail() -> None:
    [slow] = slowest(td.Dataset.range(20).map(bad), None, 14, most=1)[:1]
    told = slowest(td.Dataset.range(20).map(bad), None, 14, most=14)

    assert slow.seconds >= 0
    assert [each.index for each in told if each.error is not None] == [13]
    assert slowest(td.Dataset.range(0)) == ()


def test_another_nodes_longest_call(clock: Clock) -> None:
    def sleep(x: Any) -> Any:
        clock.sleep(0.01)
        return x

    ds = td.Dataset.range(3).map(sleep).filter(lambda x: True)

    [slow, *_] = slowest(ds, node="filter#2")

    assert slow.slowest_node == "map#1"
    assert slow.call is not None
    assert slow.call.node == "filter#2"


def test_a_call_that_is_not_made() -> None:
    called: list[int] = []

    def note(x: Any) -> Any:
        called.append(int(x))
        return x

    ds = td.Dataset.range(8).map(note).batch(4)
    call = one_call(ds, forward(ds, None, 1), 2)

    assert call is not None
    assert call.element == 6
    assert called == [0, 1, 2, 3, 4, 5]
    assert one_call(ds, None, 99) is None


def test_forward_goes_over_errors() -> None:
    ds = td.Dataset.range(16).map(bad)

    with Replay(ds, forward(ds, None, 15), Watcher()) as replay:
        assert replay.next() == 15
    assert forward(ds, None, 99)["position"] == 16


class Secret:
    """An object that cannot be copied, nor shown."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("not this one")

    def __repr__(self) -> str:
        raise ValueError("nor this")


def reciprocal(n: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.float32(1) / np.float32(n - 3)


def test_what_cannot_be_copied_or_shown() -> None:
    ds = td.Dataset.from_list([1]).map(lambda x: (Secret(), x)).map(lambda s, x: 1 // int(x - 1))

    failed = found(ds)

    assert failed.call is not None
    assert isinstance(failed.call.arguments[0], Secret)
    lines = dict(failed.call.lines())
    assert lines["elements"] == "<Secret whose repr raises ValueError>, np.int64(1)"


def test_values_in_a_line() -> None:
    assert shown(np.int64(3)) == "np.int64(3)"
    assert shown({"x": np.zeros((9, 9), "f4")}) == "{'x': ArraySpec(shape=(9, 9), dtype=float32)}"
    pair = {"label": np.int64(7), "image": np.zeros((9, 9), "f4")}
    assert shown(pair) == "{'label': np.int64(7), 'image': ArraySpec(shape=(9, 9), dtype=float32)}"
    assert shown((pair, 1)) == f"({shown(pair)}, 1)"
    assert shown(np.random.Generator(np.random.PCG64(1))).startswith("PCG64 (state ")
    assert Call("map#1", bad, (1, 2)).element == (1, 2)
    assert Call("map#1", bad, (1,)).rng is None


class Replayed:
    """A replay as an iterator."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def __iter__(self) -> Replayed:
        return self

    def __next__(self) -> Any:
        try:
            return self.replay.next()
        except End:
            raise StopIteration from None


@pytest.mark.parametrize("case", CASES[1::7], ids=lambda c: c.name)
def test_a_replay_gives_what_an_iterator_gives(case: Case) -> None:
    """From somewhere in the middle, as saved by a run, and from a mark of the replay itself."""
    ds = case.build()
    with ds.iterator(workers=0) as it:
        collect(it, limit=2)
        state = json.loads(json.dumps(it.state_dict()))
        expected = collect(it, limit=min(case.limit, 200))

    with Replay(ds, state) as replay:
        first = collect(Replayed(replay), limit=1)
        mark = replay.here()
        rest = collect(Replayed(replay), limit=min(case.limit, 200) - 1)
        later = replay.state(mark)
    with Replay(ds, later) as replay:
        again = collect(Replayed(replay), limit=min(case.limit, 200) - 1)

    assert difference(expected, first + rest) is None
    assert difference(rest, again) is None


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_replay_gives_what_an_iterator_gives_in_any_case(case: Case) -> None:
    test_a_replay_gives_what_an_iterator_gives(case)
