"""interleave by tf.data's rules, in process and in workers; flat_map in workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loader.run.interleaved import Lines, Meeting, Opened, Poisoned

import tundish as td
from tundish import Dataset, Options
from tundish.errors import StalledError, WorkerDiedError
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

WORKERS = (0, 2)


def drained(ds: Dataset, workers: int) -> list[Any]:
    """The elements, with the types of errors in their places."""
    found: list[Any] = []
    with ds.iterator(workers=workers) as it:
        while True:
            try:
                found.append(next(it).item())
            except StopIteration:
                return found
            except Exception as error:  # noqa: BLE001 - what it is, is looked at
                found.append(type(error))


def repeated(x: Any) -> Dataset:
    return Dataset.from_tensors(x).repeat(int(x))


def six(x: Any) -> Dataset:
    return Dataset.from_tensors(x).repeat(6)


def tens(x: Any) -> Dataset:
    return Dataset.range(10 * x, 10 * x + x + 1)


def inverse(x: Any) -> float:
    return 1 / int(x)


def one(x: Any) -> Dataset:
    return Dataset.from_tensors(x)


def three_inverses(x: Any) -> Dataset:
    return Dataset.from_tensor_slices([1, 0, 2]).map(inverse)


CASES: tuple[tuple[Any, Any, int, int, Any], ...] = (
    (range(1, 6), six, 2, 4, "111122221122333344443344555555"),
    ([4, 5, 6] * 2, repeated, 2, 1, "454545455664646464656565656566"),
    ([4, 0, 6] * 2, repeated, 2, 1, "44646466464644666666"),
    ([4, 0, 6] * 2, repeated, 2, 3, "44446664446664666666"),
    ([0, 0, 0], repeated, 2, 3, ""),
    ([0, 1, 2], tens, 2, 10, [0, 10, 11, 20, 21, 22]),
)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("case", CASES)
def test_slots_are_tf_data_s(case: tuple[Any, Any, int, int, Any], workers: int) -> None:
    inputs, function, cycle, block, expected = case
    ds = Dataset.from_tensor_slices(np.array(inputs)).interleave(function, cycle, block)

    assert drained(ds, workers) == [int(x) for x in expected]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_input_that_is_an_error_does_not_move_the_slots(workers: int) -> None:
    ds = Dataset.from_tensor_slices([1, 0, 2, 0, 4]).map(inverse).interleave(one, 2, 3)

    assert drained(ds, workers) == [1.0, ZeroDivisionError, 0.5, ZeroDivisionError, 0.25]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_element_that_is_an_error_does_not_count_towards_the_block(workers: int) -> None:
    ds = Dataset.range(1, 3).interleave(three_inverses, 2)

    assert drained(ds, workers) == [1, 1, ZeroDivisionError, 0.5, ZeroDivisionError, 0.5]


def test_in_process_a_dataset_is_made_when_its_slot_s_turn_comes(tmp_path: Path) -> None:
    ds = Dataset.range(5).interleave(Opened(str(tmp_path)), 3)
    opened = []
    with ds.iterator(workers=0) as it:
        for _ in range(4):
            next(it)
            opened.append(len(list(tmp_path.iterdir())))

    assert opened == [1, 2, 3, 3]


@pytest.mark.parametrize("workers", WORKERS)
def test_its_function_must_return_a_dataset(workers: int) -> None:
    with (
        Dataset.range(1).interleave(abs).iterator(workers=workers) as it,
        pytest.raises(TypeError, match="interleave's function must return a Dataset, not int64"),
    ):
        next(it)


# -- files that are read in workers


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for k, count in enumerate((3, 0, 7, 1, 5, 4)):
        path = tmp_path / f"{k}.txt"
        path.write_text("".join(f"{k}.{n}\n" for n in range(count)))
        paths.append(str(path))
    return paths


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def of_lines(how: str, files: list[str], pids: Path, pause_s: float = 0.0) -> Dataset:
    ds, lines = Dataset.from_tensor_slices(files), Lines(str(pids), pause_s)
    return ds.flat_map(lines) if how == "flat_map" else ds.interleave(lines, 3, 2)


LINES = {
    "flat_map": "0.0 0.1 0.2 2.0 2.1 2.2 2.3 2.4 2.5 2.6 3.0 4.0 4.1 4.2 4.3 4.4 5.0 5.1 5.2 5.3",
    "interleave": "0.0 0.1 2.0 2.1 0.2 3.0 2.2 2.3 4.0 4.1 5.0 5.1 2.4 2.5 4.2 4.3 5.2 5.3 2.6 4.4",
}


@pytest.mark.parametrize("how", LINES)
def test_files_are_read_in_workers(how: str, files: list[str], pids: Path) -> None:
    with of_lines(how, files, pids).iterator(workers=2) as it:
        found = list(it)
    readers = {int(path.name) for path in pids.iterdir()}

    assert found == LINES[how].split()
    assert os.getpid() not in readers
    assert len(readers) == 2


@pytest.mark.parametrize("how", LINES)
def test_files_are_under_the_laws(how: str, files: list[str], pids: Path) -> None:
    ds = of_lines(how, files, pids)
    assert_workers_do_not_show(ds, (0, 1, 3))
    assert_resumes_anywhere(ds, (2, 0, 3))


@pytest.mark.parametrize("how", LINES)
def test_readers_may_be_killed(how: str, files: list[str], pids: Path) -> None:
    assert_survives_kills(of_lines(how, files, pids, 0.005), kills=4)


def test_a_state_names_each_slot_s_input_and_position(files: list[str], pids: Path) -> None:
    with of_lines("interleave", files, pids).iterator(workers=2) as it:
        for _ in range(7):
            next(it)
        position = it.state_dict()["position"]

    assert position == {
        "slots": [None, None, [2, 3]],
        "cursor": 2,
        "block": 1,
        "ended": False,
        "up": 4,
    }


def test_slots_are_read_at_the_same_time(tmp_path: Path) -> None:
    ds = Dataset.range(8).interleave(Meeting(str(tmp_path)), 8)
    with ds.iterator(workers=2) as it:
        assert any(list(it)), "somebody else was reading too"


# -- poison


@pytest.mark.parametrize("how", ["flat_map", "interleave"])
@pytest.mark.parametrize(
    ("poison", "lost", "told"),
    [
        ("opened", {20, 21, 22, 23}, ["the opening of the dataset made of 2"]),
        ("mapped", {21}, ["element 1 of the dataset made of 2"]),
        (
            "read",
            {21, 22, 23},
            ["element 1 of the dataset made of 2", "the opening of the dataset made of 2"],
        ),
    ],
)
def test_a_dataset_that_kills_is_named_and_passed(
    how: str, poison: str, lost: set[int], told: list[str]
) -> None:
    inputs, function = Dataset.range(5), Poisoned(poison)
    ds = inputs.flat_map(function) if how == "flat_map" else inputs.interleave(function, 2)
    found, errors = [], []
    with ds.iterator(workers=2) as it:
        while True:
            try:
                found.append(int(next(it)))
            except StopIteration:
                break
            except WorkerDiedError as error:
                errors.append(error.element)

    assert sorted(found) == sorted({10 * x + k for x in range(5) for k in range(4)} - lost)
    assert [error.partition(" in ")[0] for error in errors] == told


def test_a_dataset_that_hangs_is_given_up_at_the_deadline() -> None:
    ds = Dataset.range(4).interleave(Poisoned("hangs"), 2).with_options(Options(deadline=0.3))
    found, errors = [], 0
    with ds.iterator(workers=2) as it:
        while True:
            try:
                found.append(int(next(it)))
            except StopIteration:
                break
            except StalledError:
                errors += 1

    assert sorted(found) == [*range(4), *range(10, 14), 20, *range(30, 34)]
    assert errors == 2, "the element, and going on behind it"


def test_a_killed_reader_s_streams_go_on_elsewhere(files: list[str], pids: Path) -> None:
    with of_lines("interleave", files, pids, 0.002).iterator(workers=1) as it:
        found = [next(it) for _ in range(5)]
        os.kill(it.worker_pids()[0], signal.SIGKILL)
        found += it

    assert found == LINES["interleave"].split()


# -- arguments, counts and states ------------------------------------------------------------------


make = Dataset.range


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"cycle_length": 0}, ValueError, "cycle_length must be at least 1.*not 0"),
        ({"cycle_length": -2}, ValueError, "cycle_length must be at least 1.*not -2"),
        ({"cycle_length": 2.0}, TypeError, "cycle_length must be an int, not float"),
        ({"block_length": 0}, ValueError, "block_length must be at least 1, not 0"),
        ({"block_length": "1"}, TypeError, "block_length must be an int, not str"),
        ({"num_parallel_calls": 0}, ValueError, "num_parallel_calls must be at least 1.*not 0"),
        (
            {"cycle_length": 2, "num_parallel_calls": 3},
            ValueError,
            r"num_parallel_calls must be at most cycle_length \(2\), not 3",
        ),
    ],
)
def test_arguments_are_checked_when_it_is_built(
    given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        Dataset.range(3).interleave(make, **given)


def test_the_function_must_be_callable() -> None:
    with pytest.raises(TypeError, match="map_func must be callable, not int"):
        Dataset.range(3).interleave(3)  # type: ignore[arg-type]  # that is the test


def test_its_cardinality_is_unknown() -> None:
    assert Dataset.range(3).interleave(make).cardinality() == td.UNKNOWN_CARDINALITY
    assert Dataset.range(3).repeat().interleave(make).cardinality() == td.UNKNOWN_CARDINALITY


@pytest.mark.parametrize("given", [{}, {"cycle_length": None}, {"cycle_length": td.AUTOTUNE}])
def test_the_default_does_not_depend_on_the_machine(given: dict[str, Any]) -> None:
    ds = Dataset.range(20).interleave(lambda x: Dataset.from_tensors(x).repeat(2), **given)

    assert [int(x) for x in ds] == [*range(16)] * 2 + [16, 17, 18, 19] * 2


def test_how_fast_is_not_what() -> None:
    """A state may be continued with another number of workers."""
    one = Dataset.range(9).interleave(make, 3)
    other = Dataset.range(9).interleave(make, 3, num_parallel_calls=2, deterministic=False)
    with one.iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
    with other.iterator(workers=0) as it:
        it.load_state_dict(state)
        rest = [int(x) for x in it]

    assert [int(x) for x in one][1:] == rest
