"""An iterator that is garbage is closed wherever a thread is, also where it holds a lock: nothing waits for itself.

The interpreter may look for garbage at any allocation. So each lock of ours is replaced by one that has an
iterator of the same dataset collected when it is taken, once for each line that takes it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tundish as td
from tundish.loader.run.storing import live

_Lock = threading.Lock


class Collecting:
    """A lock that has garbage collected while it is held; its holder must not wait for it.

    Parameters
    ----------
    spare : list
        Iterators that nobody else has.
    taken : set
        The lines that have taken such a lock.
    """

    def __init__(self, spare: list[Any], taken: set[str]) -> None:
        self._lock, self._holder = _Lock(), 0
        self._spare, self._taken = spare, taken

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._acquired(sys._getframe(1), blocking=blocking)

    def _acquired(self, frame: Any, *, blocking: bool) -> bool:
        if not self._lock.acquire(blocking=False):
            if not blocking:
                return False
            assert self._holder != threading.get_ident(), "a thread waits for itself"
            self._lock.acquire()
        self._holder = threading.get_ident()
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if self._spare and line not in self._taken:
            self._taken.add(line)
            garbage = self._spare.pop()
            garbage.itself = garbage
            del garbage
            gc.collect()
        return True

    def release(self) -> None:
        self._holder = 0
        self._lock.release()

    def __enter__(self) -> bool:
        return self._acquired(sys._getframe(1), blocking=True)

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[Any], set[str]]]:
    """Iterators that become garbage under each of our locks, and the lines where that has happened."""
    iterators: list[Any] = []
    taken: set[str] = set()
    errors: list[Any] = []

    def made() -> Any:
        ours = str(sys._getframe(1).f_globals.get("__name__", "")).startswith("tundish.")
        return Collecting(iterators, taken) if ours else _Lock()

    monkeypatch.setattr(threading, "Lock", made)
    for module in list(sys.modules.values()):
        if module.__name__.startswith("tundish."):
            for name, value in list(vars(module).items()):
                if type(value) is type(_Lock()):
                    monkeypatch.setattr(module, name, Collecting(iterators, taken))
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    yield iterators, taken
    iterators.clear()
    gc.collect()
    assert not [each.exc_value for each in errors]


def files(folder: Path) -> Any:
    for k in range(2):
        table = pa.table({"n": np.arange(40) + 40 * k, "s": [str(n) for n in range(40)]})
        pq.write_table(table, folder / f"{k}.parquet", row_group_size=8)
    return td.ParquetDataset([str(folder / f"{k}.parquet") for k in range(2)]).shuffle(None, seed=1)


def text(folder: Path) -> Any:
    (folder / "lines.txt").write_text("".join(f"line {n}\n" for n in range(60)))
    return td.TextLineDataset(str(folder / "lines.txt"), index=True).shuffle(None, seed=1)


def cached(folder: Path) -> Any:
    return td.Dataset.range(30).map(lambda n: n + 1).cache().repeat(2)


def recorded(folder: Path) -> Any:
    return td.Dataset.range(30).map(lambda n: n + 1).snapshot(str(folder / "snapshot")).prefetch(2)


def computed(folder: Path) -> Any:
    return td.Dataset.range(30).map(lambda n: np.full(40_000, n)).batch(4)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [files, text, cached, recorded, computed])
def test_garbage_is_closed_under_every_lock(
    make: Callable[[Path], Any], workers: int, tmp_path: Path, spare: tuple[list[Any], set[str]]
) -> None:
    iterators, taken = spare
    ds = make(tmp_path)
    begun = [ds.iterator(workers=workers) for _ in range(6)]
    expected = [next(each) for each in begun]
    iterators += begun
    begun.clear()

    with ds.iterator(workers=workers) as it:
        first, *rest = list(it)

    assert taken
    assert repr(first) == repr(expected[0])
    assert rest


def test_a_writer_may_be_left_behind_while_another_is_waited_for() -> None:
    left = [lambda _: True]

    def gone(_: float) -> bool:
        """The end of a writer in which an iterator is collected that leaves another one behind."""
        while left:
            live.linger("elsewhere", "key", [left.pop()])
        return True

    live.linger("another", "key", [gone])
    waiting = threading.Thread(target=live.wait_for, args=("here", "key"), daemon=True)
    waiting.start()
    waiting.join(10)

    assert not waiting.is_alive()
    live.wait_for("elsewhere", "key")
    assert not live._lingering
