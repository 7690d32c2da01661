"""The dataset of the elements in tar archives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.formats.tar.elements import TarFormat
from tundish.loader.files.dataset import FileDataset, Paths, check_storage, compression_of
from tundish.loader.plan.checks import check_items

if TYPE_CHECKING:
    from tundish.loader.operators.files import Index


class TarDataset(FileDataset):
    """The elements of tar archives in WebDataset's layout: files of one base name are one element.

    An element is a dict: "__key__" is the name of its files up to the first dot of their base names,
    with the folder, as str; what follows that dot, in lower case, is the key of a file's bytes. So
    ``train/7.jpg`` and ``train/7.seg.png``, if they are adjacent, are
    ``{"__key__": "train/7", "jpg": ..., "seg.png": ...}``.

    Parameters
    ----------
    filenames : path, list of paths, or Dataset of paths
        Read one after another, in this order. A path may be a URL that fsspec knows.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files. None: by their names (``.gz``, ``.tgz``, ``.zst``, ``.tzst``), which must agree; if
        the names are not known before the dataset of paths runs, "".
    num_parallel_reads : int, optional
        The number of files that are read in turn, an element of each, in as many workers: the order is that of
        ``interleave(cycle_length=num_parallel_reads)``. ``AUTOTUNE``: 16 files in turn.
    name : str, optional
        Accepted as in tf.data, and ignored.
    extensions : sequence of str, optional
        The extensions to read, such as ``("jpg", "cls")``; other files are not read. An element that lacks
        one of them is an error that names it. None: all that are there, which may differ from element
        to element.
    on_error : {"raise", "skip"}, optional
        What to do with an element that is damaged or lacks a required file, or a file that cannot be read:
        raise its error in its place, or skip it and count it (``iterator.stats.skipped``). In both cases reading
        continues with the next element if its offset is known, else with the next file. Default:
        ``Options.on_error``, else "raise".
    index : bool or "beside", optional
        Whether to index the elements, for which the headers are read once, but not
        the data: then `shuffle(None)`, `shard`, `skip`, ``len`` and ``ds[i]`` are arithmetic. None: if
        the pipeline needs it; False: never. The index is cached in a cache folder, with "beside" beside each file.
    storage_options : dict, optional
        Options of a URL's filesystem.

    Raises
    ------
    TypeError, ValueError
        An argument is of another type or out of range.

    Notes
    -----
    Not in tf.data. Elements are those of the package webdataset with three exceptions. A file whose base
    name begins with a dot belongs to no element, like one without a dot; in webdataset it is an element with the
    folder's name. A sparse file (``tar --sparse``) is its element's error. There is no "__url__".

    Folders, links and devices are skipped, as is ``__about__/...``; nothing is ever written to disk. A
    file that occurs twice in an element is its error. An archive that does not end with a block of
    zeros was truncated: its last element may lack files, and is an error. Data after that end (as
    after ``cat a.tar b.tar``) is reported by an error, and read.

    A restored iterator opens the archive at the element's offset; a compressed one is decompressed up to
    there.

    Examples
    --------
    >>> import tarfile
    >>> import tundish as td
    >>> from io import BytesIO
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "train.tar")
    ...     with tarfile.open(path, "w") as archive:
    ...         for name, data in [("7.cls", b"3"), ("7.txt", b"three"), ("8.cls", b"5")]:
    ...             member = tarfile.TarInfo(name)
    ...             member.size = len(data)
    ...             archive.addfile(member, BytesIO(data))
    ...     list(td.TarDataset(path)), list(td.TarDataset(path, extensions=["cls"]).skip(1))
    ([{'__key__': '7', 'cls': b'3', 'txt': b'three'}, {'__key__': '8', 'cls': b'5'}], [{'__key__': '8', 'cls': b'5'}])
    """

    def __init__(
        self,
        filenames: Paths,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        extensions: Sequence[str] | None = None,
        on_error: str | None = None,
        index: Index = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        form = TarFormat(
            compression=compression_of(compression_type, filenames),
            extensions=_check_extensions(extensions),
            storage_options=check_storage(storage_options),
        )
        self._read(filenames, form, num_parallel_reads, on_error, index)


def _check_extensions(extensions: Any) -> tuple[str, ...] | None:
    if extensions is None:
        return None
    found = check_items("extensions", extensions, "extensions of files")
    if not found:
        raise ValueError("extensions must name at least one, or be None for all that are there")
    for each in found:
        check_is(each, str, "extensions must hold str")
        if each.startswith(".") or "/" in each:
            raise ValueError(f"extensions are what follows the first dot, as 'jpg', not {each!r}")
    lower = tuple([each.lower() for each in found])
    for k, each in enumerate(lower):
        if each in lower[:k]:
            raise ValueError(f"extensions names {each!r} twice")
    return lower
