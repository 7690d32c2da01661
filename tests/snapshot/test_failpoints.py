"""Failpoints act where they are told; what stands after a death at those that no writer passes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.snapshot.disk import HEADER, KEY
from tests.snapshot.kills import end_of, start

from tundish.snapshot import failpoints
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.failpoints import STEPS, Failpoint
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.lease import Holder, adopt_run, take
from tundish.snapshot.manifest import RunOutcome

SCRIPT = """
import sys
from tundish.snapshot.files.local import LocalStore
store = LocalStore(sys.argv[1])
for n in range(3):
    try:
        store.create(f"journal/{n}.json", b"record", "journal")
    except OSError as error:
        print(n, error)
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that writes three journal records."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_the_variable_nothing_happens() -> None:
    assert failpoints.ACTIVE is None
    assert failpoints.reach("journal.linked") is None


def test_a_process_is_killed_the_second_time(tmp_path: Path) -> None:
    ended = run(tmp_path, TUNDISH_FAILPOINT="journal.synced:2:kill")

    assert ended.returncode == -signal.SIGKILL
    assert LocalStore(tmp_path / "journal").list()[0] == "0.json"
    assert [name.endswith(".tmp") for name in LocalStore(tmp_path / "journal").list()] == [
        False,
        True,
    ]


def test_an_error_is_raised_and_what_follows_is_not_disturbed(tmp_path: Path) -> None:
    ended = run(tmp_path, TUNDISH_FAILPOINT="journal.written:raise")

    assert ended.stdout == "0 [Errno 5] a failpoint: 'journal.written'\n"
    assert LocalStore(tmp_path / "journal").list() == ["1.json", "2.json"]


def test_one_process_of_many_dies(tmp_path: Path) -> None:
    told = {"TUNDISH_FAILPOINT": "journal.begin:kill", "TUNDISH_FAILPOINT_ONCE": f"{tmp_path}/once"}

    assert run(tmp_path, **told).returncode == -signal.SIGKILL
    assert (tmp_path / "once").exists()
    assert run(tmp_path, **told).returncode == 0
    assert LocalStore(tmp_path / "journal").list() == ["0.json", "1.json", "2.json"]


@pytest.mark.parametrize(
    "text",
    ["journal", "journal.linked", "journal.linked:stop", "nowhere:kill", "journal.linked:x:kill"],
)
def test_a_failpoint_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not STEP\[:N\]:kill or STEP\[:N\]:raise"):
        Failpoint.parse(text)


def test_a_step_that_is_not_in_the_list_is_noticed() -> None:
    failpoint = Failpoint.parse("journal.linked:2:raise")
    failpoint.reach("journal.linked")
    failpoint.reach("journal.durable")

    with pytest.raises(
        ValueError, match=r"journal.lost is not in tundish.snapshot.failpoints.STEPS"
    ):
        failpoint.reach("journal.lost")
    with pytest.raises(OSError, match="failpoint") as caught:
        failpoint.reach("journal.linked")
    assert caught.value.errno == errno.EIO
    failpoint.reach("journal.linked")


def begin(folder: str) -> None:
    Catalog(folder).begin_run(KEY, HEADER, ["what is hashed"])


def hold(folder: str) -> None:
    lease = take(LocalStore(folder), KEY, "run")
    assert lease is not None
    lease.release()


def replace(folder: str) -> None:
    LocalStore(folder).replace(f"{KEY}/manifest.json", b"second")


LIVES: dict[str, Callable[[str], None]] = {
    "header": begin,
    "pipeline": begin,
    "lease": hold,
    "replace": replace,
}


@pytest.mark.parametrize("step", [step for step in STEPS if step.split(".")[0] in LIVES])
def test_a_death_at_a_step_that_no_writer_passes(tmp_path: Path, step: str) -> None:
    """The next process does the same, and nothing of the first one is in its way, or left."""
    life = partial(LIVES[step.split(".", maxsplit=1)[0]], str(tmp_path))
    store = LocalStore(tmp_path)
    if step.startswith("replace"):
        store.create(f"{KEY}/manifest.json", b"first")

    assert end_of(start(life, f"{step}:kill")) == -signal.SIGKILL
    if step.startswith("replace"):
        assert store.read(f"{KEY}/manifest.json") in {b"first", b"second"}
    life()
    catalog = Catalog(tmp_path)
    if step.startswith("replace"):
        store.remove(f"{KEY}/manifest.json")
    catalog.clean(KEY)
    for begun in catalog.runs(KEY):
        adopt_run(catalog.at(KEY), begun, Holder.here().to_json())

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if path.name.endswith(".tmp")] == []
    if life.func is begin:
        assert catalog.examine(KEY)[0] is RunOutcome.FRESH
        assert catalog.pipeline(KEY) == ["what is hashed"]
        runs = catalog.runs(KEY)
        assert len(runs) == (
            1 if step in {"header.begin", "header.written", "header.synced"} else 2
        )
        assert len(files) == 2 * len(runs) + 1
    else:
        assert files == []
