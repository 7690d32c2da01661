"""The files of a dump: a process writes lines, of which the newest are kept.

Two files take turns: when the one that is written is full, a new one takes the place of the other in
one step, its first record already in it. So the newest lines always stand in them, as many as are to
be kept or more, whenever the process is killed; who reads meanwhile has opened files that nobody
changes but by lines added at the end. A line has its crc32 before it: one that was cut off is told
from a whole one. The promise on disk is ``docs/design/011-dumps.md``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from tundish.formats.bytes.regular import parse_json
from tundish.loader.run.watching.tracing import notice

VERSION = 1
SUFFIX = ".dump"
MOST_BYTES = 64 * 2**20
"""The size in bytes at which a file of a ring is full, however few lines it has."""


def checked_line(text: str) -> bytes:
    """Return a line for a file: the crc32 of a text, and the text."""
    data = text.encode()
    return b"%08x %b\n" % (zlib.crc32(data), data)


def parse_line(line: bytes) -> Any:
    """Parse a line; None if it was cut off, or changed."""
    head, _, data = line.partition(b" ")
    try:
        return parse_json(data) if int(head, 16) == zlib.crc32(data) else None
    except ValueError:
        return None


_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)


class LineRing:
    """The lines of one process, in files of a folder.

    Parameters
    ----------
    folder : str
        It is made if it is not there.
    size : int
        How many lines are kept, at least; 0: all.
    about : dict
        What the first line of each file says, beside who writes.

    Notes
    -----
    Nothing is synced: what is written survives the process, not the machine. What cannot be written
    (no space is left) ends the ring with a warning, not the pipeline.
    """

    def __init__(self, folder: str, size: int, about: dict[str, Any]) -> None:
        self.pid, started = os.getpid(), time.time_ns()
        host = socket.gethostname()
        self._folder, self._size = Path(folder), size
        self._name = f"{host}-{self.pid}-{started:x}"
        self._about = {
            "tundish": "dump",
            "version": VERSION,
            "host": host,
            "pid": self.pid,
            "started": started,
            "size": size,
            **about,
        }
        self._lock = threading.Lock()
        self._file = self._turn = -1
        self._lines = self._bytes = 0
        self._number = 0
        self._ended = False

    def add(self, text: str) -> None:
        """Write a record, given as JSON without its number: ``, "key": value}``."""
        with self._lock:
            if self._ended:
                return
            try:
                line = checked_line(f'{{"n": {self._number}{text}')
                if self._turn < 0 or self._is_full():
                    self._begin(line)
                else:
                    if self._file < 0:
                        self._file = os.open(self._path, _FLAGS, 0o644)
                    self._write(line)
            except OSError as problem:
                self._end()
                notice(f"no more is dumped by process {self.pid} into {self._folder}: {problem}")
                return
            self._number += 1
            self._lines += 1

    def close(self) -> None:
        """Close the file; it is opened again for further records."""
        with self._lock:
            self._close()

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._name}.{self._turn % 2}{SUFFIX}"

    def _is_full(self) -> bool:
        return self._size > 0 and (self._lines >= self._size or self._bytes >= MOST_BYTES)

    def _begin(self, line: bytes) -> None:
        """Replace the older file by a new one, atomically with its header and first record."""
        self._close()
        self._turn += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        self._file = os.open(new, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
        self._lines = self._bytes = 0
        try:
            self._write(checked_line(json.dumps({**self._about, "turn": self._turn})) + line)
            new.replace(self._path)  # who reads the other goes on with the one it has opened
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _write(self, line: bytes) -> None:
        done = os.write(self._file, line)
        if done != len(line):  # no space is left for the rest: readers skip the line
            raise OSError(f"no space is left: {done} of {len(line)} bytes of a line were written")
        self._bytes += done

    def _end(self) -> None:
        self._ended = True
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_file"):
            self._close()
