"""Snapshots whose shards are written by tasks of a Ray cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.services.raycluster import ENVIRONMENT, RayCluster

import tundish as td
from tundish.snapshot.catalog import Catalog
from tundish.testing import collect

pytestmark = [pytest.mark.untidy, pytest.mark.slow]

FILE = '''
import os
import signal
import numpy as np
import tundish as td

HERE = os.path.dirname(os.path.abspath(__file__))


def load(i, rng):
    with open(os.path.join(HERE, f"by-{os.getpid()}"), "a") as file:
        file.write(f"{int(i)}\\n")
    return {"i": i, "x": rng.random(50), "text": "é" * (int(i) % 5)}


def deadly(element):
    """Kill the process at the 70th, the first time."""
    mark = os.path.join(HERE, "killed")
    if element["i"] == 70 and os.path.exists(mark):
        os.unlink(mark)
        os.kill(os.getpid(), signal.SIGKILL)
    return element


def wrong(element):
    if element["i"] == 33:
        raise ValueError("33 is wrong")
    return element


def data():
    made = td.Dataset.range(120).shuffle(None, seed=3).map(load, seed=1).map(deadly)
    return made.filter(lambda x: x["i"] % 7 > 0)


def bad():
    return td.Dataset.range(40).map(load, seed=1).map(wrong)
'''


def command(cluster: RayCluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **ENVIRONMENT, "RAY_ADDRESS": cluster.address}
    return subprocess.run(
        [sys.executable, "-m", "tundish", "snapshot", *words],
        cwd=folder,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )


def elements(path: Path) -> list[Any]:
    return collect(td.Dataset.load(path).iterator(workers=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(FILE)
    return tmp_path


def test_shards_on_ray_are_the_snapshot_of_one_process(cluster: RayCluster, folder: Path) -> None:
    """A task is killed in the middle, and continued by the next attempt."""
    (folder / "killed").touch()
    run = command(cluster, folder, "write", "train.py:data", "far", "--on", "ray", "--parts", "3")
    computed = [int(n) for path in folder.glob("by-*") for n in path.read_text().split()]
    one = command(cluster, folder, "write", "train.py:data", "one")

    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 shards on Ray" in run.stdout
    assert one.returncode == 0, one.stdout + one.stderr
    assert not (folder / "killed").exists()
    assert elements(folder / "far") == elements(folder / "one")
    assert {path.name for path in (folder / "far").glob("?" * 16)} == {
        path.name for path in (folder / "one").glob("?" * 16)
    }
    key = Catalog(folder / "far").newest()
    manifest = Catalog(folder / "far").manifest(key or "")
    assert manifest is not None
    assert len(manifest.runs) == 3
    assert set(computed) == set(range(120))
    again = command(cluster, folder, "write", "train.py:data", "far", "--on", "ray", "--parts", "3")
    assert again.returncode == 0, again.stdout + again.stderr


def test_what_goes_wrong_on_ray_is_told(cluster: RayCluster, folder: Path) -> None:
    run = command(cluster, folder, "write", "train.py:bad", "out", "--on", "ray", "--parts", "2")

    assert run.returncode == 6, run.stdout + run.stderr
    assert "33 is wrong" in run.stdout
    assert "--max-errors 0 allows" in run.stdout
    again = command(
        cluster, folder, "write", "train.py:bad", "out", "--on", "ray", "--parts", "2",
        "--max-errors", "1", "--bad-records", "bad.jsonl", "--json",
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert "33 is wrong" in (folder / "bad.jsonl.1").read_text()
    assert '"event": "complete"' in again.stdout
