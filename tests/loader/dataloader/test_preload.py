"""Imports made once for all workers: installed modules that the dataset needs, nothing else."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.loader.dataloader.datasets import Numbers

import tundish as td
from tundish.loader.dataloader.flavour import modules_to_preload
from tundish.loader.dataloader.iterator import recipe_of

if TYPE_CHECKING:
    import pytest

OURS = "tundish.loader.dataloader.worker"
ROOT = Path(__file__).parents[3]
PIPELINES = ("tundish.loader.dataset", "tundish.loader.run.working.worker", "pyarrow")
PROGRAM = """
import sys
from tests.loader.dataloader.datasets import Loaded
from tundish import DataLoader
for name in sys.argv[1:]:
    (batch,) = DataLoader(Loaded(name), 4, num_workers=1)
    print(name in sys.modules, *batch)
"""


def wanted(dataset: Any, **given: Any) -> set[str]:
    return set(modules_to_preload(recipe_of(td.DataLoader(dataset, **given), 0)))


def test_a_dataset_that_needs_nothing() -> None:
    assert wanted(range(4)) == {OURS}


def test_a_loader_of_samples_needs_nothing_of_pipelines() -> None:
    """Neither its consumer nor its workers wait for the imports of what they do not use."""
    command = [sys.executable, "-c", PROGRAM, *PIPELINES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["False 0 0 0 0"] * len(PIPELINES)


def test_what_its_module_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through modules of the user's, which are not imported themselves."""
    middle = types.ModuleType("users_middle")
    middle.__dict__["packaging"] = __import__("packaging.version")
    module = types.ModuleType("users_dataset")
    module.__dict__["helper"] = middle
    monkeypatch.setitem(sys.modules, "users_middle", middle)
    monkeypatch.setitem(sys.modules, "users_dataset", module)
    kind = type("Users", (Numbers,), {"__module__": "users_dataset"})

    assert "packaging" in wanted(kind(4))
    assert not {"users_dataset", "users_middle"} & wanted(kind(4))


def test_what_they_import_when_they_are_called() -> None:
    """An import within a function, a method or a function within it: else each worker does it for itself."""

    class Users(Numbers):
        def __getitem__(self, index: int) -> Any:
            from packaging import version

            return str(version.Version(str(index)))

    def collate(samples: list[Any]) -> Any:
        def inner() -> Any:
            import hypothesis.strategies

            return hypothesis.strategies

        return samples, inner

    __import__("packaging.version")
    __import__("hypothesis.strategies")
    assert {"packaging", "hypothesis.strategies"} <= wanted(Users(4), collate_fn=collate)


def test_what_its_functions_need() -> None:
    def collate(samples: list[Any]) -> Any:
        return samples

    collate.__module__ = "hypothesis.strategies"  # as a function of a library has it
    sys.modules.setdefault("hypothesis.strategies", __import__("hypothesis.strategies"))
    assert "hypothesis.strategies" in wanted(range(4), collate_fn=collate)
