"""The process that each shared job has: its modules, its globals, its end."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.laws.changing import anew, config
from tests.service.certificates import Authority
from tests.service.clusters import Cluster, ReachedCluster, cluster_process
from tests.service.computed import killed, larger
from tests.service.readglobals import mean, named, sized
from tests.service.waiting import until

from tundish import Dataset, Options, TextLineDataset, service
from tundish.errors import ChangedGlobalsError, IncompatibleJobError
from tundish.loader.run.starting import agreeing
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.distributing import registering
from tundish.loader.service.jobs import jobprocess
from tundish.loader.service.jobs.holding import Holding
from tundish.loader.service.jobs.jobmain import NAME

CHANGED = "ignore:.*changed at run time"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules that the cluster's processes import from."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[ReachedCluster]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    with cluster_process(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1") as found:
        yield found


_found: dict[str, Any] = {}
_imported_again = agreeing.imported_again


def imported_once(*asked: Any, **given: Any) -> Any:
    """Ask other processes once for all tests, as the modules stay as they are."""
    key = repr((asked, given))
    if key not in _found:
        _found[key] = _imported_again(*asked, **given)
    return _found[key]


@pytest.fixture(autouse=True)
def _as_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of an earlier test."""
    for name in ("_seen", "_taken", "_own", "_imported"):
        monkeypatch.setattr(agreeing, name, {})
    monkeypatch.setattr(agreeing, "_told", set())
    monkeypatch.setattr(agreeing, "imported_again", imported_once)


def ints(ds: Dataset, most: int | None = None) -> list[int]:
    with iter(ds) as iterator:
        return [int(x) for x in islice(iterator, most)]


# -- globals ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(CHANGED)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_job_computes_with_the_globals_of_who_registered_it(
    cluster: ReachedCluster, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SIZE", 50 + workers)
    monkeypatch.setattr(config, "MEANS", np.full(30_000, 2.0))
    monkeypatch.setattr(config, "NAME", abs)
    plain = Dataset.from_generator(sized).map(named)
    ds = plain.with_options(Options(workers=workers))
    assert ints(cluster.computes(ds, job_name=f"globals {workers}")) == [
        2 * (50 + workers),
        60_000 + 50 + workers,
    ]


SCRIPT = """
import sys
import numpy as np
import tundish as td

SIZE, TABLE = 3, np.arange(100_000)

def grown(x):
    return SIZE * TABLE[int(x)]

if __name__ == "__main__":
    SIZE = 4
    shared = td.service.distribute("distributed_epoch", sys.argv[1], job_name="script")
    print(*(int(x) for x in td.Dataset.range(4).map(grown).apply(shared)))
"""


def test_the_globals_of_a_script_travel_with_its_functions(
    cluster: ReachedCluster, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py", cluster.target],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["0", "4", "8", "12"]


@pytest.mark.filterwarnings(CHANGED)
def test_jobs_with_other_globals_run_side_by_side(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Dataset.from_generator(sized).repeat()
    running = []
    for size in (7, 8, 32):
        monkeypatch.setattr(config, "SIZE", size)
        running.append(iter(cluster.computes(plain, job_name=f"size {size}")))
    try:
        assert [int(next(each)) for each in running] == [7, 8, 32]
    finally:
        for each in running:
            each.close()


@pytest.mark.filterwarnings(CHANGED)
def test_consumers_of_a_job_have_the_same_globals(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Dataset.from_generator(sized).repeat()
    monkeypatch.setattr(config, "SIZE", 5)
    with iter(cluster.computes(plain, job_name="agreed")) as first:
        assert int(next(first)) == 5
        monkeypatch.setattr(config, "SIZE", 6)
        with pytest.raises(IncompatibleJobError, match=r"config\.SIZE: '6' here, '5' in the job"):
            ints(cluster.computes(plain, job_name="agreed"), 1)
    ds = Dataset.range(40).map(anew.split)
    with iter(cluster.computes(ds, job_name="anew, too")) as first:
        next(first)
        monkeypatch.setattr(anew, "SPLIT", anew.SPLIT[::-1])
        with pytest.raises(IncompatibleJobError, match=r"anew\.SPLIT: '.* \(digest .*' here"):
            ints(cluster.computes(ds, job_name="anew, too"), 1)


def test_what_each_import_makes_anew_is_that_of_the_first_consumer(cluster: ReachedCluster) -> None:
    ds = Dataset.range(40).map(anew.read)
    with iter(cluster.computes(ds, job_name="anew")) as shared:
        found = sorted(tuple(map(str, each)) for each in shared)
    assert found == sorted(tuple(map(str, anew.read(x))) for x in range(40))


def test_a_changed_global_is_told_once_or_refused_or_ignored(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SIZE", 51)
    plain = Dataset.from_generator(sized).take(1)
    with pytest.warns(UserWarning, match=r"config\.SIZE is 51, and 32 where its module"):
        cluster.computes(plain, job_name="told")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ints(cluster.computes(plain, job_name="told")) == [51]
        ignoring = plain.with_options(Options(globals="ignore"))
        assert ints(cluster.computes(ignoring, job_name="ignored")) == [32]
    with pytest.raises(ChangedGlobalsError, match="SIZE is 51"):
        cluster.computes(plain.with_options(Options(globals="error")), job_name="refused")


def test_large_globals_are_told_as_well(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Dataset.range(4).map(mean)
    with monkeypatch.context() as patch:
        patch.setattr(config, "MEANS", np.full(30_000, 2.5))
        with pytest.warns(UserWarning, match="MEANS is"):
            number = service.register_dataset(cluster.target, large, dataset_id="large")
        assert service.register_dataset(cluster.target, large, dataset_id="large") == number
        patch.setattr(config, "MEANS", np.full(30_000, 3.5))
        with pytest.raises(ValueError, match=r"MEANS: '.*3\.5.*' here, '.*2\.5.*' in the one"):
            service.register_dataset(cluster.target, large, dataset_id="large")
    with pytest.warns(UserWarning, match=r"MEANS was array\(\[2\.5.* and is array"):
        registering.fetched(cluster.target, number)


@pytest.mark.filterwarnings(CHANGED)
def test_what_was_changed_and_changed_back_is_as_it_was(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = Dataset.from_generator(sized)
    before = service.register_dataset(cluster.target, ds)
    with monkeypatch.context() as patch:
        patch.setattr(config, "SIZE", 53)
        assert service.register_dataset(cluster.target, ds) != before
    assert service.register_dataset(cluster.target, ds) == before


def test_a_registered_dataset_says_where_globals_differ(
    cluster: ReachedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = Dataset.from_generator(sized)
    with monkeypatch.context() as patch:
        patch.setattr(config, "SIZE", 52)
        with pytest.warns(UserWarning, match="SIZE is 52"):
            number = service.register_dataset(cluster.target, ds)
    assert number != service.register_dataset(cluster.target, ds)
    with pytest.warns(UserWarning, match=r"config\.SIZE was 52 where .* and is 32 here"):
        registering.fetched(cluster.target, number)


# -- modules ----------------------------------------------------------------------------------------


def test_a_job_runs_the_code_of_today(
    cluster: ReachedCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster goes on while its users edit their modules."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for factor in (2, 30):
        (folder / "edited.py").write_text(
            f"def made():\n    yield from [k * {factor} for k in range(3)]\n"
        )
        sys.modules.pop("edited", None)
        importlib.invalidate_caches()
        ds = Dataset.from_generator(importlib.import_module("edited").made)
        found = ints(cluster.computes(ds, job_name=f"edited {factor}"))
        assert found == [0, factor, 2 * factor]


def test_a_job_is_in_the_folder_of_who_registered_it(
    cluster: ReachedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths, and modules beside a script, are what they are without a job."""
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "lines.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ds = TextLineDataset("lines.txt").map(importlib.import_module("beside").double)
    assert list(cluster.computes(ds, job_name="beside")) == list(ds)


def test_a_module_that_the_jobs_process_does_not_find(
    cluster: ReachedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ds = Dataset.range(3).map(importlib.import_module("only_here").double)
    (tmp_path / "only_here.py").unlink()
    with pytest.raises(RuntimeError, match=r"could not be started: .*No module named 'only_here'"):
        ints(cluster.computes(ds, job_name="not found"))


def test_an_agent_stays_known_while_a_job_imports(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_here.py").write_text(
        "import os, time\n"
        f"if os.getpid() != {os.getpid()}:\n    time.sleep(1.5)\n"
        "def double(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cluster = Cluster(stack, 1, worker_timeout_ms=600)
    ds = Dataset.range(3).map(importlib.import_module("slow_here").double)
    iterator = stack.enter_context(iter(cluster.computes(ds, job_name="slow")))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: [int(x) for x in iterator])
        known = set()
        while not reading.done():
            known.add(cluster.dispatcher._num_workers())
            time.sleep(0.02)
    assert reading.result() == [0, 2, 4]
    assert known == {1}


def test_a_job_whose_import_never_ends_is_stopped_when_nobody_waits_for_it(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck_here.py").write_text(
        "import os, time\n"
        f"if os.getpid() != {os.getpid()}:\n    open({str(tmp_path / 'begun')!r}, 'w')\n    time.sleep(1000)\n"
        "def double(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(jobprocess, "_ENDING_S", 0.3)  # it does not end by itself
    others = serving()
    cluster = Cluster(stack, 1, job_gc_check_interval_ms=50, job_gc_timeout_ms=1500)
    ds = Dataset.range(3).map(importlib.import_module("stuck_here").double)
    stuck = cluster.computes(ds.with_options(Options(globals="ignore")), job_name="stuck")
    place = stuck._node.place  # type: ignore[attr-defined]
    with DispatcherClient(cluster.target) as client:
        while not (tmp_path / "begun").exists():
            with pytest.raises(TimeoutError):
                client.job(**place.wanted, wait_s=0.2)
    [process] = serving() - others
    process.wait(20)
    assert ints(cluster.computes(Dataset.range(3), job_name="stuck")) == [0, 1, 2]


TOP_LEVEL = """
from pathlib import Path
import tundish as td

with (Path(__file__).parent / "imports").open("a") as file:
    file.write("x")
SIZE = 3

def grown(x):
    return x * SIZE

shared = td.service.distribute("distributed_epoch", "TARGET", job_name="top level")
ds = td.Dataset.range(4).map(grown, num_parallel_calls=2).apply(shared)
"""


def test_a_dataset_that_is_registered_where_a_module_begins(
    cluster: ReachedCluster, folder: Path
) -> None:
    """The processes that import the module for another one do not register it once more."""
    (folder / "top_level.py").write_text(TOP_LEVEL.replace("TARGET", cluster.target))
    done = subprocess.run(
        [sys.executable, "-c", "from top_level import ds; print(*map(int, ds))"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
    )
    assert done.stdout.split() == ["0", "3", "6", "9"]
    # Here, twice to compare, by the job, and by its workers.
    assert (folder / "imports").stat().st_size <= 6


# -- the end ----------------------------------------------------------------------------------------


def test_no_consumer_has_elements_of_another_after_the_process_has_died(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second consumer, which has had nothing, comes back first; the first one is in a long step."""
    others = serving()
    cluster = Cluster(stack, 1)
    ds = cluster.computes(Dataset.range(60).with_options(Options(workers=0)), job_name="two")
    one, two = (stack.enter_context(ds.iterator(iteration=0)) for _ in range(2))
    found = [int(next(one)) for _ in range(10)]
    (process,) = serving() - others
    process.kill()
    with ThreadPoolExecutor(1) as pool:
        back, join = threading.Event(), Holding.join

        def joined(holding: Holding) -> None:
            join(holding)
            back.set()

        monkeypatch.setattr(Holding, "join", joined)
        rest = pool.submit(lambda: [int(x) for x in two])
        assert back.wait(30)
        with pytest.raises(TimeoutError):  # it is given nothing
            rest.result(1)
        found += [int(x) for x in one]
        assert sorted([*found, *rest.result()]) == [*range(60)]


def test_a_dispatcher_hears_of_consumers_before_the_next_heartbeat(stack: ExitStack) -> None:
    """A job without consumers may be forgotten."""
    cluster = Cluster(stack, workers=1)
    client = stack.enter_context(DispatcherClient(cluster.target))

    def consumers() -> int:
        [job] = client.status()["jobs"]
        found: int = job["consumers"]
        return found

    with iter(cluster.computes(Dataset.range(1000), job_name="used")) as it:
        next(it)
        until(lambda: consumers() == 1, timeout_s=6.0)
    until(lambda: consumers() == 0, timeout_s=6.0)


def serving() -> set[psutil.Process]:
    """Return the processes of the jobs that this process's agents serve, and those of the cluster."""
    found = set()
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends as it is looked at
            if each.name() == NAME:
                found.add(each)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_job_whose_process_dies_is_served_again_at_once(
    stack: ExitStack, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tundish.service")
    others = serving()
    cluster = Cluster(stack, 1)
    ds = Dataset.range(60).with_options(Options(workers=0))
    iterator = stack.enter_context(iter(cluster.computes(ds, job_name="dies")))
    found = [int(next(iterator)) for _ in range(20)]
    (process,) = serving() - others
    process.send_signal(number)
    began = time.monotonic()
    found += [int(x) for x in iterator]
    assert found == [*range(60)]
    assert time.monotonic() - began < 8, "the next heartbeat would have been 12 s later"
    assert any("job 'dies': its process has ended" in each.message for each in caplog.records)


@pytest.mark.parametrize("times", [2, 1000])
def test_a_job_whose_process_dies_again_and_again_is_given_up(
    stack: ExitStack, tmp_path: Path, times: int
) -> None:
    (tmp_path / "ends").touch()
    ds = Dataset.from_generator(partial(killed, tmp_path / "ends", times))
    cluster = Cluster(stack, 1)
    shared = cluster.computes(ds.with_options(Options(workers=0)), job_name="poison")
    iterator = stack.enter_context(iter(shared))
    if times == 2:
        assert [int(x) for x in iterator] == [0, 1, 2]
    else:
        with pytest.raises(RuntimeError, match=r"'poison' is not started again: 3 times .*SIGKILL"):
            next(iterator)
        assert (tmp_path / "ends").stat().st_size == 3


def test_the_process_of_a_job_ends_with_its_agent() -> None:
    with ExitStack() as stack:
        others = serving()
        cluster = Cluster(stack, 1)
        iterator = iter(cluster.computes(Dataset.range(9).repeat(), job_name="ends"))
        stack.enter_context(iterator)
        next(iterator)
        (process,) = serving() - others
    assert not process.is_running()


# -- TLS --------------------------------------------------------------------------------------------


def test_jobs_with_certificates(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Authority(tmp_path / "authority").member("all")
    for name in ("certificate", "key", "authority"):
        monkeypatch.setenv(f"TUNDISH_SERVICE_TLS_{name.upper()}", getattr(files, name))
    cluster = Cluster(stack, 1)
    large = Dataset.range(30).map(larger)
    found = [int(x[0]) for x in cluster.computes(large, job_name="secret")]
    assert found == [*range(30)]
