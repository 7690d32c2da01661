"""Files on S3, over real HTTP, against a server on this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import tundish as td
from tundish.errors import RecordCorruptError

LINES = [f"line {n}" for n in range(1000)]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Yield the options of a filesystem of the server; a bucket ``data`` is there."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "nobody",
        "secret": "nothing",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-west-1"},
    }
    bucket = fsspec.filesystem("s3", **options)
    bucket.mkdir("data")
    yield options
    server.stop()


@pytest.fixture(scope="module")
def bucket(options: dict[str, Any]) -> Any:
    filesystem = fsspec.filesystem("s3", **options)
    for part in range(4):
        text = "\n".join(LINES[part * 250 : part * 250 + 250]).encode()
        filesystem.pipe_file(f"data/text/part-{part}.txt", text)
        filesystem.pipe_file(f"data/text/part-{part}.txt.gz", gzip.compress(text))
    filesystem.pipe_file("data/text/deep/er/part-9.txt", b"deep\n")
    filesystem.pipe_file("data/text/.hidden.txt", b"hidden\n")
    filesystem.pipe_file("data/fixed.bin", b"HEAD" + bytes(range(200)) + b".")
    return filesystem


@pytest.fixture
def texts(bucket: Any, options: dict[str, Any]) -> td.Dataset:
    paths = [f"s3://data/text/part-{part}.txt" for part in range(4)]
    return td.TextLineDataset(paths, encoding="utf-8", storage_options=options)


def test_list_files(bucket: Any, options: dict[str, Any]) -> None:
    def found(pattern: str) -> list[str]:
        listed = td.Dataset.list_files(pattern, shuffle=False, storage_options=options)
        return [path.removeprefix("s3://data/text/") for path in listed]

    assert found("s3://data/text/part-[01].txt") == ["part-0.txt", "part-1.txt"]
    assert found("s3://data/*/part-3.txt*") == ["part-3.txt", "part-3.txt.gz"]
    assert found("s3://data/text/*.txt") == [".hidden.txt", *(f"part-{n}.txt" for n in range(4))]
    assert found("s3://data/text/d*") == ["deep"]
    assert found("s3://data/**/part-9.txt") == ["deep/er/part-9.txt"]
    assert len(found("s3://da*/text/**")) == 10
    with pytest.raises(FileNotFoundError, match="part-7"):
        found("s3://data/text/part-7*")


def test_an_object_that_is_new_is_listed(bucket: Any, options: dict[str, Any]) -> None:
    def count() -> int:
        return len(td.Dataset.list_files("s3://data/more/*", storage_options=options))

    bucket.pipe_file("data/more/1", b"")
    assert count() == 1
    bucket.pipe_file("data/more/2", b"")
    assert count() == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_lines(texts: td.Dataset, workers: int) -> None:
    ds = texts.map(str.upper, num_parallel_calls=workers or None).batch(64)

    assert [line for batch in ds for line in batch] == [line.upper() for line in LINES]


@pytest.mark.parametrize("workers", [None, 2])
def test_compressed_lines_in_turn(
    bucket: Any, options: dict[str, Any], workers: int | None
) -> None:
    paths = td.Dataset.list_files("s3://data/text/*.gz", shuffle=False, storage_options=options)
    ds = td.TextLineDataset(
        paths, "GZIP", num_parallel_reads=workers, encoding="utf-8", storage_options=options
    )

    assert sorted(ds) == sorted(LINES)


def test_random_access(texts: td.Dataset) -> None:
    """Objects are looked through once, then a record is a request for its bytes."""
    assert len(texts) == 1000
    assert texts[617] == "line 617"
    assert sorted(texts.shuffle(None, seed=3)) == sorted(LINES)
    assert list(texts.shard(7, 2)) == LINES[2::7]


def test_resume(texts: td.Dataset) -> None:
    ds = texts.batch(30)
    with iter(ds) as it:
        seen = [line for _ in range(12) for line in next(it)]
        state = json.loads(json.dumps(it.state_dict()))
    with iter(ds) as it:
        it.load_state_dict(state)
        seen += [line for batch in it for line in batch]

    assert seen == LINES


def test_records_of_one_length(bucket: Any, options: dict[str, Any]) -> None:
    ds = td.FixedLengthRecordDataset("s3://data/fixed.bin", 20, 4, 1, storage_options=options)

    assert b"".join(ds) == bytes(range(200))
    assert ds[3] == bytes(range(60, 80))


def test_tfrecords(options: dict[str, Any]) -> None:
    written = [str(n).encode() * n for n in range(50)]
    for compression in ("", "GZIP"):
        path = f"s3://data/records/all{compression}.tfrecord"
        writer = td.TFRecordWriter(path, compression, storage_options=options)
        writer.write(td.Dataset.from_list(written))

        assert list(td.TFRecordDataset(path, compression, storage_options=options)) == written


def test_parquet(bucket: Any, options: dict[str, Any]) -> None:
    table = pa.table({"a": np.arange(100), "b": np.arange(100) / 2})
    with bucket.open("data/table.parquet", "wb") as sink:
        pq.write_table(table, sink, row_group_size=30)
    ds = td.ParquetDataset("s3://data/table.parquet", columns=["a"], storage_options=options)

    assert [int(row["a"]) for row in ds] == list(range(100))
    assert int(ds[71]["a"]) == 71


def test_what_is_not_there_is_an_error_in_its_place(bucket: Any, options: dict[str, Any]) -> None:
    paths = [
        "s3://data/more/1",
        "s3://data/nope",
        "s3://nobucket/nope",
        "s3://data/text/deep/er/part-9.txt",
    ]
    ds = td.TextLineDataset(paths, storage_options=options)
    it, found = iter(ds), []
    with it:
        while True:
            try:
                found.append(next(it))
            except StopIteration:
                break
            except FileNotFoundError as error:
                found.append(error.filename)

    assert found == ["s3://data/nope", "s3://nobucket/nope", b"deep"]


def test_an_object_that_changes_is_noticed(bucket: Any, options: dict[str, Any]) -> None:
    bucket.pipe_file("data/changing.txt", b"one\ntwo\n")
    ds = td.TextLineDataset("s3://data/changing.txt", storage_options=options, index=True)
    with iter(ds) as it:
        assert next(it) == b"one"
    bucket.pipe_file("data/changing.txt", b"four\nno\n")

    assert list(ds) == [b"four", b"no"]


def test_damage_tells_the_url(bucket: Any, options: dict[str, Any]) -> None:
    bucket.pipe_file("data/bad.txt", b"good\nb\xffd\nend")
    ds = td.TextLineDataset("s3://data/bad.txt", encoding="utf-8", storage_options=options)

    with pytest.raises(RecordCorruptError, match=r"s3://data/bad\.txt, byte 5: "):
        list(ds)
