"""Law 1 for what people set at run time: it holds in workers as it does without them."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.otherwise import NOT_FORKED
from tests.settings import CHANGES, ROWS, Observed, changed

from tundish import DataLoader, Dataset, Options

FOREIGN = ("torch", "torchvision", "pandas", "sklearn", "cv2")
"""Packages that are not installed for these tests; `tests/torch` has those that can be."""

NAMES = [name for name, row in ROWS.items() if row.module not in FOREIGN]

FAKE_CV2 = """
_optimized = True
def useOptimized(): return _optimized
def setUseOptimized(value):
    global _optimized
    _optimized = value
"""


def test_each_setting_of_the_table_is_changed_by_a_test() -> None:
    assert set(CHANGES) == set(ROWS)


def test_settings_hold_in_workers_of_a_dataset() -> None:
    with changed(NAMES):
        ds = Dataset.range(4).map(Observed(NAMES))
        expected = list(ds.iterator(workers=0))
        for workers in (1, 2):
            assert list(ds.iterator(workers=workers)) == expected
        assert list(ds.with_options(Options(executor="thread", workers=2))) == expected


def test_a_worker_that_is_a_thread_leaves_the_process_alone() -> None:
    """A thread that begins later does not undo what was changed after `iter`."""
    ds = Dataset.range(200).map(pausing).with_options(Options(executor="thread", workers=1))
    with changed(["sys.setrecursionlimit"]), iter(ds) as it:
        next(it)
        engine: Any = it._engine
        sys.setrecursionlimit(sys.getrecursionlimit() + 7)
        now = sys.getrecursionlimit()
        engine._pool.resize(3)
        assert len(list(it)) == 199
        assert sys.getrecursionlimit() == now


def pausing(x: Any) -> Any:
    time.sleep(0.001)
    return x


def test_a_setting_with_a_function_reaches_workers() -> None:
    with np.printoptions(precision=3, formatter={"float_kind": lambda x: f"<{x:.1f}>"}):
        ds = Dataset.range(2).map(shown)
        expected = list(ds.iterator(workers=0))
        assert expected[1] == "[<1.0> <0.5>]"
        assert list(ds.iterator(workers=1)) == expected


def shown(x: Any) -> str:
    return str(np.array([1.0, x / 2]))


def test_a_filter_of_a_category_that_a_worker_imports_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_category.py").write_text("class LateWarning(UserWarning): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    category = importlib.import_module("late_category").LateWarning
    ds = Dataset.range(3).map(warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error", category)
        for workers in (0, 1):
            with ds.iterator(workers=workers) as it, pytest.raises(category, match="late"):
                next(it)
        warnings.simplefilter("ignore", category)
        assert len(list(ds.iterator(workers=1))) == 3
    del sys.modules["late_category"]


def warned(x: Any) -> Any:
    category = importlib.import_module("late_category").LateWarning
    warnings.warn("it is late", category, stacklevel=1)
    return x


def test_a_time_zone_of_each_epoch_reaches_workers_that_stay() -> None:
    loader: Any = DataLoader(Hours(), num_workers=1, persistent_workers=True, collate_fn=list)
    before = list(loader)
    with changed(["time.tzset"]):
        expected = list(DataLoader(Hours(), collate_fn=list))
        assert expected != before
        assert list(loader) == expected
    assert list(loader) == before


class Hours:
    """The local hour of an hour."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> str:
        return time.strftime("%H:%M %Z", time.localtime(3600 * index))


def test_settings_hold_in_workers_of_a_loader() -> None:
    with changed(NAMES):
        dataset = Observed(NAMES)
        expected = list(DataLoader(dataset, collate_fn=list))
        for workers in (1, 2):
            assert list(DataLoader(dataset, num_workers=workers, collate_fn=list)) == expected


def test_settings_of_each_epoch_reach_workers_that_stay() -> None:
    dataset = Observed(["sys.setrecursionlimit", "numpy.seterr"])
    loader = DataLoader(dataset, num_workers=1, persistent_workers=True, collate_fn=list)
    before = list(loader)
    iterator: Any = iter(loader)
    pids = iterator.worker_pids()
    with changed(dataset.names):
        expected = list(DataLoader(dataset, collate_fn=list))
        assert expected != before
        assert list(loader) == expected
        assert iterator.worker_pids() == pids
        os.kill(pids[0], signal.SIGKILL)  # another takes its place
        assert list(loader) == expected
    assert list(loader) == before
    iterator.close()


@NOT_FORKED
def test_a_module_is_not_imported_for_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cv2.py").write_text(FAKE_CV2)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("cv2").setUseOptimized(False)
    try:
        ds = Dataset.range(2).map(loaded_and_set)
        assert list(ds.iterator(workers=1)) == [(False, False), (True, False)]
    finally:
        del sys.modules["cv2"]


def loaded_and_set(_: Any) -> tuple[bool, bool]:
    """Return whether cv2 was loaded before this call, and whether it optimises."""
    return "cv2" in sys.modules, importlib.import_module("cv2").useOptimized()


def test_filters_make_errors_of_warnings_in_workers() -> None:
    ds = Dataset.range(1).map(warns)
    with pytest.raises(UserWarning, match="heard"):  # as the tests' own filters say
        list(ds.iterator(workers=1))
    with changed(["warnings.filters"]):
        assert [int(x) for x in Dataset.range(1).map(warns_of_noise).iterator(workers=1)] == [0]


def warns(x: Any) -> Any:
    importlib.import_module("warnings").warn("heard", stacklevel=1)
    return x


def warns_of_noise(x: Any) -> Any:
    importlib.import_module("warnings").warn("noise", stacklevel=1)
    return x
