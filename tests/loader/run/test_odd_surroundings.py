"""Iterators where descriptors are closed, memory is short, or that run for very long."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tundish import Dataset
from tundish.loader.run.coordinating import coordinator as coordinator_module
from tundish.loader.run.coordinating.memory import Memory

WITHOUT_STREAMS = """
    import os, sys
    import tundish as td

    told = os.dup(1)
    for fd in (0, 1, 2):
        os.close(fd)
    log = open(os.devnull, "w")  # has the descriptor of an input now
    options = td.Options(start=sys.argv[1])
    ds = td.Dataset.range(5).map(lambda x: x + 1).with_options(options)
    os.write(told, repr([int(x) for x in ds.iterator(workers=2)]).encode())
"""


@pytest.mark.parametrize("start", ["zygote", "fork"])
def test_standard_descriptors_may_be_closed(start: str) -> None:
    code = textwrap.dedent(WITHOUT_STREAMS)
    done = subprocess.run(
        [sys.executable, "-c", code, start], stdout=subprocess.PIPE, check=True, timeout=60
    )
    assert done.stdout == b"[1, 2, 3, 4, 5]"


def test_the_budget_is_no_more_than_there_is_room_for() -> None:
    class Arena:
        capacity = 1 << 20

    class Ring:
        arena = Arena()
        used_bytes = 0

    with patch("tundish.loader.run.coordinating.memory.shared_ring", lambda _: Ring()):
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
