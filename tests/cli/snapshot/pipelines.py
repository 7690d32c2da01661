"""Pipelines that the command line is pointed at, as a user's file, and ways to run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tundish as td
from tundish.cli import main
from tundish.testing.compare import Outcome, collect

FILE = '''
import os
import time
import numpy as np
import tundish as td

HERE = os.path.dirname(__file__)
COUNT = 60


def noted(i, rng):
    """An element of a few bytes; notes that it was computed."""
    with open(os.path.join(HERE, "computed"), "a") as file:
        file.write(f"{int(i)}\\n")
    return {"i": i, "x": rng.integers(0, 1 << 40, 4)}


def blocked(element):
    """Say that the 40th is reached, and wait for ever, while the file `gate` is there."""
    if element["i"] == 40 and os.path.exists(os.path.join(HERE, "gate")):
        with open(os.path.join(HERE, "reached"), "w") as file:
            file.write("here")
        while True:
            time.sleep(3600)
    return element


def fails(i):
    if i % 20 == 7:
        raise LookupError("no such record", int(i))
    return i * 2


def pieces(i):
    return td.Dataset.range(i % 4).map(fails_inside)


def fails_inside(k):
    if k == 2:
        raise LookupError("third piece")
    return k


def total(rows):
    if rows.sum() > 99:
        raise ArithmeticError("too much")
    return rows.sum()


def data():
    return td.Dataset.range(COUNT).map(noted, seed=1).map(blocked)


def bad():
    return td.Dataset.range(COUNT).shuffle(None, seed=3).map(fails)


def nested():
    return td.Dataset.range(9).flat_map(pieces)


def batches():
    return td.Dataset.range(40).batch(4).map(total)


def windowed():
    return td.Dataset.range(COUNT).shuffle(9, seed=1).map(fails)


def unseeded():
    return td.Dataset.range(12).flat_map(lambda i: td.Dataset.range(i).shuffle(5))


def large():
    return td.Dataset.range(COUNT).map(lambda i: np.full(1000, i))


def chosen():
    return td.Dataset.range(COUNT).skip(6).shard(2, 1).map(fails)


def unlucky(i, rng):
    if rng.integers(12) == 0:
        raise LookupError("unlucky", int(i), int(rng.integers(1 << 40)))
    return i


def passes():
    return td.Dataset.range(20).shuffle(None, seed=3).take(15).repeat(3).map(unlucky, seed=5)


def filtered():
    return td.Dataset.range(COUNT).filter(lambda i: i % 3 == 0)


def divided():
    return td.Dataset.range(COUNT).map(abs).batch(4)


def training():
    here = os.path.join(HERE, "kept")
    return td.Dataset.range(COUNT).map(abs).snapshot(here, compression="zstd").shuffle(9).batch(4)


def endless():
    return td.Dataset.range(COUNT).repeat().map(abs)


def above():
    """Above a snapshot that has to be complete to be divided."""
    return divided().snapshot(os.path.join(HERE, "below")).map(fails_in_batch)


def fails_in_batch(batch):
    if batch[0] == 28:
        raise LookupError("the eighth")
    return batch.sum()


def by_shard():
    below = td.Dataset.range(COUNT).map(abs)
    return below.snapshot(os.path.join(HERE, "kept"), shard_func=lambda i: i % 3)


def skipping():
    """Options above the snapshot: they count for what is below, in training as here."""
    below = td.Dataset.range(COUNT).map(fails).snapshot(os.path.join(HERE, "kept"))
    return below.batch(4).with_options(td.Options(on_error="skip", workers=1))


def lines():
    return td.TextLineDataset(os.path.join(HERE, "lines.txt"))


def raises():
    return {}["nothing"]


def nothing_there():
    return td.Dataset.list_files("/no/such/folder/*")


number = 3
'''


def write_file(folder: Path) -> Path:
    """The user's file."""
    path = folder / "pipelines_of_a_user.py"
    path.write_text(FILE)
    return path


def write(file: Path, name: str, *words: str, path: str = "kept", workers: int = 0) -> int:
    """Run the command in this process."""
    return main(
        ["snapshot", "write", f"{file.name}:{name}", path, "--workers", str(workers), *words]
    )


def command(*words: str) -> list[str]:
    """The command line as a process of its own."""
    return [sys.executable, "-m", "tundish", "snapshot", *words]


def start(folder: Path, *words: str, **environ: str) -> subprocess.Popen[str]:
    """Begin a command in a folder."""
    return subprocess.Popen(
        command(*words),
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def events(output: str) -> list[dict[str, Any]]:
    """The lines of ``--json``."""
    return [json.loads(line) for line in output.splitlines()]


def kept(dataset: td.Dataset) -> list[Outcome]:
    """Return what a complete snapshot gives; fail if it is not complete."""
    node = dataset._node
    with dataset.iterator(workers=0) as elements:
        assert [seen.doing for seen in elements.stats.snapshots] == ["read"], node
        return collect(elements)


def computed(folder: Path) -> list[int]:
    """Return which elements were computed, one after another."""
    path = folder / "computed"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []
