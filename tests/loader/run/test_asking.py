"""`Iterator.stats` at any moment and from anywhere: exact counts, times that add up, and bounded memory."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator as Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.laws.functions import pure

from tundish import Dataset, Options
from tundish.loader.run.engine import _inside
from tundish.loader.run.iterator import Iterator
from tundish.loader.watch.stats import Stats
from tundish.loader.watch.watch import MOST, Watch
from tundish.testing import collect
from tundish.testing.functions import Fail, Keep

DEADLINE_S = 20


def pausing(n: Any) -> Any:
    time.sleep(0.001)
    return n


@contextmanager
def impatient() -> Iterable[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_time_is_divided_without_a_rest(workers: int) -> None:
    with Dataset.range(1000).map(pausing).iterator(workers=workers) as iterator:
        for _ in range(20):
            next(iterator)
        time.sleep(0.2)
        running = iterator.stats
    closed = iterator.stats

    for stats in (running, closed):
        parts = stats.waited_s, stats.own_s, stats.outside_s
        assert sum(parts) == pytest.approx(stats.wall_s, rel=0.01)
        assert min(parts) >= 0.0
        busy_s = sum(stage.busy_s for stage in stats.stages)
        assert busy_s <= max(1, workers) * stats.wall_s


def test_the_parts_of_the_time_are_never_below_0() -> None:
    chance = random.Random(0)
    for _ in range(1000):
        wall_s, opening_s = (chance.random() * 10 ** -chance.randrange(8) for _ in range(2))
        assert 0.0 <= _inside(wall_s, opening_s, 1.0) <= wall_s
        assert 0.0 <= _inside(wall_s, opening_s, chance.random()) <= wall_s


def test_a_pause_of_the_caller_is_outside_before_it_is_over() -> None:
    with Dataset.range(1000).map(pure).iterator(workers=2) as iterator:
        next(iterator)
        before = iterator.stats
        time.sleep(0.2)
        after = iterator.stats

    assert after.outside_s - before.outside_s >= 0.2
    assert after.own_s == before.own_s


def test_what_is_waited_for_counts_before_it_has_come(tmp_path: Path) -> None:
    def held(n: Any) -> Any:
        while not (tmp_path / "go").exists():
            time.sleep(0.001)
        return n

    with Dataset.range(4).map(held).batch(4).iterator(workers=1) as iterator:
        found: list[Stats] = []

        def watch() -> None:
            deadline = time.monotonic() + DEADLINE_S
            while time.monotonic() < deadline:
                found[:] = [iterator.stats]
                if found[0].waited_s > found[0].own_s + found[0].outside_s:
                    break
            (tmp_path / "go").touch()

        thread = threading.Thread(target=watch)
        thread.start()
        next(iterator)
        thread.join()

    assert found[0].waited_s > found[0].own_s + found[0].outside_s
    assert found[0].elements == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_another_thread_may_ask_all_the_time(workers: int) -> None:
    options = Options()
    options.stats.latency_all_edges = True
    ds = Dataset.range(3000).map(pure).filter(Keep(1)).map(Fail(1, 10)).batch(2)
    problems: list[BaseException] = []
    done = threading.Event()
    with ds.with_options(options).iterator(workers=0) as alone:
        collect(alone)
        expected = {tag: edge.count for tag, edge in alone.stats.edges.items()}
    with impatient(), ds.with_options(options).iterator(workers=workers) as iterator:

        def ask() -> None:
            try:
                while not done.is_set():
                    stats = iterator.stats
                    assert min(stats.elements, stats.errors, stats.waited_s, stats.outside_s) >= 0
            except Exception as problem:  # noqa: BLE001 - whatever it is
                problems.append(problem)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            outcomes = collect(iterator)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        stats = iterator.stats

    assert not problems
    assert stats.elements + stats.errors == len(outcomes)
    assert {tag: edge.count for tag, edge in stats.edges.items()} == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_a_handler_of_a_signal_may_ask(workers: int) -> None:
    asked, over = [], list[bool]()
    with Dataset.range(30000).map(pure).filter(Keep(1)).iterator(workers=workers) as iterator:

        def ask(*_: object) -> None:
            asked.append(iterator.stats)
            if not over:  # not before: it would interrupt itself
                signal.setitimer(signal.ITIMER_REAL, 0.001)

        before = signal.signal(signal.SIGALRM, ask)
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        try:
            outcomes = collect(iterator, limit=30000)
        finally:
            over.append(True)  # else a signal that comes now would have another one come later
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        stats = iterator.stats

    assert asked
    assert stats.elements == len(outcomes)


def test_another_thread_than_that_which_made_it_is_timed_too() -> None:
    """Though its core has been at work for less than that of the other."""
    with Dataset.range(20_000).map(pure).iterator(workers=0) as iterator:
        engine: Any = iterator._engine
        sampling = engine._sampling
        sampling._saved_s = 0.002
        sampling._cpu += 0.5
        thread = threading.Thread(target=lambda: [None for _ in iterator])
        thread.start()
        thread.join()
        stats = iterator.stats

    assert stats.own_s > 0
    assert any(node.time.count for stage in stats.stages for node in stage.nodes)


def test_cores_are_looked_up_once_and_if_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def seven() -> int:
        asked.append("cores")
        return 7

    monkeypatch.setattr("tundish.loader.run.engine.usable_cores", seven)
    with Dataset.range(20).map(pure).iterator(workers=0) as iterator:
        for _ in range(10):
            next(iterator)
        assert not asked
        assert [iterator.stats.cores, iterator.stats.cores] == [7, 7]

    assert len(asked) == 1


def test_an_engine_that_could_not_be_opened_is_closed_quietly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> None:
        raise ValueError("not here")

    with pytest.raises(ValueError, match="not here"):
        iter(Dataset.range(3).map(pure).with_options(Options(worker_init=refuse, workers=0)))
    options = Options(workers=0)
    options.stats.trace = "/nowhere/at/all"
    with pytest.raises(OSError, match="nowhere"):
        iter(Dataset.range(3).map(pure).with_options(options))
    gc.collect()

    assert not capsys.readouterr().err


def test_what_one_long_call_notes_does_not_pile_up() -> None:
    ds = Dataset.range(200_000).filter(lambda n: n < 2 or n == 199_999)
    with ds.iterator(workers=0) as iterator:
        engine: Any = iterator._engine
        next(iterator)
        engine._note()
        engine._sampling._saved_s = 1.0
        engine._note()
        assert engine._sampling.on
        next(iterator)
        tracemalloc.start()
        try:
            next(iterator)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        noted = max(n.time.count for s in iterator.stats.stages for n in s.nodes)

    assert noted <= 2 * MOST
    assert most < 4 << 20


def test_edges_of_one_long_call_do_not_pile_up() -> None:
    watch = Watch()
    for _ in range(3 * MOST + 5):
        watch.edge("a", 0.001)

    assert len(watch._edges["a"]) < MOST
    assert watch.take(timed=False)[0]["a"][1] == 3 * MOST + 5
    assert not watch.has_told


def test_edges_are_counted_though_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a board: nobody ever asks for the statistics."""
    monkeypatch.setattr("tundish.loader.run.engine.EVERY_S", 0.0)
    monkeypatch.setattr("tundish.loader.run.watching.publishing.publish", lambda *_: None)
    with Dataset.range(5000).map(pure).latency_stats("a").iterator(workers=0) as iterator:
        collect(iterator, limit=5000)
        watch = iterator._engine.context.watch

        assert len(watch._edges["a"]) < 5000


@pytest.mark.parametrize("workers", [0, 1])
def test_counts_are_exact_after_an_interrupt_anywhere(workers: int) -> None:
    from tests.laws.test_interrupts import Interrupt, outcomes

    ds = Dataset.range(9).map(Fail(1, 30)).batch(2)
    for at in range(0, 240, 1 if not workers else 37):
        with ds.iterator(workers=workers) as iterator:
            found = outcomes(iterator, Interrupt(at))
            stats = iterator.stats
            assert stats.elements + stats.errors == len(found), at


@pytest.mark.parametrize("at", range(0, 120, 3))
def test_counts_of_what_comes_at_once_are_exact_after_an_interrupt(at: int) -> None:
    from tests.laws.test_interrupts import Interrupt, outcomes

    with Dataset.range(9).iterator(workers=0) as iterator:
        found = outcomes(iterator, Interrupt(at))
        assert iterator.stats.elements == len(found)


def test_a_fork_may_ask_and_end_its_copy() -> None:
    with Dataset.range(100).map(pure).iterator(workers=1) as iterator:
        next(iterator)
        pid = os.fork()
        if not pid:
            try:
                stats = iterator.stats
                iterator.close()
                os._exit(0 if stats.elements == 1 else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(pid, 0)

        assert status == 0
        assert len(collect(iterator)) == 99


def test_a_state_in_the_middle_of_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements that a tuner gets are of one engine."""
    from tundish import AUTOTUNE
    from tundish.loader.run.watching import tuning

    samples = []

    class Listening:
        def __init__(self, *_: int) -> None:
            pass

        def observe(self, sample: Any) -> None:
            samples.append(sample)

    monkeypatch.setattr(tuning, "Tuner", Listening)
    monkeypatch.setattr(tuning.Tuning, "every_s", 0.0)
    ds = Dataset.range(200).map(pausing).with_options(Options(workers=AUTOTUNE))
    with Iterator(ds._node, base_seed=1) as iterator:
        state = iterator.state_dict()
        for _ in range(3):
            for _ in range(30):
                next(iterator)
            iterator.load_state_dict(state)
        assert len(collect(iterator)) == 200

    assert samples
    assert all(min(s.waited_s, s.own_s, s.outside_s, s.busy_s, s.delivered) >= 0 for s in samples)
    assert all(s.waited_s + s.own_s + s.outside_s <= 1.5 * s.seconds + 0.05 for s in samples)
