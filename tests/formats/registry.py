"""Every format of files, with small files in it, and what is in them.

The suites of this folder run over all of them. A new `Format` needs samples here:
`test_registry.py` fails without.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.oracle.files import framed

from tundish.formats.bytes.decompressing import zstd_module
from tundish.formats.fixed import FixedFormat
from tundish.formats.format import Format
from tundish.formats.lines import LinesFormat
from tundish.formats.sql.rows import SqlFormat
from tundish.formats.tables.arrow import ArrowFormat
from tundish.formats.tables.casting import Kind
from tundish.formats.tables.csv import CsvFormat, CsvTuplesFormat
from tundish.formats.tables.jsonlines import JsonLinesFormat
from tundish.formats.tables.memory import RowsInMemory
from tundish.formats.tables.parquet import ParquetFormat
from tundish.formats.tar.elements import TarFormat
from tundish.formats.tfrecord.reader import TFRecordFormat


@dataclass(frozen=True)
class Sample:
    """A small file.

    Parameters
    ----------
    name : str
        Of the format, and what is special about this one.
    form : Format
        How it is read.
    write : callable
        Writes it to a path.
    records : list
        What is in it.
    checked : {"", "records", "stream"}
        What has checksums, so that damage never gives a wrong record: each record, or the whole stream
        (but where it is cut off).
    apart : bool
        Whether a record is made of the bytes from its place to the next one's, and no others.
    suffix : str
        Of the file's name.
    """

    name: str
    form: Format
    write: Callable[[Path], Any]
    records: list[Any]
    checked: str = ""
    apart: bool = False
    suffix: str = ""

    def file(self, folder: Path) -> Path:
        """Write it into a folder."""
        path = folder / f"{self.name}{self.suffix}"
        self.write(path)
        return path


def of_bytes(content: bytes) -> Callable[[Path], Any]:
    """Write these."""
    return lambda path: path.write_bytes(content)


def zstd(content: bytes) -> bytes:
    module = zstd_module()
    return bytes(module.compress(content, options={module.CompressionParameter.checksum_flag: 1}))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "GZIP": lambda content: gzip.compress(content, mtime=0),
    "ZLIB": zlib.compress,
    "ZSTD": zstd,
}
"""As other programs write it."""


def compressed(
    name: str,
    form: Callable[[str], Format],
    content: bytes,
    records: list[Any],
    checked: str = "stream",
) -> list[Sample]:
    """The same content in every compression."""
    return [
        Sample(f"{name}-{kind.lower()}", form(kind), of_bytes(compress(content)), records, checked)
        for kind, compress in COMPRESS.items()
    ]


# -- one record after another --------------------------------------------------------------------

FRAMES = [b"first", b"", b"\x00\n\r\xff", b"x" * 70, b"last"]
FRAMED = b"".join(map(framed, FRAMES))

LINES = [b"first", b"", b"h\xc3\xa9\x00", b"\ra\rb", b"x" * 70, b"last"]
TEXT = b"first\n\nh\xc3\xa9\x00\n\ra\rb\r\n" + b"x" * 70 + b"\r\nlast"

PIECES = [b"abc", b"\x00\n\r", b"\xff\xfe\xfd", b"def"]
FIXED = b"H" * 5 + b"".join(PIECES) + b"FF"

TFRECORD = [
    Sample("tfrecord", TFRecordFormat(), of_bytes(FRAMED), FRAMES, checked="records", apart=True),
    Sample(
        "tfrecord-buffer",
        TFRecordFormat(buffer_size=16),
        of_bytes(FRAMED),
        FRAMES,
        checked="records",
    ),
    Sample("tfrecord-empty", TFRecordFormat(), of_bytes(b""), [], checked="records"),
    *compressed(
        "tfrecord", lambda kind: TFRecordFormat(compression=kind), FRAMED, FRAMES, "records"
    ),
]
TEXT_LINES = [
    Sample("lines", LinesFormat(), of_bytes(TEXT), LINES, apart=True),
    Sample("lines-ended", LinesFormat(buffer_size=3), of_bytes(b"a\n\nb\n"), [b"a", b"", b"b"]),
    Sample("lines-str", LinesFormat(encoding="utf-8"), of_bytes(TEXT), [x.decode() for x in LINES]),
    Sample("lines-empty", LinesFormat(), of_bytes(b""), []),
    *compressed("lines", lambda kind: LinesFormat(compression=kind), TEXT, LINES),
]
FIXED_LENGTH = [
    Sample("fixed", FixedFormat(3), of_bytes(b"".join(PIECES)), PIECES),
    Sample("fixed-header", FixedFormat(3, 5, 2), of_bytes(FIXED), PIECES),
    Sample("fixed-empty", FixedFormat(3, 5, 2), of_bytes(b"H" * 7), []),
    *compressed("fixed", lambda kind: FixedFormat(3, 5, 2, compression=kind), FIXED, PIECES),
]

# -- tables --------------------------------------------------------------------------------------

TABLE = pa.table(
    {
        "n": pa.array([1, -2, 3, 4, 5], pa.int64()),
        "x": pa.array([0.5, 1.5, float("nan"), 0.0, 2.5], pa.float32()),
        "s": pa.array(["a", "", "h\u00e9\x00", "d", "e"]),
        "v": pa.array([[1, 2]] * 5, pa.list_(pa.int16(), 2)),
    }
)
ROWS = [
    {"n": np.int64(n), "x": np.float32(x), "s": s, "v": np.array(v, np.int16)}
    for n, x, s, v in zip(*TABLE.to_pydict().values(), strict=True)
]


def to_parquet(path: Path, table: pa.Table = TABLE, **given: Any) -> None:
    pq.write_table(table, path, row_group_size=2, store_schema=False, **given)


PARQUET = [
    Sample("parquet", ParquetFormat(), to_parquet, ROWS),
    Sample(
        "parquet-zstd",
        ParquetFormat(),
        lambda path: to_parquet(path, compression="zstd", write_page_checksum=True),
        ROWS,
    ),
    Sample(
        "parquet-columns",
        ParquetFormat(columns=("s", "n")),
        lambda path: to_parquet(path, use_dictionary=False, compression="none"),
        [{"s": row["s"], "n": row["n"]} for row in ROWS],
    ),
    Sample("parquet-empty", ParquetFormat(), lambda path: to_parquet(path, TABLE.slice(0, 0)), []),
]


def to_arrow(path: Path, new: Callable[..., Any], table: pa.Table = TABLE, **given: Any) -> None:
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**given)) as writer:
        writer.write_table(table, max_chunksize=2)


WORDS = pa.table({"n": TABLE["n"], "s": TABLE["s"].dictionary_encode()})
WORD_ROWS = [{"n": row["n"], "s": row["s"]} for row in ROWS]
ARROW = [
    Sample("arrow", ArrowFormat(), lambda path: to_arrow(path, pa.ipc.new_file), ROWS),
    Sample("arrow-stream", ArrowFormat(), lambda path: to_arrow(path, pa.ipc.new_stream), ROWS),
    Sample(
        "arrow-lz4",
        ArrowFormat(),
        lambda path: to_arrow(path, pa.ipc.new_file, compression="lz4"),
        ROWS,
    ),
    Sample(
        "arrow-dictionary",
        ArrowFormat(),
        lambda path: to_arrow(path, pa.ipc.new_stream, WORDS),
        WORD_ROWS,
    ),
    Sample(
        "arrow-columns",
        ArrowFormat(columns=("s", "n")),
        lambda path: to_arrow(path, pa.ipc.new_file),
        [{"s": row["s"], "n": row["n"]} for row in ROWS],
    ),
    Sample("arrow-empty", ArrowFormat(), of_bytes(b""), []),
]
CSV_TEXT = 'n,x,s\n1,0.5,a\n-2,,"b,""\n\n3,1e3,h\u00e9\r\n4,4,'.encode()
CSV_ROWS: list[Any] = [
    {"n": np.int64(n), "x": np.float64(x), "s": s}
    for n, x, s in [(1, 0.5, "a"), (-2, np.nan, 'b,"'), (3, 1e3, "h\u00e9"), (4, 4.0, "")]
]
CSV_TEXT = CSV_TEXT.replace(b'"b,""', b'"b,"""')
CSV = [
    Sample("csv", CsvFormat(), of_bytes(CSV_TEXT), CSV_ROWS),
    Sample(
        "csv-columns",
        CsvFormat(columns=("s", "n"), header=False, column_names=("n", "x", "s")),
        of_bytes(CSV_TEXT[6:]),
        [{"s": row["s"], "n": row["n"]} for row in CSV_ROWS],
    ),
    Sample(
        "csv-newlines",
        CsvFormat(newlines_in_values=True, field_delim="\t"),
        of_bytes(b'n\ts\n1\t"a\nb"\n2\t"\n\n"\n'),
        [{"n": np.int64(1), "s": "a\nb"}, {"n": np.int64(2), "s": "\n\n"}],
    ),
    Sample("csv-empty", CsvFormat(), of_bytes(b""), []),
    *compressed("csv", lambda kind: CsvFormat(compression=kind), CSV_TEXT, CSV_ROWS),
]
TUPLES = CsvTuplesFormat(
    columns=("0", "2"),
    schema=(("0", Kind(pa.int32())), ("2", Kind(pa.binary()))),
    defaults=(("2", b"-"),),
    header=True,
    na_values=("",),
    newlines_in_values=True,
)
TUPLE_ROWS: list[Any] = [(np.int32(row["n"]), row["s"].encode() or b"-") for row in CSV_ROWS]
CSV += [
    Sample("csv-tuples", TUPLES, of_bytes(CSV_TEXT), TUPLE_ROWS),
    *compressed("csv-tuples", lambda kind: replace(TUPLES, compression=kind), CSV_TEXT, TUPLE_ROWS),
]
JSON_TEXT = b"""{"n": 1, "s": "a", "v": [1, 2], "d": {"x": 0.5}}

{"s": "2026-01-01", "n": 2, "v": [], "d": {"x": 1}}
{"d": {"x": null}, "n": 3, "s": "", "v": [7]}"""
JSON_ROWS: list[Any] = [
    {"n": np.int64(n), "s": s, "v": np.array(v, np.int64), "d": {"x": np.float64(x)}}
    for n, s, v, x in [(1, "a", [1, 2], 0.5), (2, "2026-01-01", [], 1.0), (3, "", [7], np.nan)]
]
JSON_LINES = [
    Sample("jsonlines", JsonLinesFormat(), of_bytes(JSON_TEXT), JSON_ROWS),
    Sample(
        "jsonlines-columns",
        JsonLinesFormat(columns=("d.x", "n")),
        of_bytes(JSON_TEXT),
        [{"d": row["d"], "n": row["n"]} for row in JSON_ROWS],
    ),
    Sample("jsonlines-empty", JsonLinesFormat(), of_bytes(b""), []),
    *compressed("jsonlines", lambda kind: JsonLinesFormat(compression=kind), JSON_TEXT, JSON_ROWS),
]

# -- archives ------------------------------------------------------------------------------------

MEMBERS = [("a.jpg", b"x" * 30), ("a.cls", b"1"), ("b.jpg", b""), ("b.cls", b"2"), ("c.cls", b"3")]
ELEMENTS = [
    {"__key__": "a", "jpg": b"x" * 30, "cls": b"1"},
    {"__key__": "b", "jpg": b"", "cls": b"2"},
    {"__key__": "c", "cls": b"3"},
]


def archive(kind: int) -> bytes:
    """A tar file, in a format of `tarfile`."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=kind) as file:
        for name, data in MEMBERS:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5 if kind == tarfile.PAX_FORMAT else 1
            file.addfile(info, io.BytesIO(data))
        end = file.offset
    return made.getvalue()[: end + 1024]


TAR = [
    Sample("tar", TarFormat(), of_bytes(archive(tarfile.USTAR_FORMAT)), ELEMENTS),
    Sample("tar-pax", TarFormat(), of_bytes(archive(tarfile.PAX_FORMAT)), ELEMENTS),
    Sample(
        "tar-extensions",
        TarFormat(extensions=("cls",)),
        of_bytes(archive(tarfile.GNU_FORMAT)),
        [{"__key__": each["__key__"], "cls": each["cls"]} for each in ELEMENTS],
    ),
    Sample("tar-empty", TarFormat(), of_bytes(bytes(1024)), []),
    *compressed(
        "tar", lambda kind: TarFormat(compression=kind), archive(tarfile.GNU_FORMAT), ELEMENTS
    ),
]

ELSEWHERE: dict[type[Format], str] = {
    RowsInMemory: "../loader/operators/test_tables.py",
    SqlFormat: "sql/test_rows.py",
}
"""What reads no files, and the tests of it."""

SAMPLES: list[Sample] = [
    *TFRECORD,
    *TEXT_LINES,
    *FIXED_LENGTH,
    *PARQUET,
    *ARROW,
    *CSV,
    *JSON_LINES,
    *TAR,
]
"""All of them."""
