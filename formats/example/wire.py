"""The wire format of protocol buffers, field by field.

A message is a sequence of fields: a *tag* (number and wire type), then the value: a varint (0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

VARINT_BYTES = 10
"""A varint has no more."""


class MalformedError(ValueError):
    """The bytes are not a valid message; callers add which record they are from.

    Parameters
    ----------
    problem : str
        What was found and what was expected.
    byte : int
        The offset of the problem.
    """

    def __init__(self, problem: str, byte: int) -> None:
        super().__init__(problem, byte)
        self.problem, self.byte = problem, byte

    def __str__(self) -> str:
        return f"byte {self.byte}: {self.problem}"


def varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Decode an unsigned 64-bit number; return it and the offset after it."""
    value = shift = 0
    for k in range(at, min(at + VARINT_BYTES, stop)):
        byte = data[k]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, k + 1
        shift += 7
    if stop - at < VARINT_BYTES:
        raise MalformedError("the message ends within a number", at)
    raise MalformedError("a number of more than 10 bytes", at)


def fields(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message: tag, start of the value (after its length), end."""
    while at < stop:
        first = at
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, first, stop)
        if not tag >> 3:
            raise MalformedError(f"a field with the number 0 (tag {tag})", first)
        form = tag & 7
        if form == 2:
            if at < stop and data[at] < 0x80:
                size, at = data[at], at + 1
            else:
                size, at = varint(data, at, stop)
        elif form == 0:
            begin = at
            _, at = varint(data, at, stop)
            yield tag, begin, at
            continue
        elif form == 5:
            size = 4
        elif form == 1:
            size = 8
        else:
            raise MalformedError(
                f"wire type {form}, not a number, 4 or 8 bytes, or a length", first
            )
        if size > stop - at:
            raise MalformedError(
                f"field {tag >> 3} has {size:,} bytes, but {stop - at:,} are left", first
            )
        yield tag, at, at + size
        at += size


def varint_bytes(value: int) -> bytes:
    """Encode a number as a varint; a negative one as its 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, *parts: bytes) -> Iterable[bytes]:
    """Return the parts of a field of bytes: tag, length, and contents."""
    return (varint_bytes(number << 3 | 2), varint_bytes(sum(map(len, parts))), *parts)
