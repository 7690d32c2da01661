"""Ctrl-C and other signals while workers are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

import tundish as td

BOUND_S = 30


INTERRUPTED = """
    import os, signal, threading, time
    from tundish.loader.run.starting.critical import uninterrupted

    inside, count, until = [False], 0, time.monotonic() + 2

    def interrupt(*_):
        if inside[0]:
            inside[0] = False  # one a round
            raise KeyboardInterrupt

    def send():
        while True:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.0002)

    signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=send, daemon=True).start()
    while time.monotonic() < until:
        try:
            inside[0] = True
            with uninterrupted():
                pass
        except KeyboardInterrupt:
            count += 1
        inside[0] = False
        if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            os._exit(1)
        if signal.getsignal(signal.SIGINT) is not interrupt:
            os._exit(2)
    os._exit(0 if count > 10 else 3)
"""


def test_ctrl_c_is_never_left_held_back() -> None:
    """Ctrl-C comes again and again, also as the block begins and ends."""
    assert run(INTERRUPTED) == 0


def run(script: str) -> int:
    """Return the exit status of a script."""
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=BOUND_S).returncode


class Slow:
    """Takes long to be pickled, and is interrupted then."""

    def __reduce__(self) -> Any:
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(BOUND_S)
        return Slow, ()

    def __call__(self, x: Any) -> Any:
        return x


def test_ctrl_c_ends_pickling() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        td.Dataset.range(4).map(Slow()).iterator(workers=1)
    assert time.monotonic() - began < BOUND_S / 2


class Table:
    """An object that reads a dataset with workers as it is pickled."""

    values: Any = None

    def __getstate__(self) -> Any:
        if self.values is None:
            self.values = [int(x) for x in td.Dataset.range(5).map(square).iterator(workers=1)]
        return self.__dict__

    def __call__(self, x: Any) -> Any:
        return self.values[int(x)]


def square(x: Any) -> Any:
    return x * x


def test_a_plan_may_be_packed_while_another_is() -> None:
    assert list(td.Dataset.range(5).map(Table()).iterator(workers=1)) == [0, 1, 4, 9, 16]


FORKS = """
    import os, sys, threading, time
    import tundish as td

    class Slow:
        def __reduce__(self):
            packing.set()
            done.wait(20)
            return Slow, ()
        def __call__(self, x):
            return x

    packing, done = threading.Event(), threading.Event()
    def read():
        assert list(td.Dataset.range(3).map(Slow()).iterator(workers=1)) == [0, 1, 2]
    thread = threading.Thread(target=read)
    thread.start()
    packing.wait()
    child = os.fork()
    if not child:
        found = list(td.Dataset.range(3).map(lambda x: x + 1).iterator(workers=1))
        os._exit(found != [1, 2, 3])
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_packs_plans_whatever_its_parent_was_about() -> None:
    assert run(FORKS) == 0
