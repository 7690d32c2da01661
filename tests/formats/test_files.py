"""Records of several files by number: how they are asked for makes no difference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tundish.errors import RecordCorruptError
from tundish.formats.files import RecordFiles
from tundish.formats.format import ColumnRun
from tundish.formats.index import indexes_of
from tundish.formats.lines import LinesFormat


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RecordFiles]:
    """Lines of three files; line 4 of all is no text, and lines 7 and 8 are long."""
    lines = [b"%d" % k for k in range(20)]
    lines[4], lines[7], lines[8] = b"\xff", b"x" * 10_000, b"y" * 10_000
    paths = []
    for name, part in (("a", lines[:3]), ("b", []), ("c", lines[3:])):
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in part))
        paths.append(str(tmp_path / name))
    form = LinesFormat(encoding="utf-8")
    made = RecordFiles(form, paths, indexes_of(form, paths))
    yield made
    made.close()


@pytest.mark.parametrize(
    "numbers",
    [
        [0],
        [2, 3],
        [19, 0, 10],
        [5, 5, 4, 5, 4],
        [*range(0, 20, 2)],
        [*range(1, 20, 3)],
        [*range(20)],
        [],
    ],
)
def test_any_records_at_once(files: RecordFiles, numbers: list[int]) -> None:
    for number, found in zip(numbers, files.get(numbers), strict=True):
        if number == 4:
            assert isinstance(found, RecordCorruptError)
        else:
            assert found == files[number]


def test_records_that_lie_close_by_are_read_at_once(
    files: RecordFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = RecordFiles._read

    def counted(self: RecordFiles, file: int, first: int, *args: Any, **how: Any) -> Any:
        reads.append(first)
        return read(self, file, first, *args, **how)

    monkeypatch.setattr(RecordFiles, "_read", counted)
    assert files.get([0, 2, 5, 9, 10, 13, 19]) == ["0", "2", "5", "9", "10", "13", "19"]
    assert reads == [0, 5, 9]  # the lines between 5 and 9 are long


def test_records_without_columns_are_records() -> None:
    """A JSON line may be an object without a key."""
    run = ColumnRun(range(3), 3, {})

    assert run.records() == [run[0]] * 3 == [{}] * 3
