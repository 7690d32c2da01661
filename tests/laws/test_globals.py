"""Law 1 for globals of the user's modules that are changed at run time."""

from __future__ import annotations

import copy
import importlib.util
import os
import signal
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.changing import anew, config, late, reading
from tests.laws.otherwise import NOT_FORKED

from tundish import DataLoader, Dataset, Options
from tundish.errors import ChangedGlobalsError
from tundish.loader.plan.reaching import globals_read
from tundish.loader.plan.reads import GlobalName
from tundish.loader.run.starting import agreeing

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _as_imported() -> Iterator[None]:
    """Put everything back, and let nothing be known of an earlier test."""
    kept = [_state(module) for module in (config, late)]
    classes = config.Config.WIDTH, config.Base.DEPTH, reading.Reading.FACTOR
    known: list[Any] = [
        agreeing._seen,
        agreeing._taken,
        agreeing._own,
        agreeing._told,
    ]
    before = [each.copy() for each in known]
    for each in known:
        each.clear()
    yield
    for module, state in zip((config, late), kept, strict=True):
        vars(module).update(state)
    vars(reading)["TABLE"] = config.TABLE
    config.Config.WIDTH, config.Base.DEPTH, reading.Reading.FACTOR = classes
    for each, was in zip(known, before, strict=True):
        each.clear()
        each.update(was)


def _state(module: Any) -> dict[str, Any]:
    kinds = (int, str, dict, list, tuple, set, np.ndarray, config.Holder, type(None), Path)
    found = {name: value for name, value in vars(module).items() if name.isupper()}
    return {name: copy.deepcopy(v) if isinstance(v, kinds) else v for name, v in found.items()}


@pytest.mark.filterwarnings("ignore:.*changed at run time")
@pytest.mark.parametrize("workers", [1, 2])
def test_changes_of_every_kind_reach_workers(workers: int) -> None:
    config.change_all()
    reading.Reading.FACTOR = 3
    loader: dict[str, Any] = {"batch_size": 2, "collate_fn": list}
    expected = list(DataLoader(reading.Reading(), **loader))
    assert expected[0][0][3:6] == ("99", "b", "b'something'")
    assert list(DataLoader(reading.Reading(), num_workers=workers, **loader)) == expected
    ds = Dataset.range(4).map(reading.read_all)
    assert list(ds.iterator(workers=workers)) == list(ds.iterator(workers=0))


@NOT_FORKED
def test_a_change_is_told_once() -> None:
    config.set_size(50)
    ds = Dataset.range(2).map(lambda x: config.SIZE)
    with pytest.warns(UserWarning, match=r"changing\.config\.SIZE is 50, and 32 where"):
        assert [int(x) for x in ds.iterator(workers=1)] == [50, 50]
    config.set_size(51)
    assert [int(x) for x in ds.iterator(workers=2)] == [51, 51]


def test_what_a_bound_callable_reads_is_found() -> None:
    bound = types.MethodType(reading.Size(), "anything")

    size: Any = lambda x: bound(x) + 1  # noqa: E731 - the type of a `def` is a callable's
    assert GlobalName("tests.laws.changing.config", ("SIZE",)) in globals_read([size])


def test_nothing_is_told_where_nothing_was_changed() -> None:
    ds = Dataset.range(4).map(reading.read_all)
    assert list(ds.iterator(workers=1)) == list(ds.iterator(workers=0))


@NOT_FORKED
def test_what_depends_on_the_environment_is_the_workers_own() -> None:
    ds = Dataset.range(1).map(reading.read_own)
    (own,) = ds.iterator(workers=1)
    devices, process, started, token = own.split(" ")
    assert (int(process), int(started), token) == (os.getpid(), config.STARTED, config.TOKEN)
    assert devices == ""  # hidden: what the consumer sees is of no use there


@pytest.mark.filterwarnings("ignore:.*changed at run time")
def test_what_each_import_makes_anew_is_the_consumers() -> None:
    expected = [anew.read(x) for x in range(40)]
    ds = Dataset.range(40).map(anew.read)
    assert [_plain(each) for each in ds.iterator(workers=2)] == expected
    loader: Any = DataLoader(range(40), num_workers=2, collate_fn=_read_anew, batch_size=10)
    assert [each for batch in loader for each in batch] == expected


@NOT_FORKED
def test_the_order_of_a_set_was_not_changed_at_run_time() -> None:
    ds = Dataset.range(40).map(lambda x: anew.NUMBER[anew.WORDS[int(x)]])
    strict = ds.with_options(Options(globals="error"))
    assert [int(x) for x in strict.iterator(workers=1)] == [anew.NUMBER[w] for w in anew.WORDS]


def _read_anew(rows: Any) -> list[Any]:
    return [anew.read(x) for x in rows]


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(each if isinstance(each, str) else int(each) for each in row)


@NOT_FORKED
@pytest.mark.parametrize("count", [3_000, 70_000])
def test_values_of_any_size_and_of_other_packages(count: int, tmp_path: Path) -> None:
    """Each case is a process: the module is filled once."""
    script = tmp_path / "script.py"
    script.write_text(FILLING)
    command = [sys.executable, "-W", "ignore", str(script), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_with_root())
    assert done.returncode == 0, done.stderr


FILLING = """
import sys
import tundish as td
from tests.laws.changing import filled

ds = td.Dataset.range(10).map(filled.read)
inline = lambda: [filled.read(x) for x in range(10)]
parallel = lambda: [tuple(each.item() if hasattr(each, "item") else each for each in row) for row in ds.iterator(workers=2)]
assert parallel() == inline()
filled.fill(int(sys.argv[1]))
expected = inline()
assert parallel() == expected, (parallel(), expected)
filled.ARRAY[3] = 77
filled.RATES[5] = 9
filled.KIND = type("Mine", (), {"call": lambda self, x: -x})
filled.OPTIONS.function = lambda x: x + 7
assert parallel() == inline()
"""


def _with_root() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@NOT_FORKED
def test_workers_that_stay_get_a_large_value() -> None:
    loader = DataLoader(reading.Reading(), num_workers=1, persistent_workers=True, collate_fn=list)
    inline = DataLoader(reading.Reading(), collate_fn=list)
    assert list(loader) == list(inline)
    for size in (30_000, 40_000):
        config.STEPS[:] = range(size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert list(loader) == list(inline)


SCATTERED = """
import zlib
import tundish as td

def order(x):
    return "".join({f"word {i}" for i in range(20)})

if __name__ == "__main__":
    (text,) = td.Dataset.range(1).map(order).iterator(workers=1)
    print(zlib.crc32(str(text).encode()))
"""


@NOT_FORKED
def test_texts_have_one_hash_in_all_workers(tmp_path: Path) -> None:
    """The order of a set of texts is the same in the next run, with workers."""
    script = tmp_path / "script.py"
    script.write_text(SCATTERED)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    found = set()
    for seed in ({}, {}, {"PYTHONHASHSEED": "5"}):
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=True,
            env={**environ, **seed},
        )
        found.add(done.stdout)
    assert len(found) == 2


@NOT_FORKED
def test_what_functions_change_themselves_is_the_workers_own() -> None:
    config.CALLS, config.COUNTS[7] = 100, 100
    with Dataset.range(3).map(config.counted).iterator(workers=1) as iterator:
        assert [int(x) for x in iterator] == [1, 2, 3]
    config.HOLDER.calls = 100
    with Dataset.range(3).map(lambda _: config.HOLDER.call()).iterator(workers=1) as iterator:
        assert [int(x) for x in iterator] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:.*changed at run time")
def test_a_module_that_is_imported_late() -> None:
    late.LIMIT = 20
    ds = Dataset.range(2).map(reading.read_late)
    assert [int(x) for x in ds.iterator(workers=1)] == [20, 21]


def test_a_relative_import_within_a_function_is_followed() -> None:
    made: dict[str, Any] = {"__name__": "tests.laws.changing.made"}
    made["__package__"] = "tests.laws.changing"
    exec("def read(x):\n    from .config import SIZE\n    return SIZE", made)
    assert globals_read([made["read"]]) == {GlobalName("tests.laws.changing.config", ("SIZE",)): 32}


@NOT_FORKED
def test_policies() -> None:
    config.set_size(50)
    ds = Dataset.range(2).map(lambda x: config.SIZE)
    ignored = ds.with_options(Options(globals="ignore"))
    assert [int(x) for x in ignored.iterator(workers=1)] == [32, 32]
    with (
        ds.with_options(Options(globals="error")).iterator(workers=1) as iterator,
        pytest.raises(ChangedGlobalsError, match=r"config\.SIZE is 50, and 32 where"),
    ):
        next(iterator)
    loader: Any = DataLoader(reading.Reading(), num_workers=1, globals="error", collate_fn=list)
    with pytest.raises(ChangedGlobalsError, match="SIZE"):
        next(iter(loader))
    with pytest.raises(ValueError, match="globals must be 'ship', 'error' or 'ignore'"):
        Options(globals="maybe")
    with pytest.raises(ValueError, match="globals must be 'ship', 'error' or 'ignore'"):
        DataLoader([1], globals="maybe")


@pytest.mark.filterwarnings("ignore:.*changed at run time")
def test_each_epoch_of_workers_that_stay() -> None:
    loader = DataLoader(reading.Reading(), num_workers=1, persistent_workers=True, collate_fn=list)
    inline = DataLoader(reading.Reading(), collate_fn=list)
    assert list(loader) == list(inline)
    iterator: Any = iter(loader)
    pids = iterator.worker_pids()
    for size in (40, 41, 32):
        config.set_size(size)
        config.TABLE["size"] = size
        assert list(loader) == list(inline)
        assert iterator.worker_pids() == pids
    config.set_size(42)
    os.kill(pids[0], signal.SIGKILL)
    assert list(loader) == list(inline)
    config.NAME = "long" * 10_000  # no message takes it: other workers are told
    assert list(loader) == list(inline)
    iterator.close()


SCRIPT = """
import tundish as td

SIZE = 3

class Config:
    DEPTH = 1

class Data:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return SIZE * Config.DEPTH

loader = td.DataLoader(Data(), num_workers=1, persistent_workers=True, batch_size=2)
for SIZE, Config.DEPTH in ((3, 1), (4, 10)):
    (batch,) = loader
    print(*batch.tolist())
"""


def test_globals_of_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.split() == ["3", "3", "40", "40"]


@NOT_FORKED
def test_a_loader_whose_workers_disagree_is_not_read_before_they_agree() -> None:
    config.set_size(60)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loader = DataLoader(reading.Reading(), num_workers=2, collate_fn=list)
        assert {batch[0][3] for batch in loader} == {"60"}
    assert len([each for each in told if "config.SIZE" in str(each.message)]) == 1


@pytest.mark.filterwarnings("ignore:.*changed at run time")
def test_a_function_of_a_module_that_workers_cannot_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plugin.py"
    file.write_text("def triple(x):\n    return 3 * x\n\nclass Kind:\n    size = 4\n")
    spec = importlib.util.spec_from_file_location("a_plugin", file)
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "a_plugin", plugin)
    spec.loader.exec_module(plugin)
    config.NAME, config.NOTHING = plugin.triple, plugin.Kind
    ds = Dataset.range(3).map(lambda x: config.NAME(x) + config.NOTHING.size)
    assert [int(x) for x in ds.iterator(workers=1)] == [4, 7, 10]
