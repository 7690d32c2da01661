"""Ctrl-C at any line of a call: what was kept until then is right, and so is what comes after it."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.loader.run.pool.pool import Pool
from tundish.loader.run.starting.critical import uninterrupted
from tundish.loader.run.storing.recorder import Recorder

COUNT = 14


def numbers(x: np.int64) -> dict[str, Any]:
    return {"a": np.full((3,), x), "b": x * 2}


def make(folder: Path) -> td.Dataset:
    return td.Dataset.range(COUNT).map(numbers).snapshot(folder, batch_bytes=70, shard_bytes=300)


class Cut:
    """A tracer that interrupts at the k-th line that is run in these files."""

    def __init__(self, k: int, files: tuple[str, ...]) -> None:
        self.k, self.files = k, files
        self.lines, self.cut = 0, False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        del event, arg
        return self.line if frame.f_code.co_filename.endswith(self.files) else None

    def line(self, _: FrameType, event: str, arg: Any) -> Any:
        del arg
        if event == "line":
            self.lines += 1
            if self.lines == self.k:
                self.cut = True
                raise KeyboardInterrupt
        return self.line


RECORDING = ("storing/recorded.py", "storing/recorder.py", "storing/chunk.py", "storing/orders.py")


def cut_session(folder: Path, cut: Cut, *, go_on: bool, workers: int = 0) -> list[int]:
    """Return what a session gives that is interrupted once."""
    got: list[int] = []
    traced = sys.gettrace()
    with make(folder).iterator(workers=workers) as it:
        while True:
            sys.settrace(cut)
            try:
                element = next(it, None)
            except KeyboardInterrupt:
                if go_on:
                    continue
                break
            finally:
                sys.settrace(traced)
            if element is None:
                break
            got.append(int(element["b"]) // 2)
    return got


def check_cuts(folder: Path, cuts: list[int]) -> None:
    for k in cuts:
        for go_on in (False, True):
            path = folder / f"{k}-{go_on}"
            cut = Cut(k, RECORDING)
            got = cut_session(path, cut, go_on=go_on)
            assert cut.cut
            assert got == list(range(COUNT if go_on else len(got))), f"line {k}"
            again = [int(e["b"]) // 2 for e in make(path)]
            assert again == list(range(COUNT)), f"behind line {k}"
            assert [int(e["b"]) // 2 for e in make(path)] == again


def lines_of_a_session(folder: Path) -> int:
    cut = Cut(0, RECORDING)
    cut_session(folder / "all", cut, go_on=True)
    return cut.lines


def test_lines(tmp_path: Path) -> None:
    total = lines_of_a_session(tmp_path)
    inside = random.Random(5).randrange(total // 4)  # of what is done for one element, every line
    check_cuts(tmp_path, list(range(inside, inside + 25)))


@pytest.mark.slow
@pytest.mark.parametrize("every", [41, pytest.param(17, marks=pytest.mark.thorough)])
def test_lines_all_over(tmp_path: Path, every: int) -> None:
    check_cuts(tmp_path, list(range(1, lines_of_a_session(tmp_path) + 1, every)))


@pytest.mark.parametrize("step", ["_write_full", "_order"])
def test_between_an_element_and_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    done, calls = getattr(Recorder, step), 0

    def interrupted(recorder: Recorder, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return done(recorder, **more)

    monkeypatch.setattr(Recorder, step, interrupted)
    it = make(tmp_path).iterator()
    with pytest.raises(KeyboardInterrupt):
        list(it)
    it.close()
    assert [int(e["b"]) // 2 for e in make(tmp_path)] == list(range(COUNT))
    assert [int(e["b"]) // 2 for e in make(tmp_path)] == list(range(COUNT))


@pytest.mark.parametrize("call", [3, 6, 9])
@pytest.mark.parametrize("go_on", [False, True])
def test_while_answers_are_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, *, go_on: bool
) -> None:
    answered, calls = Pool._take_in, 0

    def interrupted(pool: Pool, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        answered(pool, *args)

    monkeypatch.setattr(Pool, "_take_in", interrupted)
    got: list[int] = []
    it = make(tmp_path).iterator(workers=1)
    while True:
        try:
            element = next(it, None)
        except KeyboardInterrupt:
            if not go_on:
                break
            continue
        if element is None:
            break
        got.append(int(element["b"]) // 2)
    it.close()
    assert got == list(range(COUNT if go_on else len(got)))
    assert [int(e["b"]) // 2 for e in make(tmp_path)] == list(range(COUNT))


def test_interrupts_are_held_back_though_another_thread_gets_them() -> None:
    over, held = threading.Event(), False
    waiting = threading.Thread(target=over.wait)
    waiting.start()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno())
    assert waiting.ident is not None
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012 - it comes at the end
            signal.pthread_kill(waiting.ident, signal.SIGINT)
            ours.recv(1)  # it has come
            for _ in range(100):  # Python looks for signals in each round
                pass
            held = True
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()
        over.set()
        waiting.join()
    assert held
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def refused_beside(ds: td.Dataset, folder: Path) -> td.Dataset:
    return td.Dataset.zip((ds, td.Dataset.range(3).snapshot(folder / "none", mode="read")))


def holding(x: Any, lock: Any) -> Any:
    del lock
    return x


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (refused_beside, td.errors.IncompleteSnapshotError),
        (lambda ds, _: ds.shuffle(None), td.errors.SpecError),
        (
            lambda ds, _: ds.map(partial(holding, lock=threading.Lock()), num_parallel_calls=2),
            TypeError,
        ),
    ],
    ids=["another is not there", "no random access yet", "not to be sent"],
)
def test_an_iterator_that_could_not_be_made_keeps_nobody_from_writing(
    tmp_path: Path, broken: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        broken(make(tmp_path / "s"), tmp_path).iterator()
    assert not list(tmp_path.rglob("lease*"))
    with make(tmp_path / "s").iterator() as it:
        assert it.stats.snapshots[0].doing == "write"


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")

    def named(x: Any) -> Any:
        return x, name

    ds = td.Dataset.range(3).map(named).snapshot(tmp_path)
    assert [x[1] for x in ds] == [name] * 3
    assert [x[1] for x in ds] == [name] * 3
