"""Fields of protocol buffers."""

from __future__ import annotations

import pytest

from tundish.formats.example.wire import MalformedError, delimited, fields, varint, varint_bytes


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_numbers(number: int) -> None:
    data = varint_bytes(number)

    assert varint(b"x" + data + b"y", 1, len(data) + 2) == (number, len(data) + 1)
    for size in range(len(data)):
        with pytest.raises(MalformedError, match="ends within a number"):
            varint(data[:size], 0, size)


def test_a_negative_number_is_its_64_bits() -> None:
    assert varint(varint_bytes(-1), 0, 10) == (2**64 - 1, 10)


def test_a_number_of_eleven_bytes() -> None:
    with pytest.raises(MalformedError, match="more than 10 bytes"):
        varint(b"\xff" * 10 + b"\1", 0, 11)


def test_fields_of_all_forms() -> None:
    data = b"\x08\x05\x11" + bytes(8) + b"".join(delimited(300, b"ab", b"c")) + b"\x25" + bytes(4)
    found = [(tag >> 3, tag & 7, data[at:stop]) for tag, at, stop in fields(data, 0, len(data))]

    assert found == [(1, 0, b"\5"), (2, 1, bytes(8)), (300, 2, b"abc"), (4, 5, bytes(4))]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x00\x01", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x0a\x02a", "field 1 has 2 bytes, but 1 are left"),
        (b"\x0a", "ends within a number"),
        (b"\x0d\x01", "field 1 has 4 bytes, but 1 are left"),
        (b"\x08", "ends within"),
        (b"\x80", "ends within"),
    ],
)
def test_no_fields(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedError, match=f"byte [01]: .*{problem}"):
        list(fields(data, 0, len(data)))
