"""Forks while other threads hold locks: ``python -m tundish.testing.forks --runs 200``.

Threads log through a slow handler, allocate with numpy and Arrow, print, import, read through iterators of
their own and take a lock of the user's; meanwhile iterators are made whose workers are forked from this
process, and whose functions do the same. Each element has to be right. Only where the function takes
the user's lock it may be a `StalledError`, and is one where the lock was held for certain. A run that does not end
shows every thread's stack, and ends the program.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import io
import logging
import os
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tundish.errors import StalledError
from tundish.loader.dataloader.dataloader import DataLoader
from tundish.loader.dataset import Dataset
from tundish.loader.plan.options import Options

__all__ = ["main", "run"]

LIMIT_S = 120.0
"""A run that takes longer hangs."""

ELEMENTS = 4
_HELD_S = 0.002
_MODULES = 200

_log = logging.getLogger("tundish.testing.forks")
_users = threading.Lock()


class _Slow(logging.StreamHandler[io.StringIO]):
    """A logging handler that is nearly always busy, and so holds its lock."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        time.sleep(_HELD_S)


# -- what functions do ----------------------------------------------------------------------------


def logs(x: Any) -> Any:
    """Log, through a handler that another thread was in."""
    _log.warning("%s", x)
    return x


def allocates(x: Any) -> Any:
    """Take memory of the C library, of numpy and of Arrow, and give it back."""
    arrays = [np.full(n, x, np.int64) for n in (3, 300, 30_000, 300_000)]
    column = pa.array(arrays[2]).cast(pa.int32()).cast(pa.int64())
    return column[7].as_py() + arrays[3][5] - bytearray(1 << 20)[0] - x


def prints(x: Any) -> Any:
    """Print, to a stream that another thread was in."""
    print(x)  # noqa: T201 - it is about that
    return x


def locks(x: Any) -> Any:
    """Take a lock of the user's."""
    with _users:
        return x


WAYS: tuple[Callable[[Any], Any], ...] = (logs, allocates, prints, locks)


class Called:
    """A map-style dataset of a function's results."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __len__(self) -> int:
        return ELEMENTS

    def __getitem__(self, index: int) -> Any:
        return self._function(index)


# -- what other threads do ------------------------------------------------------------------------


def _takes() -> None:
    with _users:
        time.sleep(_HELD_S)


def _reads() -> None:
    with iter(Dataset.range(100).map(abs).batch(7)) as iterator:
        for _ in iterator:
            pass


class _Imports:
    """A thread that imports modules that have not been imported."""

    def __init__(self, folder: Path) -> None:
        sys.path.append(str(folder))
        self._names = [f"forked_{k}" for k in range(_MODULES)]
        for name in self._names:
            (folder / f"{name}.py").write_text("x = sum(range(100_000))\n")
        importlib.invalidate_caches()

    def __call__(self) -> None:
        for name in self._names:
            importlib.import_module(name)
            del sys.modules[name]
            time.sleep(_HELD_S)


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Run threads that hold locks, each of another kind, during the block."""
    allocates(
        0
    )  # what it imports is here before there are threads: a lock of that would be a user's
    over = threading.Event()
    handler = _Slow(io.StringIO())
    _log.addHandler(handler)
    _log.propagate = False

    def repeat(do: Callable[[], Any]) -> None:
        while not over.is_set():
            do()

    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "logs": lambda: logs(0),
            "allocates": lambda: allocates(0),
            "prints": lambda: prints("."),
            "takes": _takes,
            "reads": _reads,
            "imports": _Imports(Path(folder)),
        }
        threads = [
            threading.Thread(target=repeat, args=(do,), name=name) for name, do in kinds.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
            _log.removeHandler(handler)
            sys.path.remove(folder)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Discard what is written to stdout during the block."""
    sys.stdout.flush()
    stdout = os.dup(1)
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - it is no file
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


# -- runs -----------------------------------------------------------------------------------------


def run(number: int) -> Counter[str]:
    """Read one iterator to its end, and count correct and stalled elements.

    Raises
    ------
    AssertionError
        An element is wrong, or stalled without reason.
    """
    function = WAYS[number % len(WAYS)]
    held = number % (3 * len(WAYS)) == len(WAYS) - 1  # certainly, as the fork is made
    source: Any = (
        Dataset.range(ELEMENTS).map(function).with_options(Options(workers=2, start="fork"))
    )
    if number // len(WAYS) % 2:
        source = DataLoader(Called(function), None, num_workers=2, multiprocessing_context="fork")
    with _users if held else contextlib.nullcontext():
        iterator = iter(source)
    found: Counter[str] = Counter()
    with contextlib.closing(iterator):
        for k in range(ELEMENTS):
            try:
                value = next(iterator)
            except StalledError:
                assert function is locks, (
                    f"run {number}: {function.__name__} stalled at element {k}"
                )
                found["stalled"] += 1
            else:
                assert not held, f"run {number}: element {k} came past a lock that was held"
                assert value == k, f"run {number}: element {k} is {value}"
                found["right"] += 1
        assert next(iterator, None) is None
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    began = time.perf_counter()
    with _silent(), busy(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that there are threads
        for number in range(asked.runs):
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            total += run(number)
        faulthandler.cancel_dump_traceback_later()
    took = time.perf_counter() - began
    sys.stdout.write(
        f"{asked.runs} runs in {took:.0f} s, 0 hangs: {total['right']} elements right, "
        f"{total['stalled']} stalled at a lock of the user's\n"
    )


if __name__ == "__main__":
    main()
