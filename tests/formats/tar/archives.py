"""Tar archives made by hand, so that anything can stand in them."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any, Literal

from tundish.errors import RecordCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from tundish.formats.format import Format

END = bytes(1024)


def member(
    name: str,
    data: bytes = b"",
    kind: bytes = tarfile.REGTYPE,
    form: Literal[0, 1, 2] = tarfile.GNU_FORMAT,
    **given: Any,
) -> bytes:
    """A header and its data."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for field, value in given.items():
        setattr(info, field, value)
    return info.tobuf(form) + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def with_field(block: bytes, first: int, field: bytes) -> bytes:
    """A header with other bytes at an offset, and the checksum for them."""
    changed = bytearray(block)
    changed[first : first + len(field)] = field
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed[:512])
    return bytes(changed)


def archive(*members: bytes) -> bytes:
    return b"".join(members) + END


def packed(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """Return an archive as `tarfile` packs it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return made.getvalue()


def read(form: Format, path: Path, most: int = 3) -> list[Any]:
    """Elements; for one that is damaged, where, and what is wrong with it."""
    found: list[Any] = []
    with form.open(str(path)) as reader:
        while True:
            before = reader.place
            try:
                run = reader.read(most)
            except RecordCorruptError as error:
                found.append((error.offset, error.problem))
                if reader.place == before:
                    return found
                assert reader.place > before
                continue
            if not len(run):
                return found
            found += run.records()
