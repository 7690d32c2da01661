"""The reference of file readers: each format in a few lines, over a file that is read as a whole.

A record is named by its file and its place in it. What is damaged is an error in its place; then
comes the next record, where it is known where that begins, or else the next file.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sqlite3
import tarfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import RecordCorruptError
from tundish.testing.files import masked
from tundish.testing.model.basic import Basic
from tundish.testing.model.interleaving import InterleavingModel
from tundish.testing.nests import normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.testing.model.basic import Item, Pass

__all__ = ["MEANINGS", "ReadingModel"]

Found = list[tuple[int, Any]]
"""The place of each record, and the record or the error."""


class OutError(Exception):
    """The error of a record that ``on_error="skip"`` drops."""


class ReadingModel(InterleavingModel):
    """The reference of the sources that read files."""

    @classmethod
    def read_files(
        cls,
        reader: str,
        filenames: Any,
        *,
        num_parallel_reads: int | None = None,
        on_error: str = "raise",
        index: Any = None,
        **how: Any,
    ) -> Self:
        """Return the records of files, as `tundish`'s class `reader` reads them.

        Parameters
        ----------
        reader : str
            The name of the class.
        filenames, num_parallel_reads, on_error, index, **how
            Its arguments.
        """
        paths = (
            filenames if isinstance(filenames, InterleavingModel) else cls._listed(list(filenames))
        )
        skips = on_error == "skip"

        def opened(path: Any) -> _File:
            try:
                found = MEANINGS[reader](path, **how)
                return _File(found, UNITS.get(reader, mebibytes)(path, found), skips=skips)
            except Exception as error:  # noqa: BLE001 - whatever the system says of a file
                raise OutError if skips else error  # noqa: B904 - which counts alone

        if num_parallel_reads is None:
            model = paths.flat_map(opened)
        else:
            model = paths.interleave(opened, num_parallel_reads if num_parallel_reads > 0 else 16)

        def items(this: Pass) -> Iterator[Item]:
            for item in model.items(this):
                if not isinstance(item.error, OutError):
                    path = item.path if item.unit is None else item.path[:-1]
                    yield item._replace(unit=(path, item.unit))

        return cls(items, paths)


class _File(Basic):
    """The records of one file; an item is identified by its place, not by its number."""

    def __init__(self, found: Found, units: list[int], *, skips: bool) -> None:
        super().__init__(lambda _: iter(()))
        self._found, self._units, self._skips = found, units, skips

    def within(self, outer: Item) -> Iterator[Item]:
        for (place, value), unit in zip(self._found, self._units, strict=True):
            item = outer.inside(place)._replace(unit=unit)
            if isinstance(value, Exception):
                yield item._replace(value=None, error=OutError() if self._skips else value)
            else:
                yield item._replace(value=normal(value))


def damage() -> RecordCorruptError:
    """Return an error of which only its existence is compared."""
    return RecordCorruptError("", 0, "")


def content(path: str, compression_type: str | None) -> tuple[bytes, bool, bool]:
    """Return a file's bytes, True if they are complete, and True if a checksum is wrong."""
    data = Path(path).read_bytes()
    if not compression_type or not data:
        return data, True, False
    engine = zlib.decompressobj(31 if compression_type == "GZIP" else 15)
    made = b""
    for k in range(len(data)):  # byte by byte: what comes before the checksum stays
        try:
            made += engine.decompress(data[k : k + 1])
        except zlib.error:
            return made, False, True
    return made, engine.eof, False


# -- formats


def lines(path: str, compression_type: str | None = None, encoding: str | None = None) -> Found:
    """Split into lines; the newline is removed, with one carriage return before it."""
    data, whole, wrong = content(path, compression_type)
    if wrong:
        return [(0, damage())]
    found: Found = []
    place = 0
    for line in data.split(b"\n"):
        text: Any = line
        end = place + len(line) + 1
        ended = end <= len(data)
        if not ended and not (line and whole):
            break
        if ended and line.endswith(b"\r"):
            text = line[:-1]
        if encoding:
            try:
                text = text.decode(encoding)
            except UnicodeDecodeError:
                text = damage()
        found.append((place, text))
        place = end
    return found if whole else [*found, (min(place, len(data)), damage())]


def fixed(
    path: str,
    record_bytes: int,
    header_bytes: int = 0,
    footer_bytes: int = 0,
    compression_type: str | None = None,
) -> Found:
    """Split the bytes between header and footer."""
    data, whole, wrong = content(path, compression_type)
    if wrong:
        raise damage()
    end = len(data) - footer_bytes
    if end < header_bytes:
        raise damage()
    found: Found = [
        (at, data[at : at + record_bytes] if at + record_bytes <= end else damage())
        for at in range(header_bytes, end, record_bytes)
    ]
    return found if whole else [*found, (end, damage())]


def records(path: str, compression_type: str | None = None) -> Found:
    """Parse TFRecords: length, its checksum, data, its checksum."""
    data, whole, wrong = content(path, compression_type)
    if wrong:
        return [(0, damage())]
    found: Found = []
    place = 0
    while place < len(data):
        head, check = data[place : place + 8], data[place + 8 : place + 12]
        end = place + 12 + int.from_bytes(head, "little")
        if len(check) < 4 or masked(head) != check or end + 4 > len(data):
            return [*found, (place, damage())]
        record = data[place + 12 : end]
        found.append((place, record if masked(record) == data[end : end + 4] else damage()))
        place = end + 4
    return found if whole else [*found, (place, damage())]


def parquet(path: str, columns: list[str] | None = None) -> Found:
    """Return the rows of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415 - here and below: only for tables
    import pyarrow.parquet as pq  # noqa: PLC0415

    data = Path(path).read_bytes()
    try:
        return rows(pq.read_table(pa.BufferReader(data), columns=columns))
    except pa.ArrowException:
        raise damage() from None


def arrow(path: str) -> Found:
    """Return the rows of an Arrow file."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    data = Path(path).read_bytes()
    with contextlib.suppress(pa.ArrowException):
        return rows(pa.ipc.open_file(data).read_all())
    # It lacks its end: the records before that are read.
    batches = list(pa.ipc.open_stream(data[8:]))
    found = rows(pa.Table.from_batches(batches))
    return [*found, (len(found), damage())]


def rows(table: Any) -> Found:
    """Return the rows of a table, identified by number."""
    return list(enumerate(table.to_pylist()))


ROW = re.compile(rb'(-?\d+),(-?\d+\.\d+),"([^"]*)"\n?')


def comma_separated(path: str, **_: Any) -> Found:
    """Return the rows of a CSV file, without its header."""

    def row(line: bytes) -> dict[str, Any]:
        fields = ROW.fullmatch(line)
        if not fields:
            raise ValueError
        n, x, s = fields.groups()
        return {"n": int(n), "x": float(x), "s": s.decode()}

    return by_line(path, row)[1:]


def json_lines(path: str, **_: Any) -> Found:
    """Return the objects of JSON lines."""

    def row(line: bytes) -> dict[str, Any]:
        found = json.loads(line)
        return {"n": found["n"], "x": float(found["x"]), "s": found["s"]}

    return by_line(path, row)


def by_line(path: str, row: Callable[[bytes], Any]) -> Found:
    """Return the result of `row` for each line of a file."""
    found: Found = []
    place = 0
    for line in io.BytesIO(Path(path).read_bytes()):
        try:
            found.append((place, row(line)))
        except (ValueError, KeyError):
            found.append((place, damage()))
        place += len(line)
    return found


def archive(path: str, compression_type: str | None = None) -> Found:
    """Return the elements of an archive: adjacent members with one base name."""
    data, whole, _ = content(path, compression_type)
    elements: dict[str, tuple[int, dict[str, Any]]] = {}
    with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data)) as file:
        for member in file:
            key, _, extension = member.name.partition(".")
            taken = file.extractfile(member)
            assert taken is not None
            element = elements.setdefault(key, (member.offset, {"__key__": key}))
            element[1][extension] = taken.read()
    found: Found = list(elements.values())
    if b"\0" * 512 not in data[-1024:]:  # it was cut off: the last may lack members
        found[-1:] = [(found[-1][0], damage())]
    return found if whole else [*found, (len(data), damage())]


def database(path: str, query: str, **_: Any) -> Found:
    """Return the rows of a query."""
    with closing(sqlite3.connect(path)) as connection:
        return list(enumerate(map(tuple, connection.execute(query))))


MEANINGS: dict[str, Callable[..., Found]] = {
    "TextLineDataset": lines,
    "FixedLengthRecordDataset": fixed,
    "TFRecordDataset": records,
    "ParquetDataset": parquet,
    "ArrowDataset": arrow,
    "CsvDataset": comma_separated,
    "JsonLinesDataset": json_lines,
    "TarDataset": archive,
    "SqlDataset": database,
}
"""By the name of the class."""


# -- units


def mebibytes(_: str, found: Found) -> list[int]:
    """Return the unit of each record: a unit is a MiB of the file, by where records begin."""
    return [place // 2**20 for place, _ in found]


def row_groups(path: str, _: Found) -> list[int]:
    """Return the unit of each record of a Parquet file: a unit is a row group."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - see above

    data = pq.read_metadata(path)
    return [k for k in range(data.num_row_groups) for _ in range(data.row_group(k).num_rows)]


def record_batches(path: str, found: Found) -> list[int]:
    """Return the unit of each record of an Arrow file: a unit is a batch, or what is damaged after them."""
    import pyarrow as pa  # noqa: PLC0415 - see above

    data = Path(path).read_bytes()
    batches = list(pa.ipc.open_stream(data[8:]))  # a file is a stream with a frame around it
    units = [k for k, batch in enumerate(batches) for _ in range(batch.num_rows)]
    return [*units, *[len(batches)] * (len(found) - len(units))]


UNITS: dict[str, Callable[[str, Found], list[int]]] = {
    "ParquetDataset": row_groups,
    "ArrowDataset": record_batches,
}
"""By the name of the class; of all others `mebibytes`."""
