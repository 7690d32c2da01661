"""Small files of every kind that readers support, for pipelines under test.

They are made once, in a folder that goes with the process that wanted them first; its workers find them
there. Some stand for what happens to files: one is missing, one is cut off, one has a byte that is not what it
was.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import sqlite3
import struct
import tarfile
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.testing.folders import folder
from tundish.testing.functions import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["KINDS", "FileKind", "Reading", "at_home", "files", "framed", "home", "masked", "read"]

COUNTS = (3, 0, 5, 1, 4)
"""The numbers of records in the files of a kind."""
WORDS = ("a", "", "h\u00e9", "word", "x" * 20, "\ra\rb", "z\x00")
POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


@dataclass(frozen=True)
class FileKind:
    """The files of one reader.

    Parameters
    ----------
    reader : str
        The class in `tundish`.
    write : callable
        Writes numbered records to a path.
    how : dict
        Arguments of the reader.
    end : int
        The length to which a file is cut; if negative, counted from its end.
    change : int or None
        The offset of a byte that is changed, likewise; None: a third of the way through. 0: none is changed.
    """

    reader: str
    write: Callable[[Path, range], Any]
    how: dict[str, Any] = field(default_factory=dict)
    end: int = -5
    change: int | None = None


def read(dataset: Any, kind: str, paths: Any = None, *, damaged: bool = False, **how: Any) -> Any:
    """Return a dataset of files' records, or its reference.

    Parameters
    ----------
    dataset : type
        `Dataset`, or the reference.
    kind : str
        One of `KINDS`.
    paths : list or dataset, optional
        The paths to read; None: all `files` of the kind.
    damaged : bool
        True if some of those files are damaged.
    **how
        More arguments of the reader.
    """
    chosen = KINDS[kind]
    given = {**chosen.how, **how}
    named = list(files(kind, damaged=damaged)) if paths is None else paths
    if hasattr(dataset, "read_files"):
        return dataset.read_files(chosen.reader, named, **given)
    import tundish  # noqa: PLC0415 - the tests of its parts need not load all

    if chosen.reader == "SqlDataset":
        return tundish.SqlDataset("sqlite", named[0], **given)
    return getattr(tundish, chosen.reader)(named, **given)


@dataclass(frozen=True)
class Reading:
    """A function for `flat_map` and `interleave`: the records of one file of a kind, as the element asks.

    `dataset` is the class to make it of, as for `tundish.testing.functions.Inner`.
    """

    dataset: Any
    kind: str
    k: int = 1
    damaged: bool = False
    paths: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Here, and not in a worker, which would make files of its own.
        object.__setattr__(self, "paths", files(self.kind, damaged=self.damaged))

    def __call__(self, *element: Any) -> Any:
        number = Key(self.k, len(self.paths))(*element)
        return read(self.dataset, self.kind, [self.paths[number]])


@functools.cache
def files(kind: str, *, damaged: bool = False) -> tuple[str, ...]:
    """Return the paths of a kind's files.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    damaged : bool
        Whether the second is missing, the third is cut off, and the last has another byte.

    Returns
    -------
    tuple of str
        The paths of five files, the second of which is empty; of one database.
    """
    there = Path(home(), f"{kind}{'-damaged' if damaged else ''}")
    counts = (9,) if kind == "sql" else COUNTS
    if not there.exists():
        new = there.with_name(f"{there.name}.{os.getpid()}")
        _write(KINDS[kind], new, counts, damaged=damaged)
        with suppress(OSError):  # another process was first
            new.rename(there)
    return tuple(str(there / str(number)) for number in range(len(counts)))


def _write(kind: FileKind, folder: Path, counts: Sequence[int], *, damaged: bool) -> None:
    folder.mkdir()
    first = 0
    for number, count in enumerate(counts):
        if not (damaged and number == 1):
            kind.write(folder / str(number), range(first, first + count))
        first += count
    if damaged:
        _damage(kind, folder / "2", folder / str(len(counts) - 1))


def _damage(kind: FileKind, cut: Path, changed: Path) -> None:
    cut.write_bytes(cut.read_bytes()[: kind.end])
    if kind.change != 0:
        content = bytearray(changed.read_bytes())
        content[kind.change or len(content) // 3] ^= 0x80
        changed.write_bytes(content)


_HOMES: list[str] = []


def home() -> str:
    """Return the folder of this process's files."""
    if not _HOMES:
        _HOMES.append(folder())
    return _HOMES[0]


def at_home(path: str) -> None:
    """Make this process use another's files, unless it has some: errors contain paths."""
    if not _HOMES:
        _HOMES.append(path)


# -- one record after another


def masked(data: bytes) -> bytes:
    """Return the masked TFRecord checksum of bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    rotated = ((crc >> 15) | (crc << 17)) + 0xA282EAD8
    return struct.pack("<I", rotated & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    """Return a record in TFRecord's framing."""
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def _word(k: int) -> str:
    return f"{WORDS[k % len(WORDS)]}{k if k % 3 else ''}"


def _text(numbers: range) -> bytes:
    ends = ("\n", "\r\n")
    text = "".join(f"{_word(k)}{ends[k % 2]}" for k in numbers)
    return text.encode() if len(numbers) % 2 else text.rstrip("\r\n").encode()


def _records(numbers: range) -> bytes:
    return b"".join([framed(_word(k).encode()) for k in numbers])


def _pieces(numbers: range) -> bytes:
    return b"HH" + b"".join([b"%4d" % k for k in numbers]) + b"F"


def _archive(numbers: range) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for k in numbers:
            for extension, data in (("txt", _word(k).encode()), ("cls", b"%d" % k)):
                info = tarfile.TarInfo(f"{k:04d}.{extension}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return made.getvalue()


def _writer(
    content: Callable[[range], bytes], compress: Callable[[bytes], bytes] = bytes
) -> Callable[[Path, range], Any]:
    return lambda path, numbers: path.write_bytes(compress(content(numbers)))


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


# -- tables


def _rows(numbers: range) -> list[dict[str, Any]]:
    return [{"n": 3 * k - 7, "x": k / 4, "s": WORDS[k % 5]} for k in numbers]


def _table(numbers: range) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - here and below: only for tables

    types = [("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]
    return pa.Table.from_pylist(_rows(numbers), pa.schema(types))


def _parquet(path: Path, numbers: range) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - see above

    pq.write_table(_table(numbers), path, row_group_size=2)


def _arrow(path: Path, numbers: range) -> None:
    import pyarrow as pa  # noqa: PLC0415 - see above

    table = _table(numbers)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=2)


def _csv(numbers: range) -> bytes:
    lines = [f'{row["n"]},{row["x"]},"{row["s"]}"\n' for row in _rows(numbers)]
    return "".join(["n,x,s\n", *lines]).encode()


def _json_lines(numbers: range) -> bytes:
    return "".join([json.dumps(row) + "\n" for row in _rows(numbers)]).encode()


def _database(path: Path, numbers: range) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (n integer, x real, s text)")
        rows = [tuple(row.values()) for row in _rows(numbers)]
        connection.executemany("insert into t values (?, ?, ?)", rows)
        connection.commit()


KINDS: dict[str, FileKind] = {
    "text": FileKind("TextLineDataset", _writer(_text)),
    "text-str": FileKind("TextLineDataset", _writer(_text), {"encoding": "utf-8"}),
    "text-gzip": FileKind(
        "TextLineDataset", _writer(_text, _gzip), {"compression_type": "GZIP"}, change=-2
    ),
    "tfrecord": FileKind("TFRecordDataset", _writer(_records)),
    "tfrecord-zlib": FileKind(
        "TFRecordDataset",
        _writer(_records, zlib.compress),
        {"compression_type": "ZLIB"},
        end=-2,
        change=-2,
    ),
    "fixed": FileKind(
        "FixedLengthRecordDataset",
        _writer(_pieces),
        {"record_bytes": 4, "header_bytes": 2, "footer_bytes": 1},
    ),
    "fixed-gzip": FileKind(
        "FixedLengthRecordDataset",
        _writer(_pieces, _gzip),
        {"record_bytes": 4, "header_bytes": 2, "footer_bytes": 1, "compression_type": "GZIP"},
        change=-2,
    ),
    "parquet": FileKind("ParquetDataset", _parquet, change=0),
    "parquet-columns": FileKind("ParquetDataset", _parquet, {"columns": ["s", "n"]}, change=0),
    "arrow": FileKind("ArrowDataset", _arrow, change=0),
    "csv": FileKind(
        "CsvDataset", _writer(_csv), {"schema": {"n": "int64", "x": "float64", "s": "str"}}
    ),
    "json": FileKind(
        "JsonLinesDataset",
        _writer(_json_lines),
        {"schema": {"n": "int64", "x": "float64", "s": "str"}},
    ),
    "tar": FileKind("TarDataset", _writer(_archive), end=3500, change=0),
    "tar-gzip": FileKind(
        "TarDataset", _writer(_archive, _gzip), {"compression_type": "GZIP"}, change=0
    ),
    "sql": FileKind(
        "SqlDataset",
        _database,
        {
            "query": "select n, x, s from t order by n",
            "output_types": ("int64", "float64", "str"),
        },
    ),
}
"""The kinds of files for readers, by name."""
