"""Decompressors of all compressions with one interface, that of the standard library's `bz2`."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol


class Decompressor(Protocol):
    """Decompresses one member, the output of one compressor.

    Attributes
    ----------
    needs_input : bool
        True if there is no more output before more input.
    eof : bool
        True if the member ended as it should, with a correct checksum.
    unused_data : bytes
        Input after the end of the member.
    """

    needs_input: bool
    eof: bool

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, most: int, /) -> bytes:
        """Decompress `data`; return at most `most` bytes."""


class _Zlib:
    """The standard library's decompressor, if `isal` is not installed."""

    def __init__(self, bits: int) -> None:
        self._engine = zlib.decompressobj(bits)
        self.needs_input = True
        self.eof = False

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data

    def decompress(self, data: memoryview, most: int, /) -> bytes:
        waiting = self._engine.unconsumed_tail
        made = self._engine.decompress(b"".join((waiting, data)) if waiting else data, most)
        self.eof = self._engine.eof
        self.needs_input = len(made) < most and not self._engine.unconsumed_tail
        return made


def _gzip() -> Decompressor:
    return _isal("DECOMP_GZIP") or _Zlib(16 + zlib.MAX_WBITS)


def _zlib() -> Decompressor:
    return _isal("DECOMP_ZLIB") or _Zlib(zlib.MAX_WBITS)


def _isal(flag: str) -> Any:
    """Return Intel's faster decompressor; None if it is not installed."""
    try:
        from isal import igzip_lib  # noqa: PLC0415 - an extra, needed for compressed files only
    except ImportError:
        return None
    return igzip_lib.IgzipDecompressor(getattr(igzip_lib, flag))


def _zstd() -> Decompressor:
    return zstd_module().ZstdDecompressor()  # type: ignore[no-any-return]  # as of its stubs


def zstd_module() -> Any:
    """Return the zstd module of Python 3.14's standard library, or its backport.

    Raises
    ------
    ImportError
        Neither is installed.
    """
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError(
        "compression_type='ZSTD' needs Python 3.14 or a package: pip install backports.zstd"
    )


DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "GZIP": _gzip,
    "ZLIB": _zlib,
    "ZSTD": _zstd,
}
"""By the name of the compression, as tf.data has them (ZSTD is ours)."""


def compression_of(head: bytes) -> str | None:
    """Guess a file's compression from its first bytes, for messages; the guess may be wrong."""
    if head.startswith(b"\x1f\x8b"):
        return "GZIP"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "ZSTD"
    if len(head) > 1 and head[0] == 0x78 and (head[0] << 8 | head[1]) % 31 == 0:
        return "ZLIB"
    return None


def looks_like(head: bytes) -> str:
    """Return the end of a message about a file that may be compressed or encoded, from its first bytes; else ""."""
    found = compression_of(head)
    if found:
        return f"; this looks like {found}: compression_type={found!r}?"
    for begin, what in _OTHERS.items():
        if head.startswith(begin):
            return f"; this looks like {what}"
    return ""


_OTHERS = {
    b"PK\x03\x04": "a ZIP archive: extract its files",
    b"BZh": "BZIP2: decompress it, or compress it with GZIP or ZSTD",
    b"\xfd7zXZ": "XZ: decompress it, or compress it with GZIP or ZSTD",
    b"\xff\xfe": "UTF-16: convert it to UTF-8",
    b"\xfe\xff": "UTF-16: convert it to UTF-8",
}
