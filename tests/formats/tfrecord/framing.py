"""TFRecord files made by hand, slowly and plainly."""

from __future__ import annotations

import struct


def crc32c(data: bytes) -> int:
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes, length: int | None = None) -> bytes:
    """A record as it stands in a file; with another length than its own, if that is given."""
    head = struct.pack("<Q", len(record) if length is None else length)
    return head + masked(head) + record + masked(record)
