"""Damaged copies of a file's content: every small one there is, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**40, 2**60, 2**63, 2**64 - 1)
"""What stands where a length is not what it was."""
WORDS = (
    b"\n",
    b"\r\n",
    b'"',
    b",",
    b"\x00",
    b"\xff",
    b"PAR1",
    b"ARROW1",
    b"{",
    b"}",
    b"ustar",
    b"",
)


def cut(content: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """The content without its end, at every byte; of large contents `most`, spread over all."""
    for end in spread(len(content), most):
        yield f"cut at {end}", content[:end]


def flipped(content: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Every bit changed alone; of large contents `most`, spread over all."""
    changed = bytearray(content)
    for bit in spread(8 * len(content), most):
        at, mask = bit // 8, 1 << bit % 8
        changed[at] ^= mask
        yield f"bit {bit % 8} of byte {at} flipped", bytes(changed)
        changed[at] ^= mask


def spread(count: int, most: int) -> Sequence[int]:
    """Return all numbers from 0 up to a count, or so many of them."""
    return range(count) if count <= most else random.Random(0).sample(range(count), most)


def otherwise(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield other damages that happen to files."""
    yield "nothing", b""
    yield "zeros", bytes(len(content))
    yield "garbage behind", content + b"garbage"
    yield "zeros behind", content + bytes(9)
    yield "a newline behind", content + b"\n"
    yield "itself behind", content + content
    yield "a byte before", b"x" + content
    yield "the first byte missing", content[1:]
    yield "a byte missing", content[: len(content) // 2] + content[len(content) // 2 :][1:]
    yield "a byte twice", content[: len(content) // 2] + content[len(content) // 2 - 1 :]
    yield "newlines of Windows", content.replace(b"\n", b"\r\n")
    yield "newlines of old", content.replace(b"\n", b"\r")
    yield "text of another kind", b"this is something else\n" * 9
    yield "ones", b"\xff" * len(content)


def swept(content: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """All of these."""
    yield from cut(content, most)
    yield from flipped(content, most)
    yield from otherwise(content)


def mutated(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One to four random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        at = rng.randrange(len(content) + 1)
        end = min(len(content), at + rng.choice((1, 2, 4, 8, 30)))
        match rng.randrange(10):
            case 0:
                content = content[:at]
            case 1:
                content = content[:at] + content[end:]
            case 2:
                content = content[:at] + rng.randbytes(end - at) + content[end:]
            case 3:
                content = content[:at] + rng.randbytes(rng.choice((1, 2, 9))) + content[at:]
            case 4:
                content = content[:end] + content[at:]
            case 5:
                other = rng.choice(others)
                content = content[:at] + other[rng.randrange(len(other) + 1) :]
            case 6:
                content = content[:at] + rng.choice(WORDS) + content[at:]
            case 7:
                size = rng.choice((1, 2, 4, 8))
                number = (rng.choice(NUMBERS) & (1 << 8 * size) - 1).to_bytes(size, "little")
                content = content[:at] + number + content[at + size :]
            case _:
                if content:
                    at = rng.randrange(len(content))
                    changed = content[at] ^ 1 << rng.randrange(8)
                    content = content[:at] + bytes([changed]) + content[at + 1 :]
    return content[: 1 << 16]
