"""crc32c: by a package in C, and by numpy."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.formats.tfrecord.framing import crc32c, masked

from tundish.formats.tfrecord import crc
from tundish.formats.tfrecord.crc import masked_crc, masked_crcs


@pytest.fixture(params=["google_crc32c", "numpy"], autouse=True)
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("google_crc32c", "crc32c"):
        if name != request.param:
            monkeypatch.setitem(sys.modules, name, None)
    if request.param != "numpy":
        pytest.importorskip(request.param)
    crc._compiled.cache_clear()
    yield
    crc._compiled.cache_clear()


def test_known_values() -> None:
    """Checksums from RFC 3720, appendix B.4."""
    known = {
        b"123456789": 0xE3069283,
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        bytes(range(31, -1, -1)): 0x113FDB5C,
    }
    assert [crc32c(data) for data in known] == list(known.values())
    assert [masked_crc(data) for data in known] == [
        struct.unpack("<I", masked(data))[0] for data in known
    ]


def test_pieces_of_all_sizes() -> None:
    """Short ones, which are taken byte by byte, and those that are looked up in blocks of 32."""
    random.seed(1)
    sizes = [*range(140), 255, 256, 257, 1000, 4095, 4096, 4097, 30_000]
    pieces = [random.randbytes(size) for size in sizes]
    expected = [struct.unpack("<I", masked(piece))[0] for piece in pieces]

    assert masked_crcs(pieces).tolist() == expected
    assert [masked_crc(piece) for piece in pieces] == expected
    assert masked_crcs(pieces[:3]).tolist() == expected[:3]
    assert masked_crcs(pieces[::-7]).tolist() == expected[::-7]
    assert masked_crcs([]).tolist() == []


def test_more_blocks_than_are_looked_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc, "_CHUNK", 5)
    test_pieces_of_all_sizes()


def test_a_package_in_python_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package in Python would be slower than numpy."""
    slow = SimpleNamespace(implementation="python", value=crc32c)
    monkeypatch.setitem(sys.modules, "google_crc32c", slow)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    crc._compiled.cache_clear()

    assert crc._compiled() is None
