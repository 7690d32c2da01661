"""The dataset of the lines of text files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tundish.formats.bytes.stream import check_compression
from tundish.formats.lines import LinesFormat
from tundish.loader.files.dataset import (
    FileDataset,
    Paths,
    check_buffer,
    check_storage,
)

if TYPE_CHECKING:
    from tundish.loader.operators.files import Index


class TextLineDataset(FileDataset):
    r"""The lines of text files, as bytes or str.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        Of all files; it is not guessed from their names.
    buffer_size : int, optional
        How many bytes to read at once. None: as many as is good.
    num_parallel_reads : int, optional
        Read so many files in turn, a line of each, in so many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        For tf.data's sake; ignored.
    encoding : str, optional
        Give str, decoded so ("utf-8", "latin-1", ...). None: bytes.
    on_error : {"raise", "skip"}, optional
        What to do with a line that cannot be decoded, or a file that cannot be read: raise its error
        in its place, or leave it out and count it (``iterator.stats.skipped``). Either way reading goes on
        with the next line, or the next file. Default: ``Options.on_error``, else "raise".
    index : bool or "beside", optional
        Whether to find out where each line begins, for which the files are gone through once: then
        `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are arithmetic. None: where the pipeline
        needs it; False: never. It is kept in a cache folder; "beside": beside each file.
    storage_options : dict, optional
        What a URL's filesystem is made with.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these.

    Notes
    -----
    A line ends with ``\n``, which is taken off, with one ``\r`` before it. tf.data drops every ``\r`` of a
    line. The last line needs no ``\n``. Its lines are bytes; `encoding` is ours.

    No file is opened before the dataset is iterated. A file that is not there is an error in its place.

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
        self._read(
            filenames,
            form,
            num_parallel_reads=num_parallel_reads,
            on_error=on_error,
            index=index,
        )
