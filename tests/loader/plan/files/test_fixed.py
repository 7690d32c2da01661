"""`FixedLengthRecordDataset`: its arguments, and that where a record is, is arithmetic."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish.errors import RecordCorruptError
from tundish.formats.fixed import FixedFormat

Fixed = td.FixedLengthRecordDataset


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Two files of ``aaa``, ``bbb``, ... with a header of two bytes and a footer of one."""
    found = []
    for name, letters in (("one.bin", "abc"), ("two.bin", "de")):
        path = tmp_path / name
        path.write_bytes(b"HH" + "".join(letter * 3 for letter in letters).encode() + b".")
        found.append(path)
    return found


def test_records(paths: list[Path]) -> None:
    assert list(Fixed(paths, 3, 2, 1)) == [b"aaa", b"bbb", b"ccc", b"ddd", b"eee"]
    assert list(Fixed(paths[0], 4)) == [b"HHaa", b"abbb", b"ccc."]
    assert list(Fixed(td.Dataset.from_list(paths), 3, 2, 1, 100, "", 2)) == [
        b"aaa", b"ddd", b"bbb", b"eee", b"ccc",
    ]  # fmt: skip


def test_compressed(tmp_path: Path, paths: list[Path]) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(paths[0].read_bytes()))

    assert list(Fixed(packed, 3, 2, 1, compression_type="GZIP")) == [b"aaa", b"bbb", b"ccc"]
    with pytest.raises(TypeError, match="is not known before the dataset has run"):
        len(Fixed(packed, 3, 2, 1, compression_type="GZIP"))


def test_numbers_are_arithmetic(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ds = Fixed(paths, 3, 2, 1)

    assert len(ds) == 5
    assert [ds[k] for k in (4, 0, -2)] == [b"eee", b"aaa", b"ddd"]
    assert list(ds.skip(2).shard(2, 1)) == [b"ddd"]
    assert sorted(ds.shuffle(None, seed=1)) == list(ds)
    monkeypatch.setattr(FixedFormat, "open", None)  # no record is read for it
    assert len(Fixed(paths, 3, 2, 1).take(4)) == 4


def test_what_is_left_over(paths: list[Path]) -> None:
    """tf.data refuses such a file before its first record, if it is not compressed."""
    paths[0].write_bytes(b"HHaaabb.")
    found: list[object] = []
    it = iter(Fixed(paths, 3, 2, 1))
    with it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                break
            except RecordCorruptError as error:
                found.append((Path(error.path).name, error.offset))

    assert found == [b"aaa", ("one.bin", 5), b"ddd", b"eee"]
    assert list(Fixed(paths, 3, 2, 1, on_error="skip")) == [b"aaa", b"ddd", b"eee"]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"record_bytes": 0}, ValueError, "record_bytes must be at least 1, not 0"),
        ({"record_bytes": 2.0}, TypeError, "record_bytes must be an int, not float"),
        ({"header_bytes": -1}, ValueError, "header_bytes must be at least 0, not -1"),
        ({"footer_bytes": "1"}, TypeError, "footer_bytes must be an int, not str"),
        ({"compression_type": "BZIP2"}, ValueError, "compression_type must be one of"),
        ({"buffer_size": -1}, ValueError, "buffer_size must be at least 0"),
        ({"num_parallel_reads": 0}, ValueError, "num_parallel_reads"),
        ({"on_error": "ignore"}, ValueError, "on_error must be one of raise, skip"),
        ({"index": "here"}, ValueError, "index must be None, True, False or 'beside'"),
        ({"storage_options": "x"}, TypeError, "storage_options must be a dict"),
        ({"filenames": [1]}, TypeError, "filenames must hold paths, not int"),
        ({"filenames": iter("x")}, TypeError, "filenames must be a path, a list of paths, or a D"),
        ({"filenames": None}, TypeError, "filenames must be a path, .* not NoneType"),
    ],
)
def test_arguments(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Fixed(**{"filenames": "x", "record_bytes": 3, **arguments})
