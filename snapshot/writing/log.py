"""The log of a writer's unfinished shards, from which another process continues if the writer dies.

Each step appends a line of JSON. Nothing is synced: the log survives a process, not the machine; what must survive that
is in the journal.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tundish.errors import SnapshotError
from tundish.formats.bytes.regular import parse_json, read_regular
from tundish.snapshot.frame import Fields, by_name
from tundish.snapshot.records import BatchRecord, ShardRecord, StoredError

_MOST = 1 << 32  # bytes of a log


@dataclass(frozen=True)
class LoggedChunk:
    """The record of one `write`: its batches, each with its shard's file, and the elements that failed."""

    start: int
    bytes: int
    batches: tuple[tuple[str, BatchRecord], ...]
    errors: tuple[StoredError, ...]

    def to_json(self) -> dict[str, Any]:
        return {**by_name(self), "batches": [[file, *batch] for file, batch in self.batches]}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Self:
        return cls(
            line["start"],
            line["bytes"],
            tuple((file, BatchRecord(*numbers)) for file, *numbers in line["batches"]),
            tuple(
                StoredError(n, kind, None if args is None else tuple(args), text)
                for n, kind, args, text in line["errors"]
            ),
        )


class WriterLog:
    """A log of a writer's steps.

    Parameters
    ----------
    path : str or os.PathLike
        The file; created with the first line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd: int | None = None

    def form(self, number: int, schema: bytes) -> None:
        """Log a new form."""
        self._add(form=number, schema=b64encode(schema).decode())

    def opened(self, file: str, user_shard: int | None, form: int) -> None:
        """Log that a shard is begun."""
        self._add(opened=file, user_shard=user_shard, of=form)

    def chunk(self, chunk: LoggedChunk) -> None:
        """Log a chunk that has been written to its shards."""
        self._add(chunk=chunk.to_json())

    def sealed(self, shard: ShardRecord) -> None:
        """Log that a shard is about to be published, with its contents."""
        self._add(sealed=shard)

    def close(self) -> None:
        """Close the file, and keep it."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def move(self, path: str | os.PathLike[str]) -> None:
        """Replace another log, atomically."""
        if self.path.exists():
            self.path.replace(path)
        else:
            Path(path).unlink(missing_ok=True)
        self.path = Path(path)

    def _add(self, **line: Any) -> None:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        text = json.dumps(line, separators=(",", ":"), default=by_name)
        data = text.encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]


@dataclass
class Noted:
    """The contents of a log.

    Attributes
    ----------
    forms : dict of int to bytes
        Schemas by number.
    opened : dict of str to (int or None, int)
        User shard and form of each shard, by its file.
    chunks : list of LoggedChunk
        The chunks, in the order of writing.
    sealed : dict of str to ShardRecord
        Shards that were about to be published.
    """

    forms: dict[int, bytes] = field(default_factory=dict)
    opened: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    chunks: list[LoggedChunk] = field(default_factory=list)
    sealed: dict[str, ShardRecord] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a log, up to an unfinished line; empty if there is none."""
        noted = cls()
        try:
            lines = read_regular(path, _MOST).split(b"\n")
        except FileNotFoundError:
            return noted
        for data in lines[:-1]:  # after the last line end there is nothing, or half a line
            try:
                noted._take(parse_json(data))
            except (ValueError, KeyError, TypeError, AttributeError, SnapshotError):
                break  # cut off, or not what was written
        return noted

    def _take(self, line: dict[str, Any]) -> None:
        if "form" in line:
            self.forms[line["form"]] = b64decode(line["schema"])
        elif "opened" in line:
            self.opened[line["opened"]] = line["user_shard"], line["of"]
        elif "chunk" in line:
            self.chunks.append(LoggedChunk.from_json(line["chunk"]))
        elif "sealed" in line:
            shard = ShardRecord.from_json(Fields(line["sealed"], "a log"))
            self.sealed[shard.file] = shard
