"""Archives that are damaged, cut off, or made to do harm."""

from __future__ import annotations

import gc
import gzip
import tarfile
import tracemalloc
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.formats.tar.archives import END, archive, member, packed, padded, read, with_field

from tundish import TarDataset
from tundish.formats.tar.elements import TarFormat

if TYPE_CHECKING:
    from pathlib import Path

A = {"__key__": "a", "x": b"1"}
GOOD = member("a.x", b"1")
NEXT = member("b.x", b"2")
BEFORE = len(GOOD + NEXT)
"""Of what is behind the two: the second may have had members there, so it is not given."""


def problems(folder: Path, content: bytes) -> list[Any]:
    """Read an archive, and by its places; return what both gave."""
    path = folder / "a.tar"
    path.write_bytes(content)
    found = read(TarFormat(), path)
    places = TarFormat().places(str(path))
    for most in (1, 1000):
        assert read(TarFormat(), path, most) == found
    assert len(places) == len(found)
    for place, each in zip(places, found, strict=True):
        assert one_at(path, int(place)) == each
    return found


def one_at(path: Path, place: int) -> object:
    """Return what reading at a place gives."""
    with TarFormat().open(str(path), place, ahead=False) as reader:
        try:
            return reader.read(1)[0]
        except ValueError as error:
            return (error.offset, error.problem)  # type: ignore[attr-defined]  # of RecordCorruptError


def test_cut_off_anywhere(tmp_path: Path) -> None:
    """An element is given if it is known to be whole: the next one has begun, or the end is there."""
    content = packed({"a.x": b"1", "a.y": b"2" * 600, "b.x": b"3"})[: 512 * 8]
    ends = [512 * 7, 512 * 5]  # of the first block of zeros, of the next element's header

    for cut in range(0, len(content), 64):
        found = problems(tmp_path, content[:cut])
        whole = 2 if cut >= ends[0] + 512 else 1 if cut >= ends[1] + 512 else 0
        assert [type(each) for each in found[:whole]] == [dict] * whole, cut
        assert [type(each) for each in found[whole:]] == ([] if whole == 2 else [tuple]), cut


def test_cut_off_between_members(tmp_path: Path) -> None:
    """The last element may have had more of them."""
    assert problems(tmp_path, GOOD + member("b.x", b"2")) == [
        A,
        (2048, "the archive ends without its end, two blocks of zeros: it was cut off"),
    ]


def test_no_archive_at_all(tmp_path: Path) -> None:
    empty = [(0, "the file is empty; the smallest tar archive is two blocks of zeros")]
    assert problems(tmp_path, b"") == empty
    assert problems(tmp_path, END) == []
    assert problems(tmp_path, END[:512]) == []
    assert problems(tmp_path, b"hello") == [
        (0, "the archive ends 5 bytes into a header: it was cut off")
    ]
    assert problems(tmp_path, b"\x1f\x8b" + b"x" * 600) == [
        (0, "no tar header; this looks like GZIP: compression_type='GZIP'?")
    ]
    assert problems(tmp_path, b"x" * 600) == [
        (0, "no tar header: its checksum should be 60736, and is b'xxxxxxxx'")
    ]


@pytest.mark.parametrize("bit", range(0, 512 * 8, 37))
def test_a_flipped_bit_in_a_header(tmp_path: Path, bit: int) -> None:
    content = bytearray(archive(GOOD, NEXT, member("c.x", b"3")))
    content[BEFORE + bit // 8] ^= 1 << bit % 8

    found = problems(tmp_path, bytes(content))

    assert found[0] == A
    if 148 <= bit // 8 < 156 and len(found) == 3:  # of the checksum, in what is not looked at
        return
    offset, problem = found[1]
    assert offset == BEFORE
    assert problem.startswith("no tar header: its checksum should be ")
    assert len(found) == 2


def test_checksums_of_programs_that_took_bytes_for_signed(tmp_path: Path) -> None:
    block = bytearray(member("é.x", b"1"))
    block[148:156] = b" " * 8
    signed = sum(byte - 256 * (byte > 127) for byte in block[:512])
    block[148:156] = b"%06o\0 " % signed

    assert problems(tmp_path, archive(bytes(block))) == [{"__key__": "é", "x": b"1"}]


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (
            b"\x80" + b"\0" * 3 + b"\x10" + b"\0" * 7,
            "the archive ends after 1,536 of the 1,152,921,504,",
        ),
        (
            b"77777777777\0",
            "the archive ends after 1,536 of the 8,589,934,591 bytes that a header says",
        ),
        (b"\xff" * 12, "a size should be a number >= 0, and is b'\\xff\\xff"),
        (b"-0000000001\0", "a size should be a number >= 0, and is b'-0000000001"),
        (b"0x0000000ff\0", "a size should be a number >= 0"),
        (b"89", "a size should be a number >= 0"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_sizes_that_cannot_be(tmp_path: Path, field: bytes, problem: str, compressed: bool) -> None:
    """Sizes are compared with what is left; in a compressed file, data are read as they come."""
    content = archive(GOOD, NEXT, with_field(member("c.x", b"3"), 124, field))
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(content) if compressed else content)
    tracemalloc.start()
    try:
        *before, error = read(TarFormat(compression="GZIP" if compressed else ""), path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    whole = "the archive ends" in problem  # that header begins another element
    assert before == [A, {"__key__": "b", "x": b"2"}][: 1 + whole]
    assert error[0] == BEFORE
    assert error[1].startswith(problem)
    assert most < 8 << 20


def pax(*records: bytes) -> bytes:
    data = b"".join(records)
    return with_field(member("pax", data), 156, b"x")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (pax(b"hello"), "a pax record should be"),
        (pax(b"99 path=b.x\n"), "a pax record should be"),
        (pax(b"0 path=b.x\n"), "a pax record should be"),
        (pax(b"-5 path=b.x\n"), "a pax record should be"),
        (pax(b"12 path=b.xx"), "a pax record should be"),
        (pax(b"9 path b\n"), "a pax record should be"),
        (pax(b"11 size=-1\n"), "a size should be a number >= 0, and is b'-1'"),
        (pax(b"110 size=" + b"9" * 100 + b"\n"), "a size should be a number >= 0, and is b'9999"),
        (
            pax(b"29 size=99999999999999999999\n"),
            "ends after 1,536 of the 99,999,999,999,999,999,999 ",
        ),
        (
            with_field(member("pax", padded(b"")), 124, b"00003000000\0"),
            "the archive ends after 2,048 of the 786,432 bytes",
        ),
        (
            with_field(with_field(member("g", b"12 path=b.x\n"), 156, b"g"), 0, b"g"),
            "a header gives all members after it the path b'b.x'",
        ),
    ],
)
def test_headers_that_extend_the_next_one(tmp_path: Path, header: bytes, problem: str) -> None:
    found = problems(tmp_path, archive(GOOD, NEXT, header, member("c.x", b"2")))

    assert found[0] == A
    assert problem in found[-1][1]


def test_extending_headers_are_bounded(tmp_path: Path) -> None:
    many = with_field(member("pax", bytes(2 << 20)), 156, b"x")
    chain = [pax(b"12 path=d.x\n")] * 2000  # no recursion, either

    assert problems(tmp_path, archive(GOOD, NEXT, many, GOOD))[1] == (
        BEFORE,
        "a name or pax records of 2,097,152 bytes; at most 1,048,576 are read",
    )
    assert problems(tmp_path, archive(*chain, GOOD)) == [{"__key__": "d", "x": b"1"}]
    assert problems(tmp_path, archive(GOOD, NEXT, chain[0])) == [
        A,
        (BEFORE + 1024, "the archive ends where a member's last header should be"),
    ]


def test_a_block_of_zeros_in_the_middle(tmp_path: Path) -> None:
    """Archives that were put one after the other: their elements are read, and it is told."""
    first, second = archive(GOOD), archive(member("b.x", b"2"))
    lone = bytes(512)

    assert problems(tmp_path, first + second) == [
        A,
        (
            1024,
            "the archive ends here, but data follow at 2,048: are there several archives in one file?",
        ),
        {"__key__": "b", "x": b"2"},
    ]
    assert problems(tmp_path, GOOD + lone + second)[1:] == [
        (
            1024,
            "the archive ends here, but data follow at 1,536: are there several archives in one file?",
        ),
        {"__key__": "b", "x": b"2"},
    ]
    assert problems(tmp_path, first + b"junk")[1:] == [
        (
            1024,
            "the archive ends here, but data follow at 2,048: are there several archives in one file?",
        ),
        (2048, "the archive ends 4 bytes into a header: it was cut off"),
    ]
    assert problems(tmp_path, first + bytes(1 << 20)) == [A]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_archives_tell_the_same(tmp_path: Path, compression: str) -> None:
    compress: Any = gzip.compress if compression == "GZIP" else zlib.compress
    contents = [
        archive(GOOD) + archive(member("b.x", b"2")),
        archive(GOOD, member("b.x", b"2"), member("b.X", b"2"), member("c.x", b"3" * 700_000)),
        GOOD + member("b.x", b"2"),
        packed({f"{i}.x": bytes([i]) * 5000 for i in range(200)}, tarfile.PAX_FORMAT),
    ]
    path = tmp_path / "a.tar"
    for content in contents:
        path.write_bytes(content)
        wanted = read(TarFormat(), path)
        path.write_bytes(compress(content))
        for most in (1, 7, 1000):
            assert read(TarFormat(compression=compression), path, most) == wanted


def test_an_iterator_is_let_go_although_its_reader_knows_of_damage(tmp_path: Path) -> None:
    """A kept error must not have a traceback, whose frames would keep the iterator, and the file open."""
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(member(f"{key}.x", b"1") for key in "abcdefgh")[:-512])
    elements = TarDataset(str(path)).batch(2).iterator(workers=0)
    next(elements)
    gone = weakref.ref(elements)
    del elements
    gc.collect()

    assert gone() is None
