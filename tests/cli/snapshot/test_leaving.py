"""Told to end: the first signal is noted, waiting is cut short, and in the end the process goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tundish.cli.snapshot import pulling
from tundish.cli.snapshot.pulling import Leaving, OutOfPatience


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PATIENCE_S", 0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_is_cut_short(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    with Leaving() as told:
        signal.raise_signal(number)  # not while it waits: nothing is raised
        assert told.signal == number
        with pytest.raises(OutOfPatience), told.waiting():
            time.sleep(60)
    assert f"{number.name}: committing" in capfd.readouterr().err


def test_what_is_not_waiting_is_not_interrupted() -> None:
    with Leaving() as told:
        signal.raise_signal(signal.SIGTERM)
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        with told.waiting():
            pass
    assert told.signal == signal.SIGTERM


def test_while_workers_are_started_it_waits() -> None:
    """Workers are started with Ctrl-C held back: nothing may be raised in between."""
    started = []

    def wait() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            time.sleep(0.1)
            started.append("all of them")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        time.sleep(60)

    with Leaving() as told:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(OutOfPatience), told.waiting():
            wait()
    assert started


def test_handlers_are_put_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    with Leaving():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


BUSY = """
import hashlib
from tundish.cli.snapshot import pulling

pulling.LIMIT_S = 0.2
with pulling.Leaving():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", (1 << 31) - 1)  # no handler runs in here
"""


def test_a_long_call_into_c_is_left_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
