"""Record i of files that cannot be told: the error says why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tundish as td
from tundish.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

CASES: list[tuple[dict[str, Any], str]] = [
    ({"compression_type": "GZIP"}, "a GZIP file is read from its start"),
    ({"num_parallel_reads": 2}, "several files in turn"),
    ({"on_error": "skip"}, r"ignore_errors\(\)"),
    ({"index": False}, "index=False"),
]


@pytest.mark.parametrize(
    ("arguments", "why"), CASES, ids=["compressed", "in turn", "skip", "no index"]
)
def test_why_there_are_no_numbers(tmp_path: Path, arguments: dict[str, Any], why: str) -> None:
    ds = td.TextLineDataset(tmp_path / "some.txt", **arguments)

    with pytest.raises(SpecError, match=rf"TextLineDataset has none \(.*{why}.*\); use shuffle"):
        ds.shuffle(None)
    with pytest.raises(TypeError, match=rf"before the dataset has run \(.*{why}"):
        len(ds)
    with pytest.raises(TypeError, match=rf"no random access \(.*{why}"):
        ds[0]


def test_paths_that_are_not_known_yet(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("one\n")
    paths = td.Dataset.list_files(str(tmp_path / "*"))
    ds = td.TextLineDataset(paths).map(len)

    with pytest.raises(SpecError, match=r"map has none \(TextLineDataset: .*shuffle=False\)"):
        ds.shuffle(None)


def test_a_query_is_no_file() -> None:
    ds = td.SqlDataset("sqlite", "some.db", "select 1")

    with pytest.raises(SpecError, match="a query runs from its start"):
        ds.shuffle(None)
