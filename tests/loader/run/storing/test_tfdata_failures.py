"""Failures of tf.data's snapshot, which loses or falsifies data, or computes it again: none of them happens here.

One test for each row of the table in which tf.data 2.21's behaviour was recorded; the docstrings say
what it does there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from tests.loader.run.storing import counted
from tests.loader.run.storing.counted import Counted, pipeline

from tundish import Dataset
from tundish.errors import SnapshotCorruptError
from tundish.loader.protocols.items import Made, NotReady
from tundish.loader.run.storing.orders import Order
from tundish.loader.run.storing.recorder import Recorder

COUNT = 500


def values(ds: Dataset, workers: int = 0) -> list[int]:
    with ds.iterator(workers=workers) as it:
        return [int(x) for x in it]


def tens(count: int = COUNT) -> list[int]:
    return [10 * n for n in range(count)]


def runs(folder: Path) -> list[Path]:
    return list(folder.glob("*/runs/*"))


def manifests(folder: Path) -> list[Path]:
    return list(folder.glob("*/manifest.json"))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/runs/*/shard-*.arrow"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def calls(folder: Path) -> Counted:
    return Counted(f"{folder}.calls")


@pytest.fixture
def complete(folder: Path, calls: Counted) -> Path:
    assert values(pipeline(str(folder), COUNT)) == tens()
    assert calls.calls == COUNT
    return folder


@pytest.mark.slow
def test_killed_and_run_again(folder: Path, calls: Counted) -> None:
    """There: written anew from the start, the dead run's files stay."""
    script = [sys.executable, "-m", counted.__name__, str(folder), str(COUNT), "200", "310"]
    killed = subprocess.run(script, check=False, env=environment())
    assert killed.returncode == -signal.SIGKILL
    assert calls.calls == 310

    assert values(pipeline(str(folder), COUNT)) == tens()

    assert calls.calls == COUNT - 200, "what was durable is not computed again"
    assert len(runs(folder)) == 1
    assert not list(folder.rglob("*.tmp*"))
    assert values(pipeline(str(folder), COUNT)) == tens()
    assert calls.calls == 0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_stopped_early_in_every_epoch(folder: Path, calls: Counted) -> None:
    """There: never finished; each epoch computes and writes everything again, one run more each."""
    ds = pipeline(str(folder), COUNT).take(100)
    for _ in range(4):
        assert values(ds) == tens(100)

    assert calls.calls == 100
    (run,) = runs(folder)
    assert len([*run.glob("journal/*.json")]) == 1  # none for an epoch that writes nothing
    assert values(pipeline(str(folder), COUNT)) == tens()
    assert calls.calls == COUNT - 100


def test_exactly_all_elements_without_asking_for_the_end(folder: Path, calls: Counted) -> None:
    """There: it depends on who read ahead whether the snapshot is ever finished."""
    with pipeline(str(folder), COUNT).iterator(workers=0) as it:
        assert [int(next(it)) for _ in range(COUNT)] == tens()
    assert calls.calls == COUNT

    assert values(pipeline(str(folder), COUNT)) == tens()

    assert calls.calls == 0
    assert len(manifests(folder)) == 1


@pytest.mark.parametrize("second", ["finishes", "is closed early"])
def test_two_write_at_once(folder: Path, calls: Counted, second: str) -> None:
    """There: two runs, the last one to finish wins, and the other's files stay for ever."""
    a = pipeline(str(folder), COUNT).iterator(workers=0)
    b = pipeline(str(folder), COUNT).iterator(workers=0)
    with a, b:
        found: tuple[list[int], list[int]] = ([], [])
        for _ in range(120):
            found[0].append(int(next(a)))
            found[1].append(int(next(b)))
        if second == "finishes":
            found[1].extend(int(x) for x in b)
            assert found[1] == tens()
        b.close()
        found[0].extend(int(x) for x in a)

    assert found[0] == tens()
    assert len(manifests(folder)) == len(runs(folder)) == 1
    _ = calls.calls
    assert values(pipeline(str(folder), COUNT)) == tens()
    assert calls.calls == 0


def test_two_write_runs_of_their_own(folder: Path) -> None:
    """The same where both are to write, whoever else does."""
    a = pipeline(str(folder), COUNT, mode="write").iterator(workers=0)
    b = pipeline(str(folder), COUNT, mode="write").iterator(workers=0)
    with a, b:
        assert next(a) == next(b) == 0
        assert [int(x) for x in b] == tens()[1:]
        assert [int(x) for x in a] == tens()[1:]

    assert len(manifests(folder)) == 1
    assert values(pipeline(str(folder), COUNT, mode="read")) == tens()


@pytest.mark.parametrize("verify", ["batch", "full"])
def test_a_flipped_byte(complete: Path, verify: str) -> None:
    """There too: an error at the record. Before it elements come as they were."""
    element = (10 * (COUNT // 2)).to_bytes(8, "little")
    shard = next(path for path in shards(complete) if element in path.read_bytes())
    data = bytearray(shard.read_bytes())
    data[data.index(element)] ^= 1
    shard.write_bytes(data)

    with pytest.raises(SnapshotCorruptError, match=shard.name):
        values(pipeline(str(complete), COUNT, verify=verify))


def cut(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2 // 8 * 8])


LOSSES: dict[str, Callable[[Path], Any]] = {
    "half a file": lambda folder: cut(shards(folder)[1]),
    "a file": lambda folder: shards(folder)[1].unlink(),
    "the last file": lambda folder: shards(folder)[-1].unlink(),
    "the index": lambda folder: next(folder.glob("*/runs/*/index.arrow")).unlink(),
    "the run": lambda folder: runs(folder)[0].rename(folder / "elsewhere"),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_what_is_missing(complete: Path, lost: str) -> None:
    """There: fewer elements and a clean end; none at all where the run's folder is gone."""
    LOSSES[lost](complete)

    with pytest.raises(SnapshotCorruptError, match=r"shard-|index\.arrow|runs/|run\.json"):
        values(pipeline(str(complete), COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_checkpoint_crash_restore_finish_read(folder: Path, calls: Counted, workers: int) -> None:
    """There: the stream goes on exactly, and the finished snapshot cannot be read."""
    with pipeline(str(folder), COUNT).iterator(workers=workers) as it:
        head = [int(next(it)) for _ in range(150)]
        state = json.loads(json.dumps(it.state_dict()))
        for _ in range(100):
            next(it)

    with pipeline(str(folder), COUNT).iterator(workers=workers) as it:
        it.load_state_dict(state)
        rest = [int(x) for x in it]

    assert head + rest == tens()
    _ = calls.calls
    assert values(pipeline(str(folder), COUNT)) == tens()
    assert calls.calls == 0
    assert len(manifests(folder)) == len(runs(folder)) == 1


class Slow:
    """A writer that answers nothing."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def put(self, order: Order) -> Slow:
        self.orders.append(order)
        return self

    def result(self) -> None:
        return None


def test_a_disk_slower_than_the_pipeline(folder: Path) -> None:
    """There: all that was not written yet is in memory, without a bound."""
    with pipeline(str(folder), COUNT).iterator(workers=0) as it:
        [made] = it._engine.context.recorders
        recorder = Recorder(made.target, made.prefix, 100, dict, carrier=(slow := Slow()))
        passed = 0
        with contextlib.suppress(NotReady):
            while passed < COUNT:
                recorder.room()
                recorder.take(Made(passed, passed), None)
                passed += 1

    assert passed < COUNT
    assert sum(sum(1 for _ in order.parts) for order in slow.orders) < COUNT


def test_a_shuffle_above(folder: Path, calls: Counted) -> None:
    """The stored elements have one order, and each epoch its own."""
    ds = pipeline(str(folder), 50).shuffle(50, seed=1)
    epochs = [[int(x) for x in ds.iterator(iteration=i, workers=0)] for i in (0, 0, 1, 2)]

    assert [sorted(epoch) for epoch in epochs] == [tens(50)] * 4
    assert epochs[0] == epochs[1] != epochs[2] != epochs[3]
    assert calls.calls == 50


def test_a_repeat_above_stores_one_pass(folder: Path, calls: Counted) -> None:
    """The passes of a repeat upstream are stored; one downstream reads what the first pass wrote."""
    above = pipeline(str(folder), 10).repeat(3)
    assert values(above) == tens(10) * 3
    assert calls.calls == 10
    below = Dataset.range(10).repeat(3).snapshot(folder)
    assert values(below) == [*range(10)] * 3
    assert len(Dataset.load(folder)) == 30


def test_an_endless_repeat_below_is_read_as_far_as_it_was_written(folder: Path) -> None:
    """There: never finished."""
    ds = Dataset.range(10).repeat().snapshot(folder).take(25)

    assert values(ds) == values(ds) == [n % 10 for n in range(25)]
    assert len(runs(folder)) == 1


def test_built_three_times_in_one_process(folder: Path) -> None:
    """There: three snapshots, since the name of a Python function counts up."""
    for _ in range(3):
        assert values(Dataset.range(5).map(lambda x: x + 1).snapshot(folder)) == [1, 2, 3, 4, 5]

    assert len(manifests(folder)) == 1


def compiled(text: str) -> FunctionType:
    """A function as if its module had been edited and imported again."""
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, __file__, "exec"), space)
    found: FunctionType = space["augment"]
    return found


def test_an_edited_function(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There: what the old code gave is served by the next process, silently."""
    before = Dataset.range(5).map(compiled("def augment(x): return x + 7"))
    after = Dataset.range(5).map(compiled("def augment(x): return x + 8"))
    assert values(before.snapshot(folder)) == [7, 8, 9, 10, 11]
    with caplog.at_level(logging.INFO, logger="tundish.snapshot"):
        assert values(after.snapshot(folder)) == [8, 9, 10, 11, 12]

    assert len(manifests(folder)) == 2
    [told] = [record.getMessage() for record in caplog.records if "changed" in record.getMessage()]
    assert "augment" in told
    assert "7" in told
    assert "8" in told


def test_saved_twice(folder: Path) -> None:
    """There too: the second one is what is loaded."""
    Dataset.range(5).save(folder)
    first = Dataset.load(folder)
    Dataset.range(9).save(folder)

    assert values(Dataset.load(folder)) == [*range(9)]
    assert values(first) == [*range(5)], "who has the first one goes on reading it"


def test_an_input_file_that_changed(folder: Path, tmp_path: Path) -> None:
    """There: what the old file gave is served."""
    path = tmp_path / "input.txt"
    found = []
    for text in ("a", "bc"):
        path.write_text(text)
        ds = Dataset.list_files(str(path), shuffle=False).map(read)
        found.append(list(ds.snapshot(folder)))

    assert found == [["a"], ["bc"]]


def read(path: str) -> str:
    return Path(path).read_text()
