"""Datasets of files of lines, fixed-length records, and TFRecords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tundish.formats.bytes.stream import check_compression
from tundish.formats.fixed import FixedFormat
from tundish.formats.lines import LinesFormat
from tundish.formats.tfrecord.reader import TFRecordFormat
from tundish.loader.files.dataset import (
    FileDataset,
    Paths,
    check_buffer,
    check_storage,
)
from tundish.loader.plan.checks import check_count

if TYPE_CHECKING:
    from tundish.loader.operators.files import Index


class TextLineDataset(FileDataset):
    r"""The lines of text files, as bytes or str.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files; it is not guessed from their names.
    buffer_size : int, optional
        The number of bytes to read at once. None: chosen by the library.
    num_parallel_reads : int, optional
        The number of files that are read in turn, a line of each, in as many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        Accepted as in tf.data, and ignored.
    encoding : str, optional
        The text's encoding ("utf-8", "latin-1", ...), for str. None: bytes.
    on_error : {"raise", "skip"}, optional
        What to do with a line that cannot be decoded, or a file that cannot be read: raise its error
        in its place, or skip it and count it (``iterator.stats.skipped``). In both cases reading continues
        with the next line, or the next file. Default: ``Options.on_error``, else "raise".
    index : bool or "beside", optional
        Whether to index the lines, for which the files are read once: then
        `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are arithmetic. None: if the pipeline
        needs it; False: never. The index is cached in a cache folder, with "beside" beside each file.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    A line ends with ``\n``, which is removed, with one ``\r`` before it. tf.data drops every ``\r`` of a
    line. The last line needs no ``\n``. tf.data's lines are bytes; `encoding` is not in tf.data.

    No file is opened before the dataset is iterated. A missing file is an error in its place.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "words.txt")
    ...     size = path.write_bytes(b"one\ntwo\r\nthree")
    ...     list(td.TextLineDataset(path)), list(td.TextLineDataset(path, encoding="utf-8").skip(1))
    ([b'one', b'two', b'three'], ['two', 'three'])
    """

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        encoding: str | None = None,
        on_error: str | None = None,
        index: Index = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = LinesFormat(
            compression=check_compression(compression_type),
            encoding=encoding,
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)


class FixedLengthRecordDataset(FileDataset[bytes]):
    """The records of files with records of fixed length, as bytes.

    The location of record i is computed: `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` only need the
    sizes of the files, if they are not compressed.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    record_bytes : int
        The length of a record.
    header_bytes, footer_bytes : int, optional
        The numbers of bytes to skip at the beginning and at the end of each file. None: 0.
    buffer_size : int, optional
        The number of bytes to read at once. None: chosen by the library.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files; it is not guessed from their names.
    num_parallel_reads : int, optional
        The number of files that are read in turn, a record of each, in as many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        Accepted as in tf.data, and ignored.
    on_error : {"raise", "skip"}, optional
        What to do with a file that cannot be read, or that ends within a record: raise its error in its
        place, or skip it and count it (``iterator.stats.skipped``). In both cases reading continues with the
        next file. Default: ``Options.on_error``, else "raise".
    index : bool, optional
        Whether to look up the sizes of the files first, so that records are located by arithmetic. None:
        if that is possible; False: never.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    If a file is not a header, whole records and a footer, all whole records are given, and then a
    `RecordCorruptError` with the numbers. tf.data gives none of them, and raises the same error again and
    again, if the file is not compressed. It also has no "ZSTD".

    A compressed file has no random access: a restored iterator reads it again up to where it was.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.bin")
    ...     size = path.write_bytes(b"HEAD" + b"onetwosix" + b".")
    ...     ds = td.FixedLengthRecordDataset(path, 3, header_bytes=4, footer_bytes=1)
    ...     list(ds), len(ds), ds[-1]
    ([b'one', b'two', b'six'], 3, b'six')
    """

    def __init__(  # noqa: PLR0917 - tf.data's order
        self,
        filenames: Paths,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        on_error: str | None = None,
        index: Index = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = FixedFormat(
            record_bytes=check_count("record_bytes", record_bytes, least=1),
            header_bytes=_check_left_out("header_bytes", header_bytes),
            footer_bytes=_check_left_out("footer_bytes", footer_bytes),
            compression=check_compression(compression_type),
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)


def _check_left_out(name: str, value: Any) -> int:
    return 0 if value is None else check_count(name, value, least=0)


class TFRecordDataset(FileDataset[bytes]):
    """The records of TFRecord files, as bytes.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files; it is not guessed from their names.
    buffer_size : int, optional
        The number of bytes to read at once; 0: no more than a record needs. None: chosen by the library.
    num_parallel_reads : int, optional
        The number of files that are read in turn, a record of each, in as many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        Accepted as in tf.data, and ignored.
    on_error : {"raise", "skip"}, optional
        What to do with a record that is damaged, or a file that cannot be read: raise its error in its
        place, or skip it and count it (``iterator.stats.skipped``). In both cases reading continues with
        the next record if its offset is known, else with the next file. Default: ``Options.on_error``,
        else "raise".
    index : bool or "beside", optional
        Whether to index the records, for which the files are read once: then
        `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are arithmetic. None: if the pipeline
        needs it; False: never. The index is cached in a cache folder, with "beside" beside each file.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    See Also
    --------
    TFRecordWriter : Writes such files.
    tundish.io.parse_example : Parses a batch of records.

    Notes
    -----
    Both checksums of every record are checked. A record with damaged data is a
    `RecordCorruptError` in its place, and the record after it is the next. If the length is damaged,
    or the file is truncated, the start of the next record is unknown, and reading continues with the next file.
    tf.data continues with the next file in both cases, and takes a file that is truncated within the 12 bytes
    before a record for one that ends there. ZSTD, `on_error`, `index` and `storage_options` are not in tf.data.

    Checksums are fast with ``pip install google-crc32c``; without it numpy computes them.

    No file is opened before the dataset is iterated. A missing file is an error in its place.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "some.tfrecord")
    ...     td.TFRecordWriter(path).write(td.Dataset.from_list([b"one", b"two", b"three"]))
    ...     list(td.TFRecordDataset(path)), td.TFRecordDataset(path, index=True)[2]
    ([b'one', b'two', b'three'], b'three')
    """

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        on_error: str | None = None,
        index: Index = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = TFRecordFormat(
            compression=check_compression(compression_type),
            buffer_size=check_buffer(buffer_size),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)
