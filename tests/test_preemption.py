"""A signal saves the state between two steps and then takes effect, in real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish.prefetching import Prefetcher

TRAINING = """
import os, signal, sys, time
import tundish as td

def slow(x):
    if x >= {stuck}:
        time.sleep(60)
    return x

file, workers, log = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
ds = td.Dataset.range(40).shuffle(8, seed=1).map(slow)
with ds.iterator(workers=workers) as it:
    it.restore(file, missing_ok=True)
    saved = lambda state: print("model", state["position"] is not None, file=log)
    with td.save_on_signal(it, file, save=saved) as elements:
        print("ready", flush=True)
        for x in elements:
            print(int(x), file=log)
            print("ready", flush=True)
            time.sleep({step})
    print("end", file=log)
"""
ORDER = [int(x) for x in td.Dataset.range(40).shuffle(8, seed=1).iterator(workers=0)]


@contextlib.contextmanager
def training(
    folder: Path, workers: int, *, step: float, stuck: int = 100
) -> Iterator[subprocess.Popen[str]]:
    """A training process in a process group of its own, as a job is."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING.format(step=step, stuck=stuck)), encoding="utf-8")
    arguments = [str(folder / "data.json"), str(workers), str(folder / "log")]
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def steps(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline() == "ready\n"


def log_of(folder: Path) -> list[str]:
    return (folder / "log").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("everyone", [False, True], ids=["the process", "its workers too"])
def test_a_terminated_job_goes_on_with_exactly_the_rest(
    tmp_path: Path, workers: int, everyone: bool
) -> None:
    with training(tmp_path, workers, step=0.2) as process:
        steps(process, 4)
        if everyone:  # Slurm signals each process of a job step
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
    first = log_of(tmp_path)
    assert first[-1] == "model True"
    assert "end" not in first
    with training(tmp_path, 2 - workers, step=0.0) as process:
        assert process.wait(60) == 0
        assert process.stdout is not None
        process.stdout.read()

    seen = [int(line) for line in log_of(tmp_path) if line.isdigit()]
    assert seen == ORDER


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "stuck"), [(0, 20), (1, 0)])
def test_a_job_that_waits_for_data_saves_at_once(tmp_path: Path, workers: int, stuck: int) -> None:
    before = next(k for k, x in enumerate(ORDER) if x >= stuck)
    with training(tmp_path, workers, step=0.0, stuck=stuck) as process:
        steps(process, 1 + before)
        time.sleep(0.2)  # it waits for the next one, or soon will
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert time.monotonic() - asked < 5
    state = json.loads((tmp_path / "data.json").read_text(encoding="utf-8"))
    with td.Dataset.range(40).shuffle(8, seed=1).map(same_name()).iterator(workers=0) as it:
        it.load_state_dict({**state, "plan": it.state_dict()["plan"]})
        assert [int(x) for x in it] == ORDER[before:]


def same_name() -> Any:
    def slow(x: int) -> int:
        return x

    return slow


class Source:
    """Elements with a state; calls what it is told to while it is asked for the next."""

    def __init__(self, n: int = 6) -> None:
        self.n, self.at = n, 0
        self.during: dict[int, Any] = {}

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> int:
        self.during.pop(self.at, bool)()
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        self.during.pop(-self.at, bool)()
        return self.at - 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


@pytest.fixture
def told() -> Iterator[list[int]]:
    """A handler that was there before, and what it was told."""
    found: list[int] = []
    kinds = (signal.SIGTERM, signal.SIGUSR1)
    previous = {kind: signal.signal(kind, lambda n, _: found.append(n)) for kind in kinds}
    yield found
    for kind, handler in previous.items():
        signal.signal(kind, handler)


def term() -> None:
    signal.raise_signal(signal.SIGTERM)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_previous_handler_is_called_after_saving(tmp_path: Path, told: list[int]) -> None:
    path, order = tmp_path / "data.json", []
    mine = signal.getsignal(signal.SIGTERM)

    def save(state: dict[str, Any]) -> None:
        order.append(("save", state, path.exists(), list(told)))

    with td.save_on_signal(Source(), path, save=save) as elements:
        for x in elements:
            order.append(x)
            if x == 2:
                term()
    assert order == [0, 1, 2, ("save", {"at": 3}, False, []), 3, 4, 5]
    assert told == [signal.SIGTERM]
    assert read(path) == {"at": 3}
    assert signal.getsignal(signal.SIGTERM) is mine


@pytest.mark.parametrize("when", [3, -4], ids=["before the element is taken", "after"])
def test_a_signal_during_the_wait_loses_nothing(when: int, tmp_path: Path, told: list[int]) -> None:
    source = Source()
    source.during[when] = term
    with td.save_on_signal(source, tmp_path / "data.json") as elements:
        assert list(elements) == [0, 1, 2, 3, 4, 5]
    assert read(tmp_path / "data.json") == {"at": 3}
    assert told == [signal.SIGTERM]


def test_a_signal_when_the_element_is_all_but_there(
    tmp_path: Path, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop never got it, whatever the iterator thinks."""
    complete = Prefetcher.__next__
    signals: list[Any] = [bool, bool, term]

    def late(self: Prefetcher) -> Any:
        found = complete(self)
        (signals.pop(0) if signals else bool)()
        return found

    monkeypatch.setattr(Prefetcher, "__next__", late)
    with td.save_on_signal(Source(), tmp_path / "data.json") as elements:
        assert list(elements) == [0, 1, 2, 3, 4, 5]
    assert read(tmp_path / "data.json") == {"at": 2}
    assert told == [signal.SIGTERM]


def test_a_signal_in_the_last_step_is_acted_upon_when_the_block_ends(
    tmp_path: Path, told: list[int]
) -> None:
    with td.save_on_signal(Source(), tmp_path / "data.json") as elements:
        for x in elements:
            if x == 1:
                term()
                break
        assert not told
    assert told == [signal.SIGTERM]
    assert read(tmp_path / "data.json") == {"at": 2}


def test_a_signal_in_a_step_that_fails_still_takes_effect(tmp_path: Path, told: list[int]) -> None:
    """A program that catches the error would otherwise run on until it is killed."""

    def step(_: int) -> None:
        term()
        raise ValueError("a step")

    with (
        pytest.raises(ValueError, match="a step"),
        td.save_on_signal(Source(), tmp_path / "data.json") as elements,
    ):
        step(next(elements))
    assert told == [signal.SIGTERM]
    assert not list(tmp_path.iterdir())


FAILING = """
import signal, sys
import tundish as td

def save(state):
    raise OSError("the disk is full")

with td.Dataset.range(4).iterator() as it, td.save_on_signal(it, sys.argv[1], save=save) as elements:
    for x in elements:
        signal.raise_signal(signal.SIGTERM)
        {step}
"""


@pytest.mark.parametrize(
    ("step", "code", "error"),
    [
        ("pass", 1, "OSError: the disk is full"),
        ("raise ValueError('a step')", -signal.SIGTERM, "ValueError: a step"),
        ("sys.exit(3)", 3, ""),
    ],
    ids=["saving", "a step", "exit"],
)
def test_an_error_after_a_signal_is_seen(tmp_path: Path, step: str, code: int, error: str) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(step=step), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data.json")],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == code
    assert error in done.stderr
    assert not (tmp_path / "data.json").exists()


def test_without_a_signal_nothing_is_written(tmp_path: Path, told: list[int]) -> None:
    with td.save_on_signal(Source(), tmp_path / "data.json") as elements:
        assert len(list(elements)) == 6
    assert not list(tmp_path.iterdir())
    assert not told


def test_several_signals(tmp_path: Path, told: list[int]) -> None:
    kinds = (signal.SIGTERM, signal.SIGUSR1)
    with td.save_on_signal(Source(), tmp_path / "data.json", kinds) as elements:
        for x in elements:
            if x == 1:
                signal.raise_signal(signal.SIGUSR1)
            if x == 3:
                term()
    assert told == [signal.SIGUSR1, signal.SIGTERM]
    assert read(tmp_path / "data.json") == {"at": 4}


def test_processes_agree_on_the_step(tmp_path: Path, told: list[int]) -> None:
    """Another one was told; and what this one is told waits for the others."""
    asked: list[bool] = []

    def agree(mine: bool) -> bool:
        asked.append(mine)
        return len(asked) == 5

    source = Source()
    source.during[1] = term
    with td.save_on_signal(source, tmp_path / "data.json", agree=agree) as elements:
        assert list(elements) == [0, 1, 2, 3, 4, 5]
    assert asked == [False, False, True, True, True, False, False]
    assert read(tmp_path / "data.json") == {"at": 4}
    assert told == [signal.SIGTERM]


class Epochs:
    """An iterable with the state on itself, as a DataLoader."""

    def __init__(self) -> None:
        self.epoch, self.source = -1, Source(3)

    def __iter__(self) -> Iterator[int]:
        self.epoch, self.source = self.epoch + 1, Source(3)
        return (x for x in self.source)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "at": self.source.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError


def test_a_loader_over_several_epochs(tmp_path: Path, told: list[int]) -> None:
    seen = []
    with td.save_on_signal(Epochs(), tmp_path / "data.json") as batches:
        for epoch in range(2):
            for x in batches:
                seen.append(x)
                if (epoch, x) == (1, 1):
                    term()
    assert seen == [0, 1, 2, 0, 1, 2]
    assert read(tmp_path / "data.json") == {"epoch": 1, "at": 2}


def test_what_cannot_be_saved_is_said_at_once(tmp_path: Path) -> None:
    class Odd(Source):
        def state_dict(self) -> dict[str, Any]:
            return {"at": object()}

    with pytest.raises(TypeError, match="not JSON serializable"):
        td.save_on_signal(Odd(), tmp_path / "data.json")
    with pytest.raises(TypeError, match="no state_dict"):
        td.save_on_signal([1, 2], tmp_path / "data.json")


def test_only_the_main_thread_may_have_it(tmp_path: Path) -> None:
    found: list[str] = []

    def other() -> None:
        try:
            td.save_on_signal(Source(), tmp_path / "data.json")
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [
        "save_on_signal is for the main thread: only that one handles signals",
    ]
