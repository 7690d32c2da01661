"""Records of one length: arithmetic, and files that are not header, whole records and footer."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tundish.errors import RecordCorruptError
from tundish.formats.fixed import FixedFormat
from tundish.formats.format import RecordReader


def drained(reader: RecordReader, most: int = 1000) -> list[Any]:
    """All records, and the error at the end, as (offset, problem), if there is one."""
    found: list[Any] = []
    while True:
        at = reader.place
        try:
            run = reader.read(most)
        except RecordCorruptError as error:
            assert reader.place == at
            return [*found, (error.offset, error.problem)]
        if not len(run):
            assert reader.place == at
            return found
        assert run.places[0] == at
        assert run.after == reader.place
        found += run.records()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fixed.bin"


def written(path: Path, content: bytes, compression: str) -> str:
    if compression:
        module = {"GZIP": gzip, "ZLIB": zlib}[compression]
        content = module.compress(content)
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@given(
    st.integers(1, 9), st.integers(0, 3), st.integers(0, 3), st.integers(0, 40), st.integers(1, 7)
)
def test_any_file(  # noqa: PLR0917 - what hypothesis draws
    tmp_path_factory: pytest.TempPathFactory,
    compression: str,
    record: int,
    header: int,
    footer: int,
    size: int,
    most: int,
) -> None:
    path = tmp_path_factory.mktemp("fixed") / "any.bin"
    content = bytes(range(size))
    form = FixedFormat(record, header, footer, compression)
    name = written(path, content, compression)
    body = content[header : max(header, size - footer)]
    whole = [body[at : at + record] for at in range(0, len(body) - record + 1, record)]
    if size < header + footer:
        with pytest.raises(RecordCorruptError, match=rf"has {size:,} byte.* header \({header}\)"):
            form.open(name).read(1)
        return

    with form.open(name) as reader:
        found = drained(reader, most)
    if len(body) % record:
        offset, problem = found.pop()
        assert offset == header + len(whole) * record
        assert f"{len(body) % record} byte(s) are left over" in problem
        assert f"{len(body)} byte(s), no multiple of record_bytes={record}" in problem
    assert found == whole
    if not compression:
        places = range(header, header + len(body), record)
        assert form.places(name) == places
        assert len(places) == len(whole) + bool(len(body) % record)
        with form.open(name, ahead=False) as reader:
            for place, expected in reversed(list(zip(places, whole, strict=False))):
                reader.seek(place)
                assert reader.read(1).records() == [expected]
    for k, expected in enumerate(whole):
        with form.open(name, header + k * record) as reader:
            assert reader.read(1).records() == [expected]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_large_records_and_files(path: Path, compression: str) -> None:
    """More than a piece, in records that are larger than one and in those that are smaller."""
    content = bytes(range(256)) * 12_000
    name = written(path, content, compression)
    for record in (3, 256, 1_000_000, 1_536_000, 3_072_000):
        with FixedFormat(record, compression=compression).open(name) as reader:
            found = drained(reader)
        if len(content) % record:
            assert found.pop()[0] == len(content) // record * record
        assert b"".join(found) == content[: len(content) // record * record]
        assert {len(each) for each in found} == {record}


def test_a_record_size_beyond_all_files_allocates_nothing(path: Path) -> None:
    for compression in ("", "GZIP"):
        form = FixedFormat(1 << 60, compression=compression)
        with form.open(written(path, b"abc", compression)) as reader:
            assert drained(reader)[0][0] == 0


def test_where_no_record_begins(path: Path) -> None:
    form = FixedFormat(4, 2, 1)
    name = written(path, bytes(11), "")
    for place in (1, 3, 14):
        with pytest.raises(RecordCorruptError, match="no record") as caught:
            form.open(name, place)
        assert caught.value.offset == place
    with form.open(name, 10) as reader:  # behind the last
        assert drained(reader) == []


def test_a_compressed_file_has_no_places(path: Path) -> None:
    form = FixedFormat(3, compression="GZIP")
    with pytest.raises(NotImplementedError):
        form.places(str(path))
    assert not form.seekable
    assert not form.cheap


def test_a_compressed_file_that_is_cut_off(path: Path) -> None:
    content = b"".join(zlib.crc32(b"%d" % k).to_bytes(4, "big") for k in range(200_000))
    path.write_bytes(gzip.compress(content)[:-100_000])
    with FixedFormat(4, 8, 4, "GZIP").open(str(path)) as reader:
        *found, (_, problem) = drained(reader)

    assert len(found) > 150_000
    assert content[8:].startswith(b"".join(found))
    assert "cut off" in problem


def test_a_file_that_is_cut_off_while_it_is_read(path: Path) -> None:
    name = written(path, bytes(3_000_000), "")
    with FixedFormat(1000).open(name) as reader:
        assert len(reader.read(1000)) == 1000
        path.write_bytes(bytes(1_500_500))
        *found, (_, problem) = drained(reader)

    assert set(found) <= {bytes(1000)}
    assert "was cut off while it was read" in problem
