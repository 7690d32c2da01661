"""Random examples, as bytes and as tensorflow would be asked for them: for comparisons."""

from __future__ import annotations

import random
import struct
from typing import Any

from tundish.formats.example.wire import delimited, varint_bytes

NAMES = ("a", "b", "label", "a/rather/long/name", "image/encoded", "é", "")
KINDS = ("int64", "float32", "bytes")
INTS = (0, 1, 5, 127, 128, 300, 16384, 2**31, 2**63 - 1, -1, -(2**63), -300)
FLOATS = (0.0, 1.0, -2.5, 1e-40, float("inf"))


def joined(*pieces: Any) -> bytes:
    return b"".join(b"".join(piece) for piece in pieces)


def value_list(rng: random.Random, kind: str, count: int, odd: float) -> bytes:
    """A Feature of so many values; now and then in a way that few write it."""
    if kind == "bytes":
        sizes = [rng.choice((0, 1, 3, 200)) if rng.random() < 0.1 else 2 for _ in range(count)]
        return joined(delimited(1, *(b"".join(delimited(1, rng.randbytes(s))) for s in sizes)))
    if kind == "float32":
        numbers = [struct.pack("<f", rng.choice(FLOATS)) for _ in range(count)]
        alone, number = b"\x0d", 2
    else:
        numbers = [varint_bytes(rng.choice(INTS[: rng.choice((3, 12))])) for _ in range(count)]
        alone, number = b"\x08", 3
    if rng.random() < odd:
        return joined(delimited(number, *(alone + n for n in numbers)))
    return joined(delimited(number, *(delimited(1, *numbers) if numbers else ())))


def feature(rng: random.Random, kind: str, count: int, odd: float) -> bytes:
    if rng.random() < odd:
        return rng.choice((b"", value_list(rng, rng.choice(KINDS), count, odd)))
    return value_list(rng, kind, count, odd)


def entry(rng: random.Random, name: str, message: bytes, odd: float) -> bytes:
    parts = [b"".join(delimited(1, name.encode())), b"".join(delimited(2, message))]
    if rng.random() < odd / 2:
        parts.reverse()
    return joined(delimited(1, *parts))


def example(rng: random.Random, counts: dict[str, tuple[str, int]], odd: float) -> bytes:
    """An Example with features of these kinds and numbers of values, more or less."""
    names = list(counts)
    if rng.random() < odd:
        rng.shuffle(names)
    if rng.random() < odd / 2:
        names = rng.choices(names, k=len(names))
    entries = []
    for name in names:
        if rng.random() < odd / 4:
            continue
        kind, count = counts[name]
        many = rng.randrange(4) if count < 0 or rng.random() < odd / 8 else count
        entries.append(entry(rng, name, feature(rng, kind, many, odd / 4), odd))
    data = joined(delimited(1, *entries))
    if rng.random() < odd / 4:  # what nobody knows is left out
        data += rng.choice((b"\x98\x01\x07", b"\x12\x02hi", b"\x1d1234", b"\x2112345678"))
    if rng.random() < odd / 4:
        data += joined(delimited(1, *entries[:1]))
    return data


def steps(rng: random.Random, counts: dict[str, tuple[str, int]], odd: float) -> bytes:
    """A SequenceExample whose context and steps have such features."""
    context, lists = [], []
    for name, (kind, count) in counts.items():
        many = rng.randrange(4) if count < 0 else count
        if rng.random() > odd / 4:
            context.append(entry(rng, name, feature(rng, kind, many, odd / 4), 0))
        if rng.random() > odd / 4:
            rows = []
            for _ in range(rng.randrange(4)):
                many = rng.randrange(4) if count < 0 or rng.random() < odd / 8 else count
                rows.append(b"".join(delimited(1, feature(rng, kind, many, odd / 8))))
            lists.append(entry(rng, name, b"".join(rows), 0))
    parts = [joined(delimited(1, *context)), joined(delimited(2, *lists))]
    if rng.random() < odd / 4:
        parts.reverse()
    return b"".join(parts)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The same with a few bits, bytes or lengths that are others."""
    changed = bytearray(data or b"\n")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place, how = rng.randrange(len(changed) + 1), rng.randrange(7)
        rest = changed[place:]
        if how == 0 and rest:
            changed[place] ^= 1 << rng.randrange(8)
        elif how == 1:
            del changed[place:]
        elif how == 2:
            del changed[place : place + rng.randint(1, 4)]
        elif how == 3:
            changed[place:place] = rng.randbytes(rng.randint(1, 4))
        elif how == 4 and rest:
            changed[place] = rng.choice((0, 0x7F, 0x80, 0xFF, 0x0A, 0x12, 0x1A, 0x08, 0x0D))
        elif how == 5:
            changed[place:place] = b"\xff" * rng.randint(1, 11)
        else:
            changed[place:place] = varint_bytes(rng.choice((2**31, 2**32 + 5, 2**60, 2**64 - 1)))
    return bytes(changed)
