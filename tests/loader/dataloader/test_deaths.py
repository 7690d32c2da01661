"""Workers die, hang, are interrupted: nothing is lost, nothing is given twice, nobody waits."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.loader.dataloader.datasets import (
    Augmented,
    Deadly,
    Held,
    Interrupted,
    InterruptedSample,
    InterruptedStream,
    Numbers,
    Rows,
    Stream,
)

import tundish as td
from tundish.errors import SharedMemoryError, StalledError, WorkerDiedError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def values(loader: Any) -> list[int]:
    return [int(i) for batch in loader for i in batch]


@pytest.mark.parametrize("how", ["exit", "SIGKILL", "SIGSEGV"])
def test_a_sample_that_kills_is_named(how: str) -> None:
    loader = iter(td.DataLoader(Deadly(40, 17, how), 4, num_workers=2))
    had, seconds, told = [], 0.0, ""
    while True:
        start = time.perf_counter()
        try:
            had += next(loader).tolist()
        except StopIteration:
            break
        except WorkerDiedError as error:
            seconds = time.perf_counter() - start
            told = str(error)
    assert had == [i for i in range(40) if not 16 <= i < 20], "iteration goes on behind it"
    assert "index 17" in told
    assert ("exit status 0" if how == "exit" else how) in told
    assert seconds < 2.0  # benchmarks/loading.py measures it


def test_dying_once_does_not_show(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    assert values(td.DataLoader(Deadly(40, 17, "SIGKILL", once), 4, num_workers=2)) == list(
        range(40)
    )
    assert not once.exists()


def test_killed_from_outside_again_and_again() -> None:
    reference = [
        np.stack(list(b.values())) for b in td.DataLoader(Augmented(400), 4, generator=seeded())
    ]
    loader = iter(td.DataLoader(Augmented(400), 4, num_workers=2, generator=seeded()))
    had = []
    for number, batch in enumerate(loader):
        had.append(np.stack(list(batch.values())))
        if number % 9 == 0:
            for pid in loader.worker_pids()[: 1 + number % 2]:
                os.kill(pid, signal.SIGKILL)
    assert len(had) == len(reference)
    assert all(np.array_equal(a, b) for a, b in zip(had, reference, strict=True))


def seeded() -> td.TorchGenerator:
    return td.TorchGenerator(11)


def test_a_replica_is_read_again_up_to_where_it_was() -> None:
    loader = iter(td.DataLoader(Stream(60), 3, num_workers=2))
    whole = [batch.tolist() for batch in td.DataLoader(Stream(60), 3, num_workers=2)]
    had = []
    for number, batch in enumerate(loader):
        had.append(batch.tolist())
        if number in (3, 8):
            os.kill(loader.worker_pids()[0], signal.SIGKILL)
    assert had == whole


def test_as_torch_a_death_is_an_error_at_once(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    dataset = Deadly(40, 17, "SIGKILL", once)
    loader = iter(td.DataLoader(dataset, 4, num_workers=2, rng_compat="torch"))
    with pytest.raises(RuntimeError, match="SIGKILL"):
        values(loader)


def test_timeout_and_on_it_goes(tmp_path: Path) -> None:
    """The workers' start may take longer, too."""
    loader = iter(td.DataLoader(Held(8, 2, tmp_path / "go"), 2, num_workers=1, timeout=0.05))
    had: list[int] = []
    held: list[BaseException] = []
    while len(had) < 8:
        try:
            had += next(loader).tolist()
        except StalledError as error:
            if had == [0, 1]:
                held = [error]
                (tmp_path / "go").touch()
    assert had == list(range(8))
    assert isinstance(held[0], RuntimeError), "as torch's"
    assert "DataLoader timed out after 0.05 seconds" in str(held[0])


def test_an_interrupt_loses_nothing(tmp_path: Path) -> None:
    loader = iter(td.DataLoader(Held(40, 12, tmp_path / "go"), 4, num_workers=2))
    had = [i for _ in range(3) for i in next(loader).tolist()]
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            next(loader)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    (tmp_path / "go").touch()
    assert had + values(loader) == list(range(40))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_of_the_sampler_ends_no_epoch(workers: int) -> None:
    """An interrupt ends the sampler's generator, which is begun again where it was."""
    loader = iter(td.DataLoader(Numbers(30), 2, sampler=Interrupted(30, 20), num_workers=workers))
    had: list[int] = []
    interrupts = 0
    while True:
        try:
            had += next(loader).tolist()
        except KeyboardInterrupt:
            interrupts += 1
        except StopIteration:
            break
    assert interrupts == 1
    assert had == list(range(30))


def test_an_interrupt_without_workers_loses_nothing() -> None:
    """Neither the batch that was being made, nor a dataset's generator."""
    for dataset in (InterruptedSample(12, 5), InterruptedStream(12)):
        loader = iter(td.DataLoader(dataset, 2))
        had = next(loader).tolist()
        had += next(loader).tolist()
        with pytest.raises(KeyboardInterrupt):
            next(loader)
        assert had + values(loader) == list(range(12))


def test_closing_while_one_is_held(tmp_path: Path) -> None:
    loader = iter(td.DataLoader(Held(8, 0, tmp_path / "never"), 1, num_workers=2))
    time.sleep(0.2)
    start = time.perf_counter()
    loader.close()
    assert time.perf_counter() - start < 1.0


def test_closed_it_is_at_its_end_and_its_state_is_not() -> None:
    loader = td.DataLoader(Numbers(12), 4, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    iterator.close()
    assert list(iterator) == []
    again = td.DataLoader(Numbers(12), 4)
    again.load_state_dict(loader.state_dict())
    assert values(again) == list(range(4, 12))


def test_early_break_then_a_new_epoch() -> None:
    loader = td.DataLoader(Numbers(40), 4, num_workers=2, persistent_workers=True)
    for _ in range(3):
        first = iter(loader)
        assert next(first).tolist() == [0, 1, 2, 3]
    assert values(loader) == list(range(40))
    assert values(loader) == list(range(40))


def test_batches_kept_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_BUDGET", str(24 << 20))
    loader = iter(td.DataLoader(Rows(640, 65536), 8, num_workers=2))  # 2 MB each
    held = list(loader)
    assert [int(batch[1][0]) for batch in held] == list(range(0, 640, 8))
    assert all((batch[0][k] == batch[1][k]).all() for batch in held for k in range(8))
    assert loader.copies > 0


def test_a_batch_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_BUDGET", str(1 << 20))
    loader = iter(td.DataLoader(Rows(64, 65536), 8, num_workers=2))
    with pytest.raises(SharedMemoryError, match="TUNDISH_BUDGET"):
        next(loader)
