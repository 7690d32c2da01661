"""Writing TFRecord files, record by record or a dataset at once."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from tests.formats.tfrecord.framing import framed

import tundish as td
from tundish.formats.bytes import sink

RECORDS = [b"first", b"", b"\x00\n\r\xff", b"x" * 300, b"last"]
WHOLE = b"".join(map(framed, RECORDS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some"
    with td.io.TFRecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
        writer.flush()
        assert not path.exists()

    assert path.read_bytes() == WHOLE
    assert names(tmp_path) == ["some"]


def test_many_records_and_large_ones(tmp_path: Path) -> None:
    """More than are gathered before they are written."""
    random.seed(4)
    records = [random.randbytes(k % 40) for k in range(20_000)] + [bytes(500_000)] * 2 + [b"last"]
    td.TFRecordWriter(tmp_path / "some").write(records)

    assert list(td.TFRecordDataset(tmp_path / "some")) == records


@pytest.mark.parametrize("kind", [bytes, np.bytes_, bytearray, memoryview, np.array])
def test_what_counts_as_bytes(kind: Any, tmp_path: Path) -> None:
    td.TFRecordWriter(str(tmp_path / "some")).write([kind(b"abc")])

    assert (tmp_path / "some").read_bytes() == framed(b"abc")


def test_what_is_written_may_be_changed_at_once(tmp_path: Path) -> None:
    record = bytearray(b"abc")
    with td.io.TFRecordWriter(tmp_path / "some") as writer:
        writer.write(record)
        record[:] = b"xyz"

    assert (tmp_path / "some").read_bytes() == framed(b"abc")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("text", "element 1: a record is bytes, not str, which must be encoded first ('text')"),
        (7, "element 1: a record is bytes, not int (7)"),
        ((b"a", b"b"), "element 1: a record is bytes, not tuple"),
        (np.arange(3), "element 1: a record is bytes, not ndarray"),
        (np.array([b"a"]), "element 1: a record is bytes, not ndarray"),
    ],
)
def test_what_does_not(wrong: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError) as caught:
        td.TFRecordWriter(tmp_path / "some").write([b"a", wrong])

    assert told in str(caught.value)
    assert names(tmp_path) == []


def test_what_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"dataset must be a Dataset of bytes, not int \(5\)"):
        td.TFRecordWriter(tmp_path / "some").write(5)  # type: ignore[arg-type]  # what is refused

    assert names(tmp_path) == []


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB", "ZSTD"])
def test_compressed(compression: str, tmp_path: Path) -> None:
    sizes = []
    for level in (None, 1, 9):
        options = td.io.TFRecordOptions(compression, compression_level=level)
        with td.io.TFRecordWriter(tmp_path / "some", options) as writer:
            for k in range(3000):
                writer.write(b"record %d of many" % k)
        sizes.append((tmp_path / "some").stat().st_size)
        found = list(td.TFRecordDataset(tmp_path / "some", compression))
        assert found == [b"record %d of many" % k for k in range(3000)]

    assert len({*sizes}) > 1 if compression else len({*sizes}) == 1


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("x", "LZ4"), ValueError),
        (("x", "gzip"), ValueError),
        (("x", 7), TypeError),
        ((7,), TypeError),
        ((None,), TypeError),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        td.TFRecordWriter(*arguments)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"compression_type": "LZ4"}, ValueError),
        ({"compression_type": "GZIP", "compression_level": 10}, ValueError),
        ({"compression_level": "9"}, TypeError),
        ({"compression_level": True}, TypeError),
    ],
)
def test_wrong_options(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        td.io.TFRecordOptions(**options)


# -- all or nothing ------------------------------------------------------------------------------


def breaking() -> Iterator[bytes]:
    yield from RECORDS * 1000
    raise RuntimeError("the source broke")


@pytest.mark.parametrize("url", [False, True])
def test_of_a_source_that_breaks_nothing_stays(url: bool, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/out/some", b"old")
    (tmp_path / "some").write_bytes(b"old")
    path = "memory://out/some" if url else str(tmp_path / "some")
    with pytest.raises(RuntimeError, match="the source broke"):
        td.TFRecordWriter(path).write(breaking())

    assert (memory.cat_file("/out/some") if url else Path(path).read_bytes()) == b"old"
    assert names(tmp_path) == ["some"]
    td.TFRecordWriter(path).write(RECORDS)
    assert (memory.cat_file("/out/some") if url else Path(path).read_bytes()) == WHOLE
    memory.rm("/out", recursive=True)


def test_who_never_closes_leaves_nothing(tmp_path: Path) -> None:
    writer = td.io.TFRecordWriter(tmp_path / "some")
    writer.write(b"a")
    assert len(names(tmp_path)) == 1
    del writer

    assert names(tmp_path) == []


def test_closing_twice_and_writing_after(tmp_path: Path) -> None:
    writer = td.io.TFRecordWriter(tmp_path / "some")
    writer.write(b"a")
    writer.close()
    writer.close()
    writer.abandon()
    writer.write(b"b")
    with pytest.raises(ValueError, match="is closed"):
        writer.close()

    assert (tmp_path / "some").read_bytes() == framed(b"a")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sink, "sync_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        td.TFRecordWriter(tmp_path / "some").write(RECORDS)

    assert caught.value.filename == str(tmp_path / "some")
    assert names(tmp_path) == []


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (tmp_path / "none" / "some", FileNotFoundError),
        (tmp_path, IsADirectoryError),
        (tmp_path / "pipe", OSError),
    ):
        with pytest.raises(kind) as caught:
            td.TFRecordWriter(path).write(RECORDS)
        assert caught.value.filename == str(path)

    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "target")
    td.TFRecordWriter(tmp_path / "link").write(RECORDS)

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "target").read_bytes() == WHOLE
    assert names(tmp_path / "folder") == ["target"]


# -- datasets ------------------------------------------------------------------------------------


def test_a_dataset(tmp_path: Path) -> None:
    ds = td.Dataset.range(100).map(lambda x: b"record %d" % x)
    td.experimental.TFRecordWriter(str(tmp_path / "some")).write(ds)

    assert list(td.TFRecordDataset(tmp_path / "some")) == list(ds)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_file_for_each_group(workers: int, tmp_path: Path) -> None:
    """Shards are written as tf.data's documentation writes them."""

    def write(key: np.int64, group: td.Dataset) -> td.Dataset:
        path = f"{tmp_path}/part-{key}"
        td.TFRecordWriter(path).write(group.map(lambda k, record: record))
        return td.Dataset.from_tensors(path)

    options = td.Options()
    options.workers = workers
    ds: td.Dataset = td.Dataset.range(1000).map(lambda x: b"record %d" % x).enumerate()
    ds = ds.group_by_window(lambda k, _: k % 3, write, np.iinfo(np.int64).max).with_options(options)

    assert list(ds) == [f"{tmp_path}/part-{key}" for key in range(3)]
    for key in range(3):
        expected = [b"record %d" % x for x in range(key, 1000, 3)]
        assert list(td.TFRecordDataset(tmp_path / f"part-{key}")) == expected
    assert names(tmp_path) == ["part-0", "part-1", "part-2"]
