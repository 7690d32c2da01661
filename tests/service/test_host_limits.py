"""Errors that are no element's, and the bounds of memory, descriptors and messages: no consumer waits for ever."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.waiting import until

import tundish as td
from tundish.loader.service.host import wire
from tundish.loader.service.host.host import HostedDataset, host

pytestmark = pytest.mark.usefixtures("forks_hosts")

ROW = 100 << 10


def shared(ds: td.Dataset, name: str, **given: Any) -> HostedDataset:
    return host(ds, name, **{"linger": 0.2, **given})


def large(x: Any) -> np.ndarray:
    """Return an array that does not travel in a pickle."""
    return np.full(ROW, x, np.uint8)


def ints(elements: Any, most: int | None = None) -> list[int]:
    return [int(np.ravel(x)[0]) for x in islice(elements, most)]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_element_that_cannot_be_pickled_is_an_error_in_its_place(workers: int) -> None:
    """In a worker's process each element is encoded; where there are no workers, an object may be of any kind."""

    def odd(x: Any) -> Any:
        return (k for k in range(2)) if x == 1 else x

    ds = td.Dataset.range(4).map(odd).with_options(td.Options(workers=workers))
    with iter(shared(ds, "odd", linger=0.0)) as elements:
        assert int(next(elements)) == 0
        with pytest.raises(TypeError, match="generator"):
            next(elements)
        assert ints(elements) == [2, 3]


def failing() -> None:
    raise LookupError("no such worker")


def test_workers_that_cannot_start_are_the_error_of_each_consumer() -> None:
    ds = td.Dataset.range(9).map(large).with_options(td.Options(workers=1, worker_init=failing))
    for _ in range(2):
        with iter(shared(ds, "start")) as elements, pytest.raises(LookupError, match="no such"):
            next(elements)


def broken() -> Iterator[int]:
    yield from range(200)
    raise OSError("the disk is gone")


def test_consumers_have_what_comes_before_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = td.Dataset.from_generator(broken).map(large).with_options(td.Options(workers=0))
    with iter(shared(ds, "broken")) as quick, iter(shared(ds, "broken")) as slow:
        assert ints(slow, 1) == [0]
        assert len(ints(quick, 200)) == 200
        with pytest.raises(OSError, match="the disk is gone"):
            next(quick)
        assert len(ints(slow, 199)) == 199
        with pytest.raises(OSError, match="the disk is gone"):
            next(slow)


@pytest.mark.parametrize("consumers", [1, 3])
@pytest.mark.parametrize("window", [None, "1 GB"])
def test_consumers_go_on_when_memory_is_used_up(consumers: int, window: str | None) -> None:
    """Windows that hold all from their start, for those that come later, may together have more than the memory."""
    rows = np.zeros((400, ROW), np.uint8)
    rows[:, 0] = np.arange(400) % 256
    options = td.Options(workers=0, memory_budget="8 MB")
    ds = td.Dataset.from_tensor_slices(rows).repeat(2).with_options(options)
    given = {} if window is None else {"window": window}
    # A name of its own: a process that ends would be replaced from several threads, and here host processes are forks.
    name = f"full-{consumers}-{len(given)}"
    each = [shared(ds, name, **given).iterator(iteration=k) for k in range(consumers)]
    found: list[list[int]] = [[] for _ in each]

    def read(at: int) -> None:
        found[at] = ints(each[at])

    threads = [threading.Thread(target=read, args=(at,), daemon=True) for at in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(numbers) for numbers in found] == [800] * consumers
    for iterator in each:
        iterator.close()


def test_texts_count_as_well(forks_hosts: Path) -> None:
    """Count pickled elements in the bytes of the window; each large one is a descriptor of the host process."""

    def text(x: Any) -> bytes:
        return bytes(200_000)

    ds = td.Dataset.range(600).map(text).with_options(td.Options(workers=0))
    with iter(shared(ds, "texts", window="4 MB", linger=0.0)) as elements:
        next(elements)
        pid = elements.host_pid
        most = 0
        for count, _ in enumerate(elements):
            if count % 50 == 0:
                most = max(most, len(list(Path(f"/proc/{pid}/fd").iterdir())))
    assert most < 100


def test_long_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that holds many batches says which in one message, when it leaves."""
    monkeypatch.setattr(wire, "LARGEST", 60)
    ds = td.Dataset.range(80).map(large).with_options(td.Options(workers=0))
    stays = iter(shared(ds, "long"))
    with stays:
        ints(stays, 5)
        leaves = iter(shared(ds, "long"))
        held = list(islice(leaves, 60))
        leaves.close()
        held[3:50] = []
        gc.collect()
        rest = ints(stays)
        assert rest == list(range(5, 80))
        assert [int(x[-1]) for x in held] == [0, 1, 2, *range(50, 60)]


def test_one_that_skips_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = td.Dataset.range(1500).map(large).with_options(td.Options(workers=0))
    given: dict[str, Any] = {"window": "1 MB", "lag": "skip"}
    with iter(shared(ds, "skips", **given)) as slow, iter(shared(ds, "skips", **given)) as quick:
        next(slow)
        assert len(ints(quick, 1400)) == 1400
        assert ints(slow)[-1] == 1499 % 256


def test_a_consumer_that_comes_after_the_host_process_has_died_has_the_order_of_the_others() -> (
    None
):
    ds = td.Dataset.range(100).shuffle(None).with_options(td.Options(workers=0))
    with iter(shared(ds, "order")) as first:
        before = ints(first, 3)
        pid = first.host_pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}/exe").exists(), "it has ended")
        before += ints(first, 97)
        with iter(shared(ds, "order")) as later:
            assert ints(later) == before
