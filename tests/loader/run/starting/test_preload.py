"""Imports that the zygote makes once for all workers of a dataset's iterator."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from tests.laws.functions import pure

from tundish import Dataset, Options
from tundish.loader.protocols.context import Context
from tundish.loader.run.pool.crew import crew_of
from tundish.loader.run.starting.preload import installed
from tundish.testing.functions import Inner, Tag

if TYPE_CHECKING:
    import pytest


def preloaded(dataset: Dataset) -> set[str]:
    crew = crew_of(Context(dataset._node, 0, 0), Options(), "process")
    assert crew.payload is not None
    crew.payload.close()
    return set(crew.preload)


def measured(x: Any) -> Any:
    return x + psutil.cpu_count()


def drawing(x: Any) -> Any:
    return x + np.random.rand()  # noqa: NPY002 - as users do


def test_the_users_own_modules_are_left_to_the_workers() -> None:
    assert not {name for name in preloaded(Dataset.range(3).map(pure)) if "tests" in name}


def test_what_the_users_modules_have_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    middle = types.ModuleType("users_middle")
    middle.__dict__["packaging"] = __import__("packaging.version")
    module = types.ModuleType("users_functions")
    module.__dict__["helper"] = middle
    monkeypatch.setitem(sys.modules, "users_middle", middle)
    monkeypatch.setitem(sys.modules, "users_functions", module)

    assert installed(["users_functions"]) == ("packaging",)
    assert installed(["", "nowhere", "numpy", "json", "__main__"]) == ()


def test_a_class_that_names_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class like that of Cython's functions' classes, where a descriptor answers for each of those."""
    told = property(lambda cls: "packaging.version")
    meta = type("Meta", (type,), {"__module__": told})
    module = types.ModuleType("users_functions")
    module.__dict__.update(meta=meta, made=meta("Made", (), {}), other=__import__("packaging"))
    monkeypatch.setitem(sys.modules, "users_functions", module)

    assert "packaging" in installed(["users_functions"])


def test_what_a_function_needs_is_imported_before_workers_are_made() -> None:
    """An installed module, by way of the module of the function."""
    assert "psutil" in preloaded(Dataset.range(3).map(measured))
    assert "psutil" not in preloaded(Dataset.range(3).map(pure))


def test_random_numbers_of_numpy_are_imported_for_what_draws() -> None:
    rng, module = np.random.default_rng(1), "numpy.random"

    assert module in preloaded(Dataset.range(3).map(drawing))
    assert module in preloaded(Dataset.range(3).map(lambda x: x + drawing(x)))
    assert module in preloaded(Dataset.range(3).map(Tag(rng)))  # type: ignore[arg-type]  # it holds anything
    assert "tundish.loader.protocols.rng" in preloaded(
        Dataset.range(3).map(lambda x, rng: rng.random(), seed=1)
    )
    assert module not in preloaded(Dataset.range(3).map(abs))


def test_our_own_modules_that_a_plan_needs() -> None:
    assert "tundish.testing.functions" in preloaded(Dataset.range(3).map(Tag(1)))
    assert "tundish.loader.dataset" in preloaded(Dataset.range(3).flat_map(Inner(None)))
    assert "tundish.loader.dataset" not in preloaded(Dataset.range(3).map(pure))


def test_what_reads_a_snapshot(tmp_path: Path) -> None:
    reader = "tundish.snapshot.reading.reader"
    Dataset.range(4).save(str(tmp_path))

    assert reader in preloaded(Dataset.load(str(tmp_path)).map(pure))
    assert reader not in preloaded(Dataset.range(4).map(pure))
