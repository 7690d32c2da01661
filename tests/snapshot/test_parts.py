"""Ranges made by several processes: which run stands for each, and when they are one snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish.errors import SnapshotError
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.encoding.forms import columns_of
from tundish.snapshot.parts import joined, numbers_of_parts, part_manifest, parts_of
from tundish.snapshot.reading.reader import open_reader
from tundish.snapshot.records import RunHeader, StoredError
from tundish.snapshot.writing.writer import RunWriter

KEY = "0123456789abcdef"


def write(
    path: Path,
    part: tuple[int, int],
    elements: list[Any],
    *,
    end: bool = True,
    created: str | None = None,
    **fields: Any,
) -> str:
    """A run of a part, as the engine makes it."""
    catalog = Catalog(path)
    header = RunHeader(KEY, created or f"2026-01-0{part[0] + 1}", "0.1", part=part)
    run = catalog.begin_run(KEY, header, [])
    writer = RunWriter(str(path), KEY, run, name="0badcafe", compression=None, shard_bytes=1 << 20)
    kept = [element for element in elements if not isinstance(element, Exception)]
    failed = [
        StoredError.of(n, element)
        for n, element in enumerate(elements)
        if isinstance(element, Exception)
    ]
    if elements:
        writer.write(0, [columns_of(kept)] if kept else [], failed)
    writer.commit(0, writer.seal(), len(elements), None, {})
    if end:
        assert writer.finish({"content": "same", **fields})
    writer.abandon()
    return run


def numbers(*values: int) -> list[Any]:
    return [np.int64(value) for value in values]


def test_ranges_stand_one_behind_the_other(tmp_path: Path) -> None:
    write(tmp_path, (2, 3), numbers(5))
    write(tmp_path, (0, 3), [*numbers(0, 1), LookupError("two")])
    write(tmp_path, (1, 3), [])
    catalog = Catalog(tmp_path)
    assert catalog.manifest(KEY) is None

    manifest = joined(parts_of(catalog, KEY, 3))
    assert (manifest.rows, len(manifest.runs)) == (4, 3)
    assert catalog.publish(KEY, manifest)
    reader = open_reader(str(tmp_path), KEY)
    assert [reader[0], reader[1], reader[3]] == [0, 1, 5]
    with pytest.raises(LookupError, match="two"):
        _ = reader[2]


@pytest.mark.parametrize("seed", range(6))
def test_of_two_complete_runs_of_a_range_the_later_counts(tmp_path: Path, seed: int) -> None:
    """As after the input files were rewritten; the names of runs, which are random, say nothing."""
    for created in ("2026-01-01", "2026-01-02"):
        for index in range(2):
            word = int(created[-1])
            inputs = ([word],)
            write(tmp_path, (index, 2), numbers(word, index), created=created, inputs=inputs)

    manifest = joined(parts_of(Catalog(tmp_path), KEY, 2))
    Catalog(tmp_path).publish(KEY, manifest)
    reader = open_reader(str(tmp_path), KEY)
    assert [int(reader[n]) for n in range(4)] == [2, 0, 2, 1]
    assert manifest.inputs == ([2],)


def test_of_several_runs_of_a_range_the_complete_one_counts_then_the_longest(
    tmp_path: Path,
) -> None:
    write(tmp_path, (0, 2), numbers(1, 2, 3), end=False)
    complete = write(tmp_path, (0, 2), numbers(1, 2))
    write(tmp_path, (1, 2), numbers(1), end=False)
    longer = write(tmp_path, (1, 2), numbers(1, 2), end=False)
    write(tmp_path, (0, 5), numbers(1))

    first, second = parts_of(Catalog(tmp_path), KEY, 2)
    assert first.prefix is not None
    assert second.prefix is not None
    assert (first.prefix.run, first.rows) == (complete, 2)
    assert first.manifest == part_manifest(Catalog(tmp_path), KEY, complete)
    assert (second.prefix.run, second.rows, second.manifest) == (longer, 2, None)
    assert numbers_of_parts(Catalog(tmp_path), KEY) == {2: "2026-01-02", 5: "2026-01-01"}


def test_a_range_that_nobody_began(tmp_path: Path) -> None:
    write(tmp_path, (0, 2), numbers(1))
    assert [part.prefix is None for part in parts_of(Catalog(tmp_path), KEY, 2)] == [False, True]
    assert parts_of(Catalog(tmp_path / "nothing"), KEY, 1)[0].rows == 0


def test_shapes_may_differ_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, (0, 2), [np.zeros(2, np.float32)])
    write(tmp_path, (1, 2), [np.zeros(3, np.float32)])
    manifest = joined(parts_of(Catalog(tmp_path), KEY, 2))
    assert manifest.rows == 2

    others: list[tuple[Any, str]] = [
        (np.zeros(3), "float64"),
        (np.zeros((3, 1), np.float32), "float32"),
        ({"a": np.zeros(3, np.float32)}, "structure"),
    ]
    for wrong, told in others:
        other = tmp_path / told
        write(other, (0, 2), [np.zeros(2, np.float32)])
        write(other, (1, 2), [wrong])
        with pytest.raises(SnapshotError, match=f"shards 0 and 1 of 2 cannot .*{told}"):
            joined(parts_of(Catalog(other), KEY, 2))


def test_other_seeds_are_refused(tmp_path: Path) -> None:
    write(tmp_path, (0, 2), numbers(1))
    write(tmp_path, (1, 2), numbers(1), content="other")
    with pytest.raises(SnapshotError, match="different random seeds"):
        joined(parts_of(Catalog(tmp_path), KEY, 2))


def test_marks_are_put_together(tmp_path: Path) -> None:
    write(tmp_path, (0, 2), numbers(1), marks={"skipped": 2, "unordered": False, "random": False})
    write(tmp_path, (1, 2), numbers(1), marks={"skipped": 3, "unordered": True})
    manifest = joined(parts_of(Catalog(tmp_path), KEY, 2))

    assert dict(manifest.marks) == {"skipped": 5, "unordered": True, "random": False}
