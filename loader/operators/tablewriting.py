"""write_parquet, write_arrow: the elements as files of tables, in a folder that is there once it is complete."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tundish.formats.bytes.file import is_remote, local_path
from tundish.formats.bytes.sink import open_sink
from tundish.formats.tables.writing import table_of
from tundish.loader.operators.snapshot import check_path
from tundish.loader.plan.checks import check_callable, check_count
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.snapshot.lease import Holder

if TYPE_CHECKING:
    from tundish.formats.bytes.sink import FileSink

Progress = Callable[[int], Any]


class TableWritingMethods(Fluent):
    """Methods of `Dataset` that write tables."""

    def write_parquet(
        self,
        folder: str | os.PathLike[str],
        *,
        rows_per_file: int = 1_000_000,
        rows_per_group: int = 10_000,
        compression: str = "snappy",
        progress: Progress | None = None,
    ) -> list[str]:
        """Write the elements to Parquet files now, for `ParquetDataset`.

        Parameters
        ----------
        folder : path
            A local folder that does not exist, or is empty. It appears when all files are complete.
        rows_per_file, rows_per_group : int
            The number of rows in each file, and in each row group.
        compression : str
            As for ``pyarrow.parquet.ParquetWriter``: "snappy", "zstd", "none", ...
        progress : callable, optional
            Called with the number of rows written so far, after each row group.

        Returns
        -------
        list of str
            The paths of the files, in order: ``part-00000.parquet``, ...

        Raises
        ------
        FileExistsError
            The folder is not empty.
        SpecError
            An element is not a dict, or its types differ from those before it.
        ValueError
            The dataset is infinite, or `folder` is an address, such as ``s3://bucket/rows``.
        OSError
            The files cannot be written.
        Exception
            The error of the first element that failed.

        Notes
        -----
        tf.data has no such method. An element is a dict of numbers, str, bytes, times, one-dimensional arrays, arrays of
        one shape, or such dicts; for other elements use `save`. Elements are computed as in any iteration, in workers
        if the dataset has some. After an error no files remain. A process that is killed leaves a hidden folder
        ``.tundish-*.tmp`` beside `folder`, and never an incomplete `folder`.

        Examples
        --------
        >>> import tundish as td
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     ds = td.Dataset.range(5).map(lambda x: {"x": x, "word": f"w{x}"})
        ...     paths = ds.write_parquet(Path(home, "rows"), rows_per_file=3)
        ...     len(paths), td.ParquetDataset(paths)[4]
        (2, {'x': np.int64(4), 'word': 'w4'})
        """

        def write(sink: FileSink, groups: Iterator[Any]) -> None:
            file = pa.PythonFile(_Writable(sink), mode="w")
            table = next(groups)
            with pq.ParquetWriter(file, table.schema, compression=compression) as writer:
                writer.write_table(table)
                for following in groups:
                    writer.write_table(following)

        counts = check_counts(rows_per_file, rows_per_group)
        return _write(self, folder, "parquet", write, counts=counts, progress=progress)

    def write_arrow(
        self,
        folder: str | os.PathLike[str],
        *,
        rows_per_file: int = 1_000_000,
        rows_per_group: int = 10_000,
        progress: Progress | None = None,
    ) -> list[str]:
        """Write the elements to Arrow IPC files now, for `ArrowDataset`.

        Parameters
        ----------
        folder, rows_per_file, rows_per_group, progress : optional
            As for `write_parquet`; a group is a record batch.

        Returns
        -------
        list of str
            The paths of the files, in order: ``part-00000.arrow``, ...

        Raises
        ------
        FileExistsError, SpecError, ValueError, OSError, Exception
            As for `write_parquet`.

        Notes
        -----
        The rules are those of `write_parquet`.

        Examples
        --------
        >>> import tundish as td
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     ds = td.Dataset.range(5).map(lambda x: {"x": x * x})
        ...     [int(row["x"]) for row in td.ArrowDataset(ds.write_arrow(Path(home, "rows")))]
        [0, 1, 4, 9, 16]
        """

        def write(sink: FileSink, groups: Iterator[Any]) -> None:
            file = pa.PythonFile(_Writable(sink), mode="w")
            table = next(groups)
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
                for following in groups:
                    writer.write_table(following)

        counts = check_counts(rows_per_file, rows_per_group)
        return _write(self, folder, "arrow", write, counts=counts, progress=progress)


class _Writable:
    """A sink as a file object for pyarrow."""

    closed = False

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink

    def write(self, data: Any) -> int:
        self._sink.write(data)
        return len(memoryview(data))

    def flush(self) -> None:
        """Do nothing: incomplete files are not visible."""

    def close(self) -> None:
        """Do nothing: the sink is closed by its owner."""


def check_counts(rows_per_file: int, rows_per_group: int) -> tuple[int, int]:
    """Check the arguments of these names."""
    whole = check_count("rows_per_file", rows_per_file, least=1)
    return whole, min(whole, check_count("rows_per_group", rows_per_group, least=1))


def local_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder on this machine, without links."""
    path = check_path("folder", folder)
    if is_remote(path):
        raise ValueError(
            f"folder must be on a local disk, not {path}: write the files there and copy them; `save` and "
            "`snapshot` write to stores"
        )
    return Path(os.path.realpath(local_path(path)))


def _write(
    dataset: Any,
    folder: str | os.PathLike[str],
    suffix: str,
    write: Callable[[FileSink, Iterator[Any]], None],
    *,
    counts: tuple[int, int],
    progress: Progress | None,
) -> list[str]:
    """Write files to a folder aside, then rename that."""
    if progress is not None:
        check_callable("progress", progress)
    if dataset.cardinality() == INFINITE_CARDINALITY:
        raise ValueError("an infinite dataset cannot be written: use take(n)")
    target = local_folder(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(
            f"{target} exists and is not an empty folder; name another one, or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = _folder_beside(target)
    try:
        names: list[str] = []
        with dataset.iterator() as elements:
            tables = _Tables(elements, counts[1], progress)
            while tables.more():
                names.append(f"part-{len(names):05}.{suffix}")
                with open_sink(str(aside / names[-1])) as sink:
                    write(sink, tables.of_a_file(counts[0]))
        aside.rename(target)  # an empty folder is replaced
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return [str(target / name) for name in names]


def _folder_beside(target: Path) -> Path:
    """Make a hidden folder that names its process, and remove those of processes of this machine that are gone."""
    here = Holder.here()
    for left in target.parent.glob(".tundish-*.tmp"):
        holder = _holder_of(left, here)
        if holder is not None and not holder.alive:
            shutil.rmtree(left, ignore_errors=True)
    name = f".tundish-{_place_of(here)}-{here.pid}-{here.born}-{secrets.token_hex(8)}.tmp"
    aside = target.with_name(name)
    aside.mkdir()
    return aside


def _holder_of(folder: Path, here: Holder) -> Holder | None:
    """Return the process that made a hidden folder; None if it cannot be looked up from here."""
    match = _NAMED.fullmatch(folder.name)
    if match is None or match["place"] != _place_of(here):
        return None
    return replace(here, pid=int(match["pid"]), born=match["born"])


def _place_of(holder: Holder) -> str:
    return hashlib.blake2b(holder.place.encode(), digest_size=8).hexdigest()


_NAMED = re.compile(
    r"\.tundish-(?P<place>[0-9a-f]{16})-(?P<pid>\d+)-(?P<born>[\d.]+)-[0-9a-f]{16}\.tmp"
)


class _Tables:
    """The elements of an iterator as tables of some rows each."""

    def __init__(self, elements: Iterator[Any], size: int, progress: Progress | None) -> None:
        self._elements, self._size, self._progress = elements, size, progress
        self._waiting: list[Any] = []
        self._schema: Any = None
        self._written = 0

    def more(self) -> bool:
        """Return True if there is another element."""
        if not self._waiting:
            self._waiting = list(islice(self._elements, 1))
        return bool(self._waiting)

    def of_a_file(self, most: int) -> Iterator[Any]:
        """Yield tables of up to `most` rows in all; a table counts as written when the next one is requested."""
        while most and self.more():
            size = min(self._size, most)
            rows = self._waiting + list(islice(self._elements, size - 1))
            self._waiting = []
            table = table_of(rows, self._written, self._schema)
            self._schema = table.schema
            yield table
            self._written += len(rows)
            most -= len(rows)
            if self._progress is not None:
                self._progress(self._written)
