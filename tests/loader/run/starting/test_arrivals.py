"""Callbacks on imports: called once, when the module is there, whoever looked for it before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tundish import Dataset, Options
from tundish.loader.run.starting import arrivals
from tundish.loader.run.starting.arrivals import forget, when_imported


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two modules, of which the first imports the second, and one that fails while a file is there."""
    (tmp_path / "arriving_one.py").write_text("import arriving_two\nseen = arriving_two.value\n")
    (tmp_path / "arriving_two.py").write_text("value = 2\n")
    (tmp_path / "arriving_bad.py").write_text(
        f"import pathlib\nif pathlib.Path({str(tmp_path / 'bad')!r}).exists(): 1 / 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = ["arriving_one", "arriving_two", "arriving_bad"]
    yield names
    for name in names:
        sys.modules.pop(name, None)


def test_looking_whether_it_is_installed_is_no_arrival(modules: list[str]) -> None:
    calls: list[str] = []
    when_imported("arriving_two", lambda: calls.append("two"))
    for _ in range(3):
        assert importlib.util.find_spec("arriving_two") is not None
    thread = Thread(target=importlib.util.find_spec, args=["arriving_two"])
    thread.start()
    thread.join()
    assert calls == []
    two = importlib.import_module("arriving_two")
    assert calls == ["two"]
    assert type(two.__loader__) is not arrivals._Loader
    assert arrivals._FINDER not in sys.meta_path


def test_one_that_imports_another(modules: list[str]) -> None:
    calls: list[str] = []
    when_imported("arriving_one", lambda: calls.append("one"))
    when_imported("arriving_two", lambda: calls.append("two"))
    when_imported("arriving_one", lambda: calls.append("one again"))
    importlib.import_module("arriving_one")
    importlib.reload(sys.modules["arriving_one"])
    assert calls == ["two", "one", "one again"]


def test_one_that_fails_arrives_later(modules: list[str], tmp_path: Path) -> None:
    calls: list[str] = []
    (tmp_path / "bad").touch()
    when_imported("arriving_bad", lambda: calls.append("bad"))
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("arriving_bad")
    when_imported("arriving_two", lambda: calls.append("two"))
    importlib.import_module("arriving_two")
    assert calls == ["two"]
    (tmp_path / "bad").unlink()
    importlib.import_module("arriving_bad")
    assert calls == ["two", "bad"]


def test_what_is_forgotten_is_not_called(modules: list[str]) -> None:
    calls: list[str] = []

    def then() -> None:
        calls.append("two")

    when_imported("arriving_two", then)
    forget("arriving_two", then)
    forget("arriving_two", then)
    importlib.import_module("arriving_two")
    assert calls == []
    assert arrivals._FINDER not in sys.meta_path


def test_there_may_be_none(modules: list[str]) -> None:
    def then() -> None:
        raise AssertionError

    when_imported("arriving_nowhere", then)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("arriving_nowhere")
    assert importlib.util.find_spec("arriving_nowhere") is None
    forget("arriving_nowhere", then)


def precision(_: object) -> int:
    """Look for a library as others do that can use it, and import it then."""
    assert importlib.util.find_spec("pandas") is not None
    import pandas as pd

    return int(pd.get_option("display.precision"))


def test_settings_reach_a_worker_that_looked_before() -> None:
    pd = pytest.importorskip("pandas")
    ds = Dataset.range(1).map(precision)
    with pd.option_context("display.precision", 3):
        for start in ("zygote", "spawn"):
            with ds.with_options(Options(workers=1, start=start)).iterator() as it:
                assert list(it) == [3]
