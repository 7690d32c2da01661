"""Reading TFRecord files: every way, and every damage."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise
from pathlib import Path

import fsspec
import pytest
from tests.formats.tfrecord.framing import framed

from tundish.errors import RecordCorruptError
from tundish.formats.format import RUN_BYTES
from tundish.formats.tfrecord import crc, reader
from tundish.formats.tfrecord.reader import TFRecordFormat, TFRecordReader
from tundish.formats.tfrecord.writer import TFRecordWriter

PLAIN = TFRecordFormat()
LITTLE = [b"first", b"", b"\x00\n\r\xff", b"x" * 9, b"last"]
HEADERS = 16


def some_records() -> dict[str, list[bytes]]:
    """Kinds of files: what is in them decides how they are gone through."""
    random.seed(2)
    pool = random.randbytes(1 << 20)

    def of(sizes: list[int]) -> list[bytes]:
        starts = [random.randrange(len(pool) - size) for size in sizes]
        return [pool[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    return {
        "none": [],
        "empty": [b""] * 3000,
        "alike": of([100] * 5000),
        "other": of([random.randrange(300) for _ in range(5000)]),
        "runs": of([size for size in (3, 90, 7) for _ in range(1500)]),
        "middle": of([random.randrange(20_000, 50_000) for _ in range(60)]),
        "large": of([100_000, 5, 40_000, 700_000, 0, 10, 300_000, 300_000, 300_000, 300_000, 3]),
    }


RECORDS = some_records()
kinds = pytest.mark.parametrize("kind", RECORDS)


def places_of(records: list[bytes]) -> list[int]:
    return list(accumulate((len(record) + HEADERS for record in records), initial=0))


def written(folder: Path, records: list[bytes], compression: str = "") -> str:
    path = folder / "some.tfrecord"
    TFRecordWriter(path, compression).write(records)
    return str(path)


def read(
    opened: TFRecordReader, most: int = sys.maxsize
) -> Iterator[tuple[int, bytes | RecordCorruptError]]:
    """Yield what comes, by its place, errors in theirs; up to the end, or to where nobody can go on."""
    with opened:
        while True:
            before = opened.place
            try:
                run = opened.read(most)
            except RecordCorruptError as error:
                yield before, error
                if opened.place == before:
                    return
                continue
            if not len(run):
                return
            assert run.places[0] == before
            assert run.after == opened.place
            assert len(run) <= most
            yield from zip(map(int, run.places), run.records(), strict=True)


@kinds
@pytest.mark.parametrize("most", [1, 7, sys.maxsize])
def test_all_records_and_their_places(kind: str, most: int, tmp_path: Path) -> None:
    records = RECORDS[kind]
    path = written(tmp_path, records)
    expected = list(zip(places_of(records), records, strict=False))

    assert list(read(PLAIN.open(path), most)) == expected
    assert PLAIN.places(path).tolist() == places_of(records)[:-1]


@kinds
def test_without_compiled_checksums(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, RECORDS[kind])
    monkeypatch.setattr(crc, "_compiled", lambda: None)

    assert [record for _, record in read(PLAIN.open(path))] == RECORDS[kind]
    assert len(PLAIN.places(path)) == len(RECORDS[kind])
    before = Path(path).read_bytes()
    assert Path(written(tmp_path, RECORDS[kind])).read_bytes() == before


@kinds
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "ZSTD"])
def test_compressed(kind: str, compression: str, tmp_path: Path) -> None:
    records = RECORDS[kind]
    path = written(tmp_path, records, compression)
    form = TFRecordFormat(compression)
    places = places_of(records)
    assert not form.seekable

    assert list(read(form.open(path))) == list(zip(places, records, strict=False))
    for k in {0, 1, len(records) // 2, len(records)}:
        if k <= len(records):
            assert [value for _, value in read(form.open(path, places[k]), 5)] == records[k:]
    with pytest.raises(NotImplementedError):
        form.places(path)


@kinds
@pytest.mark.parametrize("ahead", [True, False])
def test_here_and_there(kind: str, ahead: bool, tmp_path: Path) -> None:
    records = RECORDS[kind]
    places = places_of(records)
    wanted = random.Random(3).choices(range(len(records)), k=50) if records else []
    with PLAIN.open(written(tmp_path, records), ahead=ahead) as opened:
        for k in wanted:
            opened.seek(places[k])
            assert opened.read(1).records() == [records[k]]
            assert opened.place == places[k + 1]
        opened.seek(places[-1])
        assert len(opened.read(1)) == 0
    for k in wanted[:5]:
        with PLAIN.open(str(tmp_path / "some.tfrecord"), places[k], ahead=ahead) as opened:
            found = opened.read(2).records()
            assert found == records[k : k + len(found)] != []


@kinds
@pytest.mark.parametrize("buffer_size", [0, 1, 13, 100, 1 << 22])
def test_whatever_is_read_at_once(kind: str, buffer_size: int, tmp_path: Path) -> None:
    records = RECORDS[kind][:200]
    form = TFRecordFormat(buffer_size=buffer_size)
    runs = []
    with form.open(written(tmp_path, records)) as opened:
        while len(run := opened.read(sys.maxsize)):
            runs.append(run.records())

    assert list(chain.from_iterable(runs)) == records
    assert all(sum(map(len, run[:-1])) <= RUN_BYTES for run in runs)


def test_over_a_url() -> None:
    records = RECORDS["other"]
    TFRecordWriter("memory://some.tfrecord").write(records)
    form = TFRecordFormat(storage_options=(("skip_instance_cache", False),))

    assert [value for _, value in read(form.open("memory://some.tfrecord"))] == records
    assert form.places("memory://some.tfrecord").tolist() == places_of(records)[:-1]
    fsspec.filesystem("memory").rm("/some.tfrecord")


def test_a_format_travels() -> None:
    form = TFRecordFormat("GZIP", 7, (("a", 1),))

    assert pickle.loads(pickle.dumps(form)) == form
    assert hash(form) == hash(TFRecordFormat("GZIP", 7, (("a", 1),)))


# -- damage --------------------------------------------------------------------------------------


def expected_of(data: bytes, records: list[bytes]) -> list[tuple[int, object]]:
    """Return the first records of an undamaged file, as far as these bytes are those of the file."""
    whole = b"".join(map(framed, records))
    same = next((k for k, (a, b) in enumerate(zip(data, whole, strict=False)) if a != b), len(data))
    places = places_of(records)
    return [
        (place, record)
        for (place, after), record in zip(pairwise(places), records, strict=True)
        if after <= same
    ]


@pytest.mark.parametrize("most", [1, sys.maxsize])
def test_cut_off_at_each_byte(most: int, tmp_path: Path) -> None:
    whole = b"".join(map(framed, LITTLE))
    path = tmp_path / "some"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = list(read(PLAIN.open(str(path)), most))
        expected = expected_of(whole[:size], LITTLE)
        places = [place for place, _ in expected]
        assert found[: len(expected)] == expected
        assert size in places_of(LITTLE) or len(found) == len(expected) + 1
        assert PLAIN.places(str(path)).tolist() == [place for place, _ in found]
        for place, error in found[len(expected) :]:
            assert isinstance(error, RecordCorruptError)
            assert (error.path, error.offset) == (str(path), place)
            assert place == sum(len(r) + HEADERS for r in LITTLE[: len(places)])
            assert "cut off" in error.problem


@pytest.mark.parametrize("most", [1, sys.maxsize])
def test_each_bit_flipped(most: int, tmp_path: Path) -> None:
    """A flip in a record's data or their checksum loses that record; in its length, all from there on."""
    whole = bytearray(b"".join(map(framed, LITTLE)))
    places = places_of(LITTLE)
    path = tmp_path / "some"
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        whole[bit // 8] ^= 1 << bit % 8
        hurt = next(k for k, after in enumerate(places[1:]) if bit // 8 < after)
        found = list(read(PLAIN.open(str(path)), most))
        good: list[tuple[int, object]] = list(zip(places, LITTLE, strict=False))
        error = found[hurt][1]
        assert isinstance(error, RecordCorruptError)
        assert error.offset == places[hurt]
        if bit // 8 - places[hurt] < 12:
            assert "length of a record is damaged" in error.problem
            assert found[:-1] == good[:hurt]
        else:
            assert "data of a record" in error.problem
            assert found[:hurt] == good[:hurt]
            assert found[hurt + 1 :] == good[hurt + 1 :]
        assert PLAIN.places(str(path)).tolist() == [place for place, _ in found]


@pytest.mark.parametrize("at", range(12))
def test_a_damaged_header_among_records_of_one_length(at: int, tmp_path: Path) -> None:
    """Whose headers are compared all at once."""
    records = RECORDS["alike"][:100]
    place = places_of(records)[60]
    path = Path(written(tmp_path, records))
    whole = bytearray(path.read_bytes())
    whole[place + at] ^= 1
    path.write_bytes(whole)
    *found, (last, error) = read(PLAIN.open(str(path)))

    assert [record for _, record in found] == records[:60]
    assert last == place
    assert "length of a record is damaged" in str(error)
    assert PLAIN.places(str(path)).tolist() == places_of(records)[:61]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "ZSTD"])
def test_compressed_and_damaged(compression: str, tmp_path: Path) -> None:
    """The first records come, then an error; all records, where a flip changes nothing of them.

    Where a flip makes the file seem cut off, a record may come twice: it is compressed to a reference
    to where it stood before.
    """
    form = TFRecordFormat(compression)
    whole = bytearray(Path(written(tmp_path, LITTLE, compression)).read_bytes())
    good = list(zip(places_of(LITTLE), LITTLE, strict=False))
    path = tmp_path / "damaged"
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        *found, last = read(form.open(str(path)))
        assert found == good[: len(found)]
        assert isinstance(last[1], RecordCorruptError)
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        whole[bit // 8] ^= 1 << bit % 8
        found = list(read(form.open(str(path))))
        errors = [what for _, what in found if isinstance(what, RecordCorruptError)]
        given = [pair for pair in found if not isinstance(pair[1], RecordCorruptError)]
        if errors and "cut off" in str(errors[-1]):
            assert {record for _, record in given} <= {*LITTLE}
        else:
            assert given == good[: len(given)]
        assert errors or given == good


@pytest.mark.parametrize("large", [0, 1 << 15])
def test_damage_among_large_records(
    large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read on its own, straight to where it stays."""
    monkeypatch.setattr(reader, "_LARGE", large)
    records = [bytes([k]) * 40_000 for k in range(6)]
    places = places_of(records)
    path = Path(written(tmp_path, records))
    whole = bytearray(path.read_bytes())
    good: list[tuple[int, object]] = list(zip(places, records, strict=False))
    for at, lost in ((100, 1), (40_014, 1), (3, 6), (9, 6)):
        for k in range(6):
            whole[places[k] + at] ^= 64
            path.write_bytes(whole)
            whole[places[k] + at] ^= 64
            found = list(read(PLAIN.open(str(path))))
            assert found[:k] == good[:k]
            assert isinstance(found[k][1], RecordCorruptError)
            assert found[k + 1 :] == good[k + lost :]
    for size in (places[3] + 5, places[3] + 12, places[3] + 40_012, places[4] - 1):
        path.write_bytes(whole[:size])
        *some, last = read(PLAIN.open(str(path)))
        assert some == good[:3]
        assert isinstance(last[1], RecordCorruptError)
        assert last[1].offset == places[3]


@pytest.mark.parametrize("length", [100, 2**31, 2**40, 2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_length_beyond_the_end_takes_no_memory(
    length: int, compression: str, tmp_path: Path
) -> None:
    """Its checksum is right."""
    path = tmp_path / "some"
    content = framed(b"first") + framed(b"second", length)
    path.write_bytes(gzip.compress(content) if compression else content)
    if length > 2**40 and not compression:
        os.truncate(path, 1 << 28)  # nor is all the rest read
    tracemalloc.start()
    found = list(read(TFRecordFormat(compression).open(str(path))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found[0] == (0, b"first")
    assert f"{length:,} bytes" in str(found[1][1])
    assert peak < 1 << 21


def test_a_file_that_is_compressed_says_so(tmp_path: Path) -> None:
    for compression in ("GZIP", "ZLIB", "ZSTD"):
        [(place, error)] = read(PLAIN.open(written(tmp_path, LITTLE, compression)))
        assert place == 0
        assert f"looks like {compression}: compression_type='{compression}'?" in str(error)
        path = written(tmp_path, LITTLE)
        [(_, error)] = read(TFRecordFormat(compression).open(path))
        assert f"this is not {compression}" in str(error)


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS["middle"])
    with PLAIN.open(path) as opened:
        first = opened.read(3)
        Path(path).write_bytes(b"")
        [*rest, last] = read(opened)

    assert [*first.records(), *[value for _, value in rest]] == RECORDS["middle"][: 3 + len(rest)]
    assert "cut off" in str(last[1])


def test_no_record_begins_there(tmp_path: Path) -> None:
    path = written(tmp_path, LITTLE)
    size = Path(path).stat().st_size

    assert list(read(PLAIN.open(path, size))) == []
    with pytest.raises(RecordCorruptError, match=f"no record begins at {size + 1}"):
        PLAIN.open(path, size + 1)
    with pytest.raises(RecordCorruptError, match="ends after"):
        TFRecordFormat("GZIP").open(written(tmp_path, LITTLE, "GZIP"), size + 1)
    [(place, error)] = read(PLAIN.open(written(tmp_path, LITTLE), 1))
    assert place == 1
    assert "length of a record is damaged" in str(error)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_cannot_be_opened(compression: str, tmp_path: Path) -> None:
    form = TFRecordFormat(compression)
    with pytest.raises(FileNotFoundError):
        form.open(str(tmp_path / "none"))
    with pytest.raises(IsADirectoryError):
        form.open(str(tmp_path))
    if form.seekable:
        with pytest.raises(FileNotFoundError):
            form.places(str(tmp_path / "none"))
