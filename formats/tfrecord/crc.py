"""crc32c, Castagnoli's checksum: by a package with a C implementation, else by numpy.

It is linear: a byte's contribution (by XOR) depends on its distance from the end, not on the
other bytes. So numpy looks up the contributions of the bytes of 64-byte blocks, all blocks at once; then joins blocks
pairwise, shifting the first of each pair. The tables are small enough to stay in the cache while
other processes work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8
_BLOCK = 64
_CHUNK = 4096  # blocks that are looked up at once: a quarter of a MiB, which stays in the cache too
_SHORT = 256  # up to this number of bytes, one by one is faster


def masked_crc(data: bytes) -> int:
    """Return the masked checksum of bytes, as it is stored in a file.

    The mask is needed because bytes that end with their own checksum all have the same checksum.
    """
    function = _compiled()
    crc = int(_by_numpy([data])[0]) if function is None else function(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def masked_crcs(pieces: Sequence[bytes]) -> np.ndarray:
    """Return the masked checksum of each of several pieces.

    Returns
    -------
    (n,) uint32 array
    """
    function = _compiled()
    if function is None:
        crcs = _by_numpy(pieces)
    else:
        crcs = np.fromiter(map(function, pieces), np.uint32, len(pieces))
    return (crcs >> 15 | crcs << 17) + np.uint32(_MASK)


@cache
def _compiled() -> Callable[[bytes], int] | None:
    """Return a function in C, if one is installed."""
    try:
        import google_crc32c  # noqa: PLC0415 - an extra

        if google_crc32c.implementation == "c":
            return google_crc32c.value  # type: ignore[no-any-return]  # it has no types
    except ImportError:
        pass
    try:
        from crc32c import crc32c  # noqa: PLC0415 - another, as good
    except ImportError:
        return None
    return crc32c  # type: ignore[no-any-return]  # as above


# -- by numpy ----------------------------------------------------------------------------------------


def _by_numpy(pieces: Sequence[bytes]) -> np.ndarray:
    if sum(map(len, pieces)) <= _SHORT:
        return np.array([_byte_by_byte(piece) for piece in pieces], np.uint32)
    sizes = np.fromiter(map(len, pieces), np.int64, len(pieces)) + len(_first())
    blocks = -(-sizes // _BLOCK)
    fronts = [bytes(size) + _first() for size in range(_BLOCK)]  # zeros at the front add nothing
    missing = (blocks * _BLOCK - sizes).tolist()
    joined = b"".join(
        part for size, piece in zip(missing, pieces, strict=True) for part in (fronts[size], piece)
    )
    crcs = _looked_up(_tables(), np.frombuffer(joined, np.uint8).reshape(-1, _BLOCK))
    power = 0
    while blocks.max() > 1:
        odd = blocks & 1
        if odd.any():  # a block of zeros goes before the first
            where = np.arange(len(crcs)) + np.repeat(np.cumsum(odd), blocks)
            crcs, some = np.zeros(len(crcs) + int(odd.sum()), np.uint32), crcs
            crcs[where] = some
        crcs = _moved(crcs[::2], power) ^ crcs[1::2]
        blocks = (blocks + odd) >> 1
        power += 1
    return ~crcs


def _looked_up(tables: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the XOR over the bytes of each row, by a table for each column."""
    sums = np.zeros(len(rows), np.uint32)
    found = np.empty(min(len(rows), _CHUNK), np.uint32)
    for first in range(0, len(rows), _CHUNK):
        columns = np.ascontiguousarray(rows[first : first + _CHUNK].T)
        into = sums[first : first + _CHUNK]
        for table, column in zip(tables, columns, strict=True):
            into ^= np.take(table, column, out=found[: len(into)], mode="clip")
    return sums


def _moved(crcs: np.ndarray, power: int) -> np.ndarray:
    """Return the checksums after appending 2**power blocks of zeros."""
    rows = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, 4)
    return _looked_up(_moving(power), rows)


@cache
def _moving(power: int) -> np.ndarray:
    """Return the tables that shift a checksum, which is treated like the first four bytes of a block."""
    if power == 0:
        return _tables()[:4]
    before = _moving(power - 1)
    return _moved(before.ravel(), power - 1).reshape(before.shape)


@cache
def _tables() -> np.ndarray:
    """Return the contribution of each byte, by its position in a block."""
    last = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = np.where(last & 1, (last >> 1) ^ np.uint32(_POLYNOMIAL), last >> 1)
    tables = [last]
    for _ in range(_BLOCK - 1):
        tables.append((tables[-1] >> 8) ^ last[tables[-1] & 0xFF])
    return np.stack(tables[::-1])


@cache
def _first() -> bytes:
    """Return four bytes to put first: with them, a checksum that starts at 0 equals one that starts at all ones."""
    crc = 0xFFFFFFFF
    for _ in range(32):
        crc = ((crc ^ _POLYNOMIAL) << 1 | 1) if crc >> 31 else crc << 1
    return crc.to_bytes(4, "little")


def _byte_by_byte(data: bytes) -> int:
    table = _list()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@cache
def _list() -> list[int]:
    return list(map(int, _tables()[-1]))
