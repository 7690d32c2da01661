"""crc32, by the fastest installed implementation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from zlib import crc32 as zlib_crc32

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


def _fastest() -> Callable[[Buffer, int], int]:
    for module in ("isal.isal_zlib", "zlib_ng.zlib_ng"):
        try:
            found: Callable[[Buffer, int], int] = import_module(module).crc32
        except ImportError:
            continue
        return found
    return zlib_crc32


_implementation = _fastest()


def crc32(data: Buffer, value: int = 0) -> int:
    """Return the checksum of bytes; `value` is the checksum of those before them."""
    return _implementation(data, value)
