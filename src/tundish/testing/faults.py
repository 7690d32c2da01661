"""Faults in stored files between two passes over a snapshot: a changed byte, a truncated file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.errors import SnapshotError
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.operators.stored import Stored
from tundish.loader.plan.node import walk
from tundish.loader.protocols.raised import is_interrupt
from tundish.testing.compare import Outcome, collect, difference, digest, outcome_of
from tundish.testing.expressions import Pipeline, Step
from tundish.testing.folders import standing

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tundish.loader.dataset import Dataset

__all__ = ["assert_faults_are_told", "check_faults", "damage"]

_MOST = 2_000  # elements of a pass
_SWALLOWING = re.compile(r"ignore_errors|on_error|retries")
_KEPT = "snapshot(folder()"


def check_faults(made: Pipeline, rng: random.Random, workers: Sequence[int]) -> None:
    """Check that a fault in the files of a pipeline's snapshot is reported.

    Parameters
    ----------
    made : Pipeline
        The pipeline. One without a snapshot, or that leaves errors out after it, gets one at its end.
    rng : random.Random
        For the fault, how much stands in the files, and the number of workers.
    workers : sequence of int
        Numbers of workers to choose from.

    Raises
    ------
    AssertionError
        An element that is not the right one came, or an error that does not say where.
    """
    after = str(made).partition(_KEPT)[2]
    if not _folders(made.build()) or _SWALLOWING.search(after):
        made = made.then(Step(".take(60).ignore_errors().map(Become('array')).snapshot(folder())"))
    dataset = made.build().take(_MOST)
    paths = _folders(dataset)
    stands = rng.choice((None, None, rng.randrange(60)))
    count = rng.choice((0, 0, 0, *workers))
    assert_faults_are_told(standing(dataset, stands), paths, rng, workers=count)


def _folders(dataset: Dataset) -> list[str]:
    """Return the folders of a plan's snapshots, without those of inputs that are never read."""
    nodes = walk(dataset._node)  # noqa: SLF001 - ours
    return [n.path for n in nodes if isinstance(n, Snapshot) and not isinstance(n, Stored)]


def damage(folder: str | Path, rng: random.Random) -> tuple[Path, str]:
    """Change a byte of a snapshot's file in place, or truncate a shard.

    Parameters
    ----------
    folder : path
        The folder with the snapshots.
    rng : random.Random
        For the file and the place.

    Returns
    -------
    (Path, str)
        Which file, and what was done to it.
    """
    files = sorted(
        file for file in Path(folder).rglob("*") if file.is_file() and file.stat().st_size
    )
    shards = [file for file in files if file.name.startswith("shard-")]
    file = rng.choice(shards if shards and rng.random() < 0.75 else files)
    size = file.stat().st_size
    at = rng.randrange(size)
    with file.open("r+b") as opened:
        if file in shards and rng.random() < 0.3:
            opened.truncate(at)
            return file, f"cut to {at} of {size} bytes"
        opened.seek(at)
        old = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([old ^ 1 << rng.randrange(8)]))
    return file, f"byte {at} of {size} changed"


def assert_faults_are_told(
    dataset: Dataset, folders: Sequence[str], rng: random.Random, *, workers: int = 0
) -> None:
    """Check that a fault between two passes is an error that names the file, or has no effect on elements.

    Parameters
    ----------
    dataset : Dataset
        A dataset with a snapshot, whose files may be incomplete.
    folders : sequence of str
        The folders of its snapshots.
    rng : random.Random
        For the fault.
    workers : int
        The number of workers that run the passes.

    Raises
    ------
    AssertionError
        The pass after the fault gave an element that the one before it did not give there.
    """
    with dataset.iterator(workers=workers) as iterator:
        expected = collect(iterator, limit=_MOST)
    file, what = damage(rng.choice(folders), rng)
    found, told = _until_told(dataset, workers)
    where = f"{file.name}, {what}"
    if told is None:
        problem = difference(expected, found, ("before", "after"))
    else:
        problem = difference(expected[: len(found)], found, ("before", "after"))
        assert str(file.parent.name) in str(told) or file.name in str(told), (
            f"{where}: the error names another file: {told!r}"
        )
        if file.name.startswith("shard-") and found:
            assert "element" in str(told), f"{where}: the error names no batch: {told!r}"
    assert problem is None, f"{where}: {problem}"


def _until_told(dataset: Dataset, workers: int) -> tuple[list[Outcome], SnapshotError | None]:
    """Return the outcomes before the first error of a file, and that error."""
    found: list[Outcome] = []
    try:
        iterator: Any = dataset.iterator(workers=workers)
    except SnapshotError as error:
        return found, error
    with iterator:
        while len(found) < _MOST:
            try:
                found.append(Outcome(None, digest(element := next(iterator)), repr(element)[:200]))
            except StopIteration:
                break
            except SnapshotError as error:
                return found, error
            except BaseException as error:
                if is_interrupt(error):
                    raise
                found.append(outcome_of(error))
    return found, None
