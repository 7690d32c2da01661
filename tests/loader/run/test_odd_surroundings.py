"""Iterators where descriptors are closed, memory is short, or that run for very long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.run.coordinating import coordinator as coordinator_module
from tundish.loader.run.coordinating.memory import Memory

WITHOUT_STREAMS = """
    import os, sys

    for fd in (0, 1):
        os.close(fd)
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)  # 0; the library has the next ones
    os.close(2)

    import tundish as td

    for start in ("zygote", "spawn", "fork"):
        ds = td.Dataset.range(2).map(int).with_options(td.Options(workers=2, start=start))
        os.write(file, repr([int(x) for x in ds]).encode())
"""


def test_standard_descriptors_may_be_closed(tmp_path: Path) -> None:
    file = tmp_path / "found"
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT_STREAMS), str(file)]
    subprocess.run(command, check=False, timeout=60)
    assert file.read_text() == "[0, 1]" * 3


def test_the_budget_is_no_more_than_there_is_room_for() -> None:
    class Arena:
        def bounded(self, nbytes: int) -> int:
            return min(nbytes, 1 << 20)

    class Ring:
        arena = Arena()
        used_bytes = 0

    with patch("tundish.loader.run.coordinating.memory.shared_ring", Ring):
        assert Memory(1 << 30).budget == 1 << 20
        assert Memory(1 << 10).budget == 1 << 10


def test_blocks_are_counted_anew_beyond_32_bits() -> None:
    class Late(coordinator_module.Coordinator):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._next_block = 2**32 - 4

    ds = Dataset.range(4000).map(np.negative).batch(10)
    with patch("tundish.loader.run.parallelengine.Coordinator", Late):
        found = np.concatenate(list(ds.iterator(workers=2)))
    np.testing.assert_array_equal(found, -np.arange(4000))


def test_threads_are_told_apart() -> None:
    def name(_: Any) -> str:
        import threading
        import time

        time.sleep(0.01)
        return threading.current_thread().name

    names = set(Dataset.range(30).map(name).iterator(workers=2, executor="thread"))
    assert names == {"tundish-worker-0", "tundish-worker-1"}


def test_a_worker_in_place_of_a_killed_one_has_its_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def around(_: Any) -> Any:
        time.sleep(0.002)
        return os.getcwd(), os.environ["TUNDISH_TEST"], sys.argv[-1]  # noqa: PTH109 - quick

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNDISH_TEST", "first")
    monkeypatch.setattr(sys, "argv", ["first"])
    with Dataset.range(300).map(around).iterator(workers=2) as it:
        found = {next(it)}
        monkeypatch.chdir("/")
        monkeypatch.setenv("TUNDISH_TEST", "second")
        monkeypatch.setattr(sys, "argv", ["second"])
        os.kill(it.worker_pids()[0], signal.SIGKILL)
        found.update(it)
        assert it.stats.restarts
    assert found == {(str(tmp_path), "first", "first")}
