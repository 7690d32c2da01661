"""Writing a dataset to a TFRecord file, like ``tf.data.experimental.TFRecordWriter``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.formats.tfrecord.records import TFRecordOptions
from tundish.formats.tfrecord.records import TFRecordWriter as RecordWriter

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TFRecordWriter:
    """Writes a dataset of bytes to a TFRecord file.

    Parameters
    ----------
    filename : str, bytes or os.PathLike
        The file, which replaces an existing one; or a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of the whole file.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument is not one of these.

    See Also
    --------
    tundish.TFRecordDataset : Reads it.
    tundish.io.encode_example, tundish.io.serialize_tensor : Make bytes of an element.

    Notes
    -----
    The file exists once it is complete: it is written under a temporary name, made durable, then renamed. If
    iterating the dataset raises, nothing of it remains, and an existing file is unchanged. A process that is
    killed while writing leaves a ``.tundish-*.tmp`` beside it, which may be removed.
    tf.data writes in place, and accepts any word as `compression_type`. ZSTD is not in tf.data.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> ds = td.Dataset.range(5).map(lambda x: b"record %d" % x)

    Several files, one for each key:

    >>> folder = TemporaryDirectory()
    >>> def write(key, shard):
    ...     path = str(Path(folder.name, f"part-{key}.tfrecord"))
    ...     td.TFRecordWriter(path).write(shard.map(lambda k, record: record))
    ...     return td.Dataset.from_tensors(path)
    >>> shards = ds.enumerate().group_by_window(lambda k, _: k % 2, write, 2**63 - 1)
    >>> [Path(path).name for path in shards]
    ['part-0.tfrecord', 'part-1.tfrecord']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        filename: str | bytes | os.PathLike[str],
        compression_type: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_is(filename, (str, bytes, os.PathLike), "filename must be a path")
        self._path = os.fsdecode(filename)
        self._options = TFRecordOptions(compression_type)
        self._storage_options = storage_options

    def write(self, dataset: Iterable[Buffer]) -> None:
        """Write all elements of a dataset.

        Parameters
        ----------
        dataset : Dataset
            A dataset of bytes, or any iterable of them. It is iterated once.

        Raises
        ------
        TypeError
            `dataset` is not iterable, or an element is not bytes.
        OSError
            The file cannot be written.
        """
        if not hasattr(dataset, "__iter__"):
            what = f"{type(dataset).__name__} ({dataset!r})"
            raise TypeError(f"dataset must be a Dataset of bytes, not {what}")
        writer = RecordWriter(self._path, self._options, storage_options=self._storage_options)
        with writer:
            for number, record in enumerate(dataset):
                try:
                    writer.write(record)
                except TypeError as error:
                    raise TypeError(f"element {number}: {error}") from None
