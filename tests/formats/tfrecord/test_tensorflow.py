"""Against tensorflow: files that it wrote, and, where it is installed, both ways at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tundish as td

SAMPLES = Path(__file__).parents[1] / "samples" / "tensorflow"
RECORDS = [bytes.fromhex(text) for text in json.loads((SAMPLES / "records.json").read_text())]
COMPRESSIONS = ("", "GZIP", "ZLIB")


def sample(compression: str) -> Path:
    return SAMPLES / f"records-{compression.lower() or 'plain'}.tfrecord"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_tensorflow_wrote_is_read(compression: str) -> None:
    assert list(td.TFRecordDataset(sample(compression), compression)) == RECORDS


def test_the_same_bytes_are_written(tmp_path: Path) -> None:
    """Only files that are not compressed are compared: compressors differ."""
    path = tmp_path / "ours"
    td.TFRecordWriter(path).write(RECORDS)

    assert path.read_bytes() == sample("").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_both_ways(compression: str, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    many = [*RECORDS, *(b"%d" % k * (k % 50) for k in range(2000)), b"\x00" * 300_000]
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    td.TFRecordWriter(ours, compression).write(many)
    with tf.io.TFRecordWriter(theirs, compression) as writer:
        for record in many:
            writer.write(record)

    assert list(tf.data.TFRecordDataset(ours, compression).as_numpy_iterator()) == many
    assert list(td.TFRecordDataset(theirs, compression)) == many
    if not compression:
        assert Path(ours).read_bytes() == Path(theirs).read_bytes()
