"""A line of 100 MB, and a hundred thousand files: little of either is in memory at once."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

import tundish as td

LINE = 100_000_000


@pytest.mark.slow
def test_a_line_of_100_mb(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(100):
            file.write(b"x" * (LINE // 100))
        file.write(b"\r\nlast")
    before = peak()

    with iter(td.TextLineDataset(path)) as it:
        sizes = [len(line) for line in it]

    assert sizes == [5, LINE, 4]
    assert peak() - before < 6 * LINE


@pytest.mark.slow
def test_a_line_that_never_ends_may_be_read_in_a_compressed_file(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"x" * (LINE // 4) + b"\nlast", 1))

    assert [len(line) for line in td.TextLineDataset(path, "GZIP")] == [LINE // 4, 4]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2_000, marks=pytest.mark.slow),
        pytest.param(100_000, marks=pytest.mark.thorough),
    ],
)
def test_many_tiny_files(count: int, tmp_path: Path) -> None:
    for k in range(count):
        (tmp_path / f"{k:06d}.txt").write_bytes(b"%d\n" % k if k % 10 else b"")
    files = td.Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    expected = [b"%d" % k for k in range(count) if k % 10]

    ds = td.TextLineDataset(files)
    assert list(ds) == expected
    with iter(td.TextLineDataset(files, num_parallel_reads=3)) as it:
        assert sorted(it) == sorted(expected)
    with iter(ds) as it:
        for _ in range(len(expected) // 2):
            next(it)
        state = it.state_dict()
    with iter(ds) as it:
        it.load_state_dict(state)
        assert list(it) == expected[len(expected) // 2 :]
    assert len(ds) == len(expected)
    assert sorted(ds.shuffle(None, seed=1)) == sorted(expected)


def peak() -> int:
    """The most memory this process had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
