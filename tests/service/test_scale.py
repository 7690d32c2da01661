"""The simulation of one trainer with many remote workers, in short: what limits it, and what silent workers cost."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("service_scale")


def test_the_table_of_the_design(scale: Any) -> None:
    trainer = scale.Trainer(115e-6, 800e6)
    found = scale.scale(trainer, scale.CREWS, lambda crew: max(600, crew))
    limits = {(batch.name, workers): trainer.limits(batch, workers) for batch, workers, _ in found}
    least = {name: min(each, key=each.__getitem__) for name, each in limits.items()}
    assert len(found) == 16
    assert least["38.5 MB", 8] == "receiving"
    assert least["1 MB", 64] == "workers"
    assert least["64 KB", 1000] == "thread"
    for batch, workers, outcome in found:
        assert outcome.share > batch.least[scale.CREWS.index(workers)] - 0.2, (batch, workers)


def test_silent_workers_cost_less_than_a_second(scale: Any) -> None:
    trainer = scale.Trainer(115e-6, 800e6)
    alone = scale.silence(trainer, 5, hedged=False, batches=300)
    hedged = scale.silence(trainer, 5, hedged=True, batches=300)
    assert hedged.longest <= 1.0 < alone.longest
