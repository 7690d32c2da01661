"""The bytes of a file one after another, decompressed on the way."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tundish.errors import RecordCorruptError
from tundish.formats.bytes import stream as stream_module
from tundish.formats.bytes.decompressing import zstd_module
from tundish.formats.bytes.file import open_file
from tundish.formats.bytes.stream import PIECE, ByteStream, open_stream

CONTENT = b"".join(b"line %d of some text\n" % k for k in range(150_000))  # more than three pieces
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
    "ZSTD": lambda data: zstd_module().compress(
        data, options={zstd_module().CompressionParameter.checksum_flag: 1}
    ),
}
COMPRESSED = {kind: compress(CONTENT) for kind, compress in COMPRESS.items()}
LITTLE = CONTENT[:120]

every = pytest.mark.parametrize("kind", COMPRESS)
compressed = pytest.mark.parametrize("kind", [kind for kind in COMPRESS if kind])


@pytest.fixture(params=["isal", "zlib"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the library that decompresses: with the extra and without."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    else:
        pytest.importorskip("isal")


def written(folder: Path, data: bytes | bytearray) -> str:
    path = folder / "some"
    path.write_bytes(data)
    return str(path)


def read_all(stream: ByteStream, size: int = 1000) -> tuple[bytes, Exception | None]:
    """Return the bytes that come, and the error that was raised then."""
    pieces: list[bytes] = []
    problem = None
    try:
        while piece := stream.read(size):
            pieces.append(piece)
    except RecordCorruptError as error:
        problem = error
    content = b"".join(pieces)
    if problem is not None:
        assert problem.offset == len(content) == stream.tell()
        with pytest.raises(RecordCorruptError):  # every time again
            stream.read(1)
    return content, problem


@every
def test_all_at_once_and_in_pieces(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, COMPRESSED[kind])
    with open_stream(path, kind) as stream:
        assert stream.read() == CONTENT
        assert stream.read(1) == b""
        assert stream.tell() == len(CONTENT)
    for size in (7_777, PIECE, PIECE + 1, 2**60):
        with open_stream(path, kind) as stream:
            assert read_all(stream, size) == (CONTENT, None)


@every
def test_a_read_is_full_until_the_end(kind: str, tmp_path: Path) -> None:
    with open_stream(written(tmp_path, COMPRESSED[kind]), kind) as stream:
        sizes = []
        while piece := stream.read(300_000):
            sizes.append(len(piece))
    whole, rest = divmod(len(CONTENT), 300_000)

    assert sizes == [300_000] * whole + [rest]


@every
def test_into_a_buffer_and_skipping(kind: str, tmp_path: Path) -> None:
    buffer = bytearray(2_000_000)
    with open_stream(written(tmp_path, COMPRESSED[kind]), kind) as stream:
        assert stream.skip(5) == 5
        assert stream.readinto(buffer) == len(buffer)
        assert buffer == CONTENT[5 : 5 + len(buffer)]
        assert stream.skip(1_000_000) == 1_000_000
        assert stream.tell() == 3_000_005
        assert stream.readinto(buffer) == len(CONTENT) - 3_000_005
        assert stream.readinto(buffer) == stream.skip(1) == 0


@every
def test_from_a_place_on(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, COMPRESSED[kind])
    for at in (0, 1, PIECE, PIECE + 1, len(CONTENT)):
        with open_stream(path, kind, at=at) as stream:
            assert stream.tell() == at
            assert stream.read() == CONTENT[at:]
    with pytest.raises(RecordCorruptError, match=f"ends after {len(CONTENT):,} bytes"):
        open_stream(path, kind, at=len(CONTENT) + 1)


@every
def test_an_empty_file_holds_nothing(kind: str, tmp_path: Path) -> None:
    with open_stream(written(tmp_path, b""), kind) as stream:
        assert stream.read() == b""


@pytest.mark.parametrize("kind", ["GZIP", "ZSTD"])
def test_members_are_joined(kind: str, tmp_path: Path) -> None:
    parts = [CONTENT[:10], b"", CONTENT[10:2_000_000], CONTENT[2_000_000:]]
    path = written(tmp_path, b"".join(map(COMPRESS[kind], parts)))
    with open_stream(path, kind) as stream:
        assert read_all(stream) == (CONTENT, None)


@compressed
@pytest.mark.parametrize("behind", [b"garbage, not short", b"\0" * 30])
def test_what_stands_behind_is_an_error_after_all_before(
    kind: str, behind: bytes, tmp_path: Path
) -> None:
    path = written(tmp_path, COMPRESSED[kind] + behind)
    with open_stream(path, kind) as stream:
        content, error = read_all(stream)

    assert content == CONTENT
    assert error


def test_a_second_zlib_stream_is_an_error(tmp_path: Path) -> None:
    """tf.data reads the first and says nothing."""
    path = written(tmp_path, zlib.compress(LITTLE) + zlib.compress(LITTLE))
    with open_stream(path, "ZLIB") as stream:
        content, error = read_all(stream)

    assert content == LITTLE
    assert "after the end" in str(error)


@compressed
def test_cut_off_at_each_byte(kind: str, tmp_path: Path) -> None:
    whole = COMPRESS[kind](LITTLE)
    for size in range(1, len(whole)):
        with open_stream(written(tmp_path, whole[:size]), kind) as stream:
            content, error = read_all(stream, 7)
        assert LITTLE.startswith(content)
        assert error, size


@compressed
def test_each_bit_flipped(kind: str, tmp_path: Path) -> None:
    """Wrong bytes come only where the file seems cut off."""
    whole = bytearray(COMPRESS[kind](LITTLE))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        with open_stream(written(tmp_path, whole), kind) as stream:
            content, error = read_all(stream, 7)
        whole[bit // 8] ^= 1 << bit % 8
        if error is None:
            assert content == LITTLE
        elif "cut off" not in str(error):
            assert LITTLE.startswith(content)


@compressed
def test_nothing_is_given_that_comes_out_together_with_damage(kind: str, tmp_path: Path) -> None:
    """A member of less than a piece gives nothing, as its checksum stands for all of it."""
    for content in (LITTLE, CONTENT[: PIECE - 1], CONTENT):
        whole = bytearray(COMPRESS[kind](content))
        whole[-1] ^= 1  # of the checksum
        with open_stream(written(tmp_path, whole), kind) as stream:
            found, error = read_all(stream)
        assert len(found) == len(content) // PIECE * PIECE
        assert CONTENT.startswith(found)
        assert error


@compressed
def test_another_compression_is_named(kind: str, tmp_path: Path) -> None:
    for other, data in COMPRESSED.items():
        if other == kind:
            continue
        hint = f" as of {other}" if other else ""
        with open_stream(written(tmp_path, data), kind) as stream:
            _, error = read_all(stream)
        assert f"this is not {kind}: it begins with {data[:4]!r}{hint}" in str(error)


@compressed
def test_what_comes_out_is_bounded(kind: str, tmp_path: Path) -> None:
    """A hundred million zeros are a few kilobytes on the disk."""
    path = written(tmp_path, COMPRESS[kind](bytes(100_000_000)))
    tracemalloc.start()
    with open_stream(path, kind) as stream:
        assert stream.skip(2**60) == 100_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 * PIECE


def test_zstd_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with (
        open_stream(written(tmp_path, COMPRESSED["ZSTD"]), "ZSTD") as stream,
        pytest.raises(ImportError, match=r"pip install backports.zstd"),
    ):
        stream.read()


def test_a_file_that_cannot_be_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, COMPRESSED["GZIP"])
    with open_file(path) as opened:
        monkeypatch.setattr(type(opened), "block", 1000)
        monkeypatch.setattr(stream_module, "PIECE", 1000)

    def broken(self: object, offset: int, count: int) -> bytes:
        raise OSError(5, "Input/output error", path)

    with open_stream(path, "GZIP") as stream:
        first = stream.read(10)
        monkeypatch.setattr(type(opened), "_read", broken)
        rest = []
        with pytest.raises(OSError, match="Input/output error"):  # noqa: PT012 - after some reads
            while piece := stream.read(100):
                rest.append(piece)
    assert CONTENT.startswith(first + b"".join(rest))
    assert len(rest) > 1
