"""The dataset of the records of TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tundish.formats.bytes.stream import check_compression
from tundish.formats.tfrecord.reader import TFRecordFormat
from tundish.loader.files.dataset import (
    FileDataset,
    Paths,
    check_buffer,
    check_storage,
)

if TYPE_CHECKING:
    from tundish.loader.operators.files import Index


class TFRecordDataset(FileDataset):
    """The records of TFRecord files, as bytes.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        Of all files; it is not guessed from their names.
    buffer_size : int, optional
        How many bytes to read at once; 0: no more than a record needs. None: as many as is good.
    num_parallel_reads : int, optional
        Read so many files in turn, a record of each, in so many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        For tf.data's sake; ignored.
    on_error : {"raise", "skip"}, optional
        What to do with a record that is damaged, or a file that cannot be read: raise its error in its
        place, or leave it out and count it (``iterator.stats.skipped``). Either way reading goes on with
        the next record where its place is known, else with the next file. Default: ``Options.on_error``,
        else "raise".
    index : bool or "beside", optional
        Whether to find out where each record begins, for which the files are gone through once: then
        `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are arithmetic. None: where the pipeline
        needs it; False: never. It is kept in a cache folder; "beside": beside each file.
    storage_options : dict, optional
        What a URL's filesystem is made with.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these.

    See Also
    --------
    TFRecordWriter : Writes such files.
    tundish.io.parse_example : Parses a batch of records.

    Notes
    -----
    Both checksums of every record are checked. A record whose data are damaged is a
    `RecordCorruptError` in its place, and the record behind it is the next. Where the length is damaged,
    or the file is cut off, nobody knows where the next begins, and reading goes on with the next file.
    tf.data goes on with the next file in both cases, and takes a file that is cut off within the 12 bytes
    before a record for one that ends there. ZSTD, `on_error`, `index` and `storage_options` are ours.

    Checksums are fast with ``pip install 'tundish[fast]'``; without it numpy makes them.

    No file is opened before the dataset is iterated. A file that is not there is an error in its place.

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
        self._read(
            filenames,
            form,
            num_parallel_reads=num_parallel_reads,
            on_error=on_error,
            index=index,
        )
