"""Law 10: whatever stands in the place of a file of ours, it is an error that is promised, and soon."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hostile import HOSTILE, deadline, put

import tundish as td
from tundish.errors import CheckpointError, SnapshotError, TundishError
from tundish.formats import index
from tundish.snapshot.writing.log import Noted


def plan() -> td.Dataset:
    return td.Dataset.range(20)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_state(tmp_path: Path, what: str) -> None:
    path = tmp_path / "state.json"
    put(what, path)
    with plan().iterator(workers=0) as it, deadline():
        with pytest.raises((CheckpointError, OSError), match=r"state\.json"):
            it.restore(path)
        assert int(next(it)) == 0


@pytest.mark.parametrize("what", HOSTILE)
def test_a_state_in_a_series_is_passed_over(tmp_path: Path, what: str) -> None:
    with plan().iterator(workers=0) as it:
        for _ in range(3):
            next(it)
            it.save(tmp_path, keep=3)
    put(what, tmp_path / "step-00000003.json")
    with plan().iterator(workers=0) as it, deadline():
        if what == "a link to nothing":  # as one that who saves there has just removed
            assert it.restore(tmp_path)
        else:
            with pytest.warns(RuntimeWarning, match="step-00000003.json is passed over"):
                assert it.restore(tmp_path)
        assert int(next(it)) == 2
        it.save(tmp_path, keep=1)


def test_a_link_to_itself_is_not_taken_for_none(tmp_path: Path) -> None:
    put("a link to itself", tmp_path / "state.json")
    with (
        plan().iterator(workers=0) as it,
        pytest.raises(OSError, match="Too many levels of symbolic links"),
    ):
        it.restore(tmp_path / "state.json", missing_ok=True)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"up": value}
    return value


@pytest.mark.parametrize("part", ["plan", "position", "iteration", "process", "python"])
def test_a_part_of_a_state_that_is_nested_deep(part: str) -> None:
    """Not so deep that JSON ends there, and given as a dict."""
    with td.Dataset.range(9).shuffle(3, seed=1).iterator(workers=0) as it:
        next(it)
        state = it.state_dict()
        for depth in (900, 100_000):
            deep = nested(depth)
            changed = {**state, part: [["range", deep]] if part == "plan" else deep}
            with pytest.raises(CheckpointError):
                it.load_state_dict(changed)
            while isinstance(deep, dict):  # else it is let go of by a recursion, too
                deep = deep["up"]
        assert it.state_dict() == state


def test_a_dump(tmp_path: Path) -> None:
    td.debugging.enable_dump_debug_info(str(tmp_path), "NO_TENSOR")
    list(plan())
    td.debugging.disable_dump_debug_info()
    (dump,) = tmp_path.glob("*.dump")
    for what in HOSTILE:
        put(what, dump)
        with deadline(), contextlib.suppress(TundishError, OSError):
            assert not td.debugging.read_dump(str(tmp_path)).records


def test_an_index(tmp_path: Path) -> None:
    where = tmp_path / "index.arrow"
    for what in HOSTILE:
        put(what, where)
        with deadline():
            assert index.read(str(where), {"version": 1}, (1, 2), None) is None
            index.write(str(where), {"version": 1}, (1, 2), np.arange(3), None)
        shutil.rmtree(where) if where.is_dir() and not where.is_symlink() else where.unlink()


def test_a_writers_log(tmp_path: Path) -> None:
    for what in HOSTILE:
        put(what, tmp_path / "log")
        with deadline(), contextlib.suppress(OSError):
            assert Noted.read(tmp_path / "log") == Noted()


def stored(folder: Path, make: Callable[[], td.Dataset]) -> list[Path]:
    """The files of a snapshot."""
    list(make())
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_each_file_of_a_snapshot(tmp_path: Path) -> None:
    """The elements are right, or it is an error that names what is wrong."""
    source = tmp_path / "whole"

    def make(folder: Path) -> td.Dataset:
        return plan().map(np.sqrt).snapshot(str(folder))

    files = stored(source, lambda: make(source))
    assert len(files) > 4
    expected = [float(x) for x in make(source)]
    for file in files:
        for what in HOSTILE:
            folder = tmp_path / "tried"
            shutil.copytree(source, folder)
            put(what, folder / file.relative_to(source))
            with deadline(), contextlib.suppress(SnapshotError, OSError):
                assert [float(x) for x in make(folder)] == expected, (file.name, what)
            shutil.rmtree(folder)


SAVING = """
import os, signal, sys
from tundish import Dataset
from tundish.loader.run import checkpoints
def killed(_):
    checkpoints.sync_file = os.fsync
    os.kill(os.getpid(), signal.{signal})
checkpoints.sync_file = killed
with Dataset.range(9).iterator(workers=0) as it: it.save(sys.argv[1], {arguments})
"""


@pytest.mark.parametrize("keep", [None, 2])
def test_what_a_killed_writer_has_left_is_removed_and_that_of_one_that_writes_is_not(
    tmp_path: Path, keep: int | None
) -> None:
    target = tmp_path / "data.json" if keep is None else tmp_path

    def begin(how: str) -> subprocess.Popen[bytes]:
        script = SAVING.format(signal=how, arguments=f"keep={keep}")
        return subprocess.Popen([sys.executable, "-c", script, str(target)])

    with begin("SIGKILL") as killed:
        pass
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part"
    other = tmp_path / "data.json.mine.part"
    other.write_text("a user's")

    with begin("SIGSTOP") as stopped:
        try:
            with deadline():
                os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
            writing = {path for path in tmp_path.iterdir() if path.suffix == ".part"}
            assert left not in writing
            assert len(writing) == 2
            with plan().iterator(workers=0) as it:
                it.save(target, keep=keep)
            assert {path for path in tmp_path.iterdir() if path.suffix == ".part"} == writing
        finally:
            stopped.send_signal(signal.SIGCONT)
    assert stopped.returncode == 0
    assert [path for path in tmp_path.iterdir() if path.suffix == ".part"] == [other]


NO_INODES = """
import sys
from tundish import Dataset
with Dataset.range(9).iterator(workers=0) as it:
    try: it.save(sys.argv[1] + "/state.json")
    except OSError as error: print(error.errno)
"""


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o nr_inodes=1 none {tmp_path} && exec "$@"'
    within = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*within, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    told = subprocess.run(
        [*within, sys.executable, "-c", NO_INODES, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert told.stdout == "28\n"  # ENOSPC
