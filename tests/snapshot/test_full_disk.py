"""A disk that is full, and one that may only be read: what was durable stays so, the file is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.snapshot.disk import KEY, RUN, Disk

from tundish.snapshot.run import read_run

# Fills what there is, one committed record after the other, until the disk says no.
FILL = """
import json, sys
from tests.snapshot.disk import KEY, RUN, Disk, shard
from pathlib import Path
from dataclasses import replace
from tundish.snapshot.records import JournalRecord
from tundish.snapshot.records import append_record
disk = Disk(Path(sys.argv[1]))
if not disk.run.exists():
    disk.put_all("index.arrow", "manifest.json", "lease.json", "shard-000002-0badcafe.arrow.tmp")
store, committed = disk.catalog.at(KEY), 10
try:
    for n in range(2, 100):
        content = bytes(50_000 * (n - 1))
        sink = store.sink(f"runs/{RUN}/shard-{n:06d}-0badcafe.arrow")
        try:
            sink.write(content)
            sink.publish()
        except OSError:
            sink.abandon()
            raise
        one = replace(shard(n, 5 * n, 5), bytes=len(content))
        assert append_record(store, RUN, JournalRecord(n, (one,), (), (), 5 * n + 5, None))
        committed = 5 * n + 5
except OSError as error:
    left = sorted(name for name in store.list(f"runs/{RUN}") if name.endswith(".tmp"))
    print(json.dumps([committed, error.errno, str(error), left, store.free_bytes()]))
"""
REOPEN = """
from tundish.snapshot.run import read_run
print(json.dumps([read_run(store, RUN).next, disk.catalog.examine(KEY)[0].name]))
"""
ROOT = Path(__file__).resolve().parents[2]


def child(code: str, folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """A process with this code and folder, started by another command if one is given."""
    return subprocess.run(
        [*before, sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_limit_of_a_files_size(tmp_path: Path) -> None:
    """Where no small disk can be mounted: no file may be larger than this."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (180_000, 180_000))" + FILL
    done = child(code, tmp_path)
    committed, _, message, left, _ = json.loads(done.stdout)

    assert committed == 25
    assert "File too large" in message
    assert str(tmp_path / KEY / "runs" / RUN / "shard-000005") in message
    assert left == []
    assert read_run(Disk(tmp_path).catalog.at(KEY), RUN).next == committed


@pytest.mark.slow
def test_a_small_disk(tmp_path: Path) -> None:
    """A real one, where a name space of our own may be had; the disk is gone with the process."""
    alone = ["unshare", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=1m none {tmp_path}"
    if (
        not shutil.which("unshare")
        or subprocess.run([*alone, *mount.split()], check=False).returncode
    ):
        pytest.skip("no disk can be mounted here")
    done = child(FILL + REOPEN, tmp_path, *alone, "sh", "-c", f'{mount} && exec "$@"', "sh")
    assert done.returncode == 0, done.stderr
    (committed, _, message, left, free), read = map(json.loads, done.stdout.splitlines())

    assert committed > 10
    assert "No space left on device" in message
    assert str(tmp_path) in message
    assert left == []
    assert 0 <= free < 1 << 20
    assert read == [committed, "PREFIX"]


READ = """
import json, os, sys
from pathlib import Path
from tests.snapshot.disk import DEAD, HEADER, KEY, RUN, Disk
from tundish.snapshot.lease import take
from tundish.snapshot.run import read_run
from tundish.snapshot.lease import adopt_run
if os.geteuid() == 0:
    os.setgroups([]); os.setegid(65534); os.seteuid(65534)
disk = Disk(Path(sys.argv[1]))
found = [disk.catalog.examine(KEY)[0].name, read_run(disk.catalog.at(KEY), RUN).next, disk.catalog.clean(KEY)]
def denied(act):
    try:
        act()
    except OSError as error:
        return str(error)
catalog = disk.catalog
found.append(denied(lambda: catalog.begin_run(KEY, HEADER, [])))
found.append(denied(lambda: adopt_run(catalog.at(KEY), RUN, {})))
found.append(denied(lambda: take(catalog.store, KEY, "run", part=(0, 2))))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("complete", [True, False])
def test_a_path_that_may_only_be_read(complete: bool) -> None:
    """By another user, if this one may do everything."""
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder) / "snapshots")
        disk.put_all(*([] if complete else ["manifest.json", "index.arrow"]))
        before = disk.files()
        folders = [path for path in (Path(folder), *Path(folder).rglob("*")) if path.is_dir()]
        for path in folders:
            path.chmod(0o555)
        try:
            done = child(READ, disk.root)
        finally:
            for path in folders:
                path.chmod(0o755)
        assert done.returncode == 0, done.stderr
        outcome, durable, _, *denied = json.loads(done.stdout)

        assert (outcome, durable) == ("COMPLETE" if complete else "PREFIX", 10)
        assert disk.files() == before
        for text in denied:
            assert "Permission denied" in text
            assert str(disk.root) in text
