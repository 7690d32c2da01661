"""snapshot: the elements of the first pass, kept in files for this and later runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np

from tundish.loader.plan.checks import check_callable, check_count, check_word
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.watch.stats import SnapshotStats
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Resolver, Value

Compression = Literal["auto", "lz4", "zstd"] | None
Mode = Literal["auto", "read", "write", "off"]


class SnapshotDatasetClass(Protocol):
    """The part of `Dataset` that this family needs, since `Dataset` is made from the families."""

    @classmethod
    def _of(cls, node: Operator) -> Any: ...
    @classmethod
    def from_list(cls, elements: list[Any], name: str | None = None) -> Any: ...


MIB = 1 << 20


@dataclass(frozen=True)
class Keeping:
    """Settings of how a snapshot is stored; none of it changes the elements.

    Parameters
    ----------
    compression : {None, "auto", "lz4", "zstd"}
        The compression of batches on disk.
    version : str or None
        Stands for the code of the functions before the snapshot.
    mode : {"auto", "read", "write", "off"}
        Which files may be read and written.
    on_mismatch : {"new", "error", "any"}
        What to do if there are only snapshots of other pipelines: write a new one and log it, fail,
        or write it silently.
    verify : {"batch", "size", "full"}
        What is checked when files are read.
    shard_bytes, batch_bytes : int
        The sizes of a file, and of a batch in it.
    part : (int, int) or None
        (index, count) of the range of the source that this snapshot covers.
    note : tuple of (str, str)
        Further entries for the header of its run.
    follows : str or None
        Of a `save` that may be continued, the key of the snapshot that was the newest before it; "" if there was none.
    """

    compression: Compression = "auto"
    version: str | None = None
    mode: Mode = "auto"
    on_mismatch: Literal["new", "error", "any"] = "new"
    verify: Literal["batch", "size", "full"] = "batch"
    shard_bytes: int = 256 * MIB
    batch_bytes: int = 4 * MIB
    part: tuple[int, int] | None = None
    note: tuple[tuple[str, str], ...] = ()
    follows: str | None = None


@dataclass(frozen=True, eq=False)
class Snapshot(Unary):
    """The elements of the first pass, kept in files for this and later runs.

    When an iterator is made, a complete snapshot is replaced by a `Stored`.
    """

    path: str
    keeping: Keeping = Keeping()
    reader_func: Callable[..., Any] | None = None
    shard_func: Callable[..., Any] | None = None
    make: type[SnapshotDatasetClass] | None = None

    computing = replays = awaited = passes = keeps = recorded = kept = True
    positional = False
    tuning = frozenset({"path", "keeping", "make"})

    @property
    def dynamic(self) -> bool:
        return True

    @property
    def safe(self) -> bool:
        return False

    @property
    def numbers(self) -> int:
        return UNKNOWN_CARDINALITY

    @property
    def int_refs(self) -> bool:
        return True

    @property
    def space(self) -> None:
        return None

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return []

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if self.reader_func is None:  # then the order is the writer's, whatever the files
            given.pop("shard_func", None)
        return given

    def params(self) -> dict[str, Any]:
        # The folder and the settings of storage change no element: a state may be loaded with others.
        return {k: v for k, v in super().params().items() if k == "reader_func"}

    @property
    def unpositioned(self) -> str:
        if self.positional:
            return ""
        return (
            "; the snapshot before it has random access once it is complete, and "
            f"{self.path} is not: run the pipeline up to the snapshot first, or use shuffle(buffer_size)"
        )

    def resolved(self, resolver: Resolver) -> Operator:
        return resolver.snapshot(self)

    def stats(self, context: Context) -> SnapshotStats | None:
        """Return the statistics of the snapshot in an iterator; None if it is not run."""
        if id(self) not in context.live:
            return None
        recorder = context.live[id(self)].recorder
        passed = SnapshotStats(self.path, "", "", "pass", 0, 0)
        return passed if recorder is None else recorder.stats()

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.recorded(self, pass_)

    def evaluator(self, maker: Maker) -> Value:
        return maker.replayed(self)


@dataclass(frozen=True, eq=False)
class SortedSnapshot(Snapshot):
    """A snapshot whose elements a function assigns to shards; the shard is a note."""

    op = "snapshot"
    noting = True

    def noter(self, maker: Maker, up: Value) -> Value:
        assert self.shard_func is not None
        function = self.shard_func
        return maker.asking(self, lambda *parts: checked_shard(function(*parts)), up)


def snapshots(root: Operator, *, running: bool = False) -> list[Snapshot]:
    """Return the snapshots of a plan, upstream first; with `running`, only those that are run or read."""
    return [node for node in walk(root, running=running) if isinstance(node, Snapshot)]


def checked_shard(number: Any) -> int:
    """Check the number of a user shard."""
    if not isinstance(number, (int, np.integer, np.ndarray)) or isinstance(number, bool):
        raise TypeError(f"shard_func must return an int, not {type(number).__name__} ({number!r})")
    if isinstance(number, np.ndarray) and (number.ndim or number.dtype.kind not in "iu"):
        raise TypeError(f"shard_func must return an int, not {number!r}")
    if number < 0:
        raise ValueError(f"shard_func must return an int of at least 0, not {number}")
    return int(number)


class SnapshotMethods(Fluent):
    """The method of `Dataset` that stores elements in files."""

    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "auto",
        reader_func: Callable[..., Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
        *,
        version: str | None = None,
        mode: Mode = "auto",
        on_mismatch: Literal["new", "error"] = "new",
        verify: Literal["batch", "size", "full"] = "batch",
        shard_bytes: int = 256 * MIB,
        batch_bytes: int = 4 * MIB,
    ) -> Self:
        """Store the elements in files while the first pass runs, and read them in every later one.

        The operators before the snapshot compute each element once. If a run is stopped or killed, the next one reads
        what is safely on disk and computes the rest. A complete snapshot is read by every later iterator, in
        this process and in others, and the operators before it do not run.

        Parameters
        ----------
        path : path
            A folder for the snapshots of any number of pipelines. Each pipeline has a folder in it,
            named by what the pipeline computes. ``~`` is your home. URLs such as ``s3://...`` need `fsspec`.
        compression : {"auto", None, "lz4", "zstd"}
            The compression of the files. "auto" means none on a local disk, where elements are then views of the
            files, and lz4 elsewhere. tf.data's "GZIP" and "SNAPPY" are taken as zstd and lz4, with a warning.
        reader_func : callable, optional
            The order of reading. It is called with a dataset of datasets, one for each shard, and
            returns a dataset. By default elements come in the order in which they were written.
        shard_func : callable, optional
            The shard of an element: called with the element, it returns an int of at least 0. The
            order of reading does not depend on it.
        name : str, optional
            Accepted as in tf.data, and ignored.
        version : str, optional
            A name for the code of all functions before the snapshot, and for the objects and the contents of arrays that
            its plan holds. With it, only another version or another plan begins another snapshot. A snapshot that was
            written without a version is not found with one.
        mode : {"auto", "read", "write", "off"}
            "auto" reads a complete snapshot, or continues an unfinished one, or begins one. While another
            process writes it, this one reads what is safely on disk, computes the rest and writes
            nothing. "read" requires a complete snapshot. "write" computes and writes, even if another process does,
            and replaces the snapshot that was complete when it began; if two processes do this, the one that
            completes first wins. "off" touches no file.
        on_mismatch : {"new", "error"}
            What to do if there are only snapshots of other pipelines: begin a new one and log what has changed,
            or raise.
        verify : {"batch", "size", "full"}
            What is checked when files are read. All files must exist and have the right size. "batch" also compares
            the checksum of each batch when it is first read, and "full" those of all batches before the first
            element. A batch is verified once, by the process that reads it first, until its file changes.
        shard_bytes : int
            The size at which a file is closed.
        batch_bytes : int
            The approximate size of the batches in which elements are stored.

        Returns
        -------
        Dataset

        Raises
        ------
        IncompleteSnapshotError
            From ``iter``: `mode` is "read", and there is no complete snapshot of this pipeline.
        IncompatibleSnapshotError
            From ``iter``: `on_mismatch` is "error", and only snapshots of other pipelines are there.
        FingerprintError
            From ``iter``: a function before the snapshot uses an object that cannot be compared
            from run to run, such as an open file or a lock. The message names it; `version` is one remedy.
        SnapshotCorruptError
            A file is missing, truncated or changed; the message names it.
        SnapshotError
            The files cannot be written. It is raised once, at the element where it was noticed. What is safely on
            disk stays, and iteration continues without writing.

        Notes
        -----
        Operators before the snapshot always run as in the first pass, as before `cache`. So put shuffles and random
        augmentation after it; otherwise every epoch is the same. After the snapshot, the random numbers of an
        element are keyed by its number in the snapshot, so they do not depend on whether it
        was read or computed.

        An element that failed is stored as an error, and fails in each pass. Python's own
        exceptions keep their type; others become a `TransformError` with their
        text. Elements may be nests of str, bytes and everything that NumPy has a dtype for, all of one
        structure; shapes may differ. Arrays that are read from files are read-only.

        In tf.data a snapshot is used only if its end was reached. It is written again after every
        interruption, is not checked for missing files, and does not notice that Python code has changed.

        Examples
        --------
        >>> import tempfile
        >>> import tundish as td
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ds = td.Dataset.range(5).map(lambda x: x * x).snapshot(folder)
        ...     written = [int(x) for x in ds]
        ...     read = [int(x) for x in ds.shuffle(None, seed=3)]
        >>> written, read
        ([0, 1, 4, 9, 16], [1, 4, 16, 9, 0])
        """
        keeping = Keeping(
            check_compression(compression),
            check_version(version),
            _word("mode", mode, ("auto", "read", "write", "off")),
            _word("on_mismatch", on_mismatch, ("new", "error")),
            _word("verify", verify, ("batch", "size", "full")),
            check_count("shard_bytes", shard_bytes, least=1),
            check_count("batch_bytes", batch_bytes, least=1),
        )
        if reader_func is not None:
            check_callable("reader_func", reader_func)
        kind = Snapshot
        if shard_func is not None:
            check_callable("shard_func", shard_func)
            kind = SortedSnapshot
        make = type(self) if reader_func is not None else None
        return self._then(kind, check_path("path", path), keeping, reader_func, shard_func, make)


def check_path(name: str, path: Any) -> str:
    """Check a path, or an address such as ``memory://folder``."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(path).__name__} ({path!r})")
    checked = os.fspath(path)
    if not isinstance(checked, str):
        checked = os.fsdecode(checked)
    if not checked:
        raise ValueError(f"{name} must be the path of a folder, not ''")
    checked = os.path.expanduser(checked)  # noqa: PTH111 - an address stays
    # Absolute: a program may change its working directory before it reads the snapshot.
    if "://" in checked or os.path.isabs(checked):  # noqa: PTH117 - as below
        return checked
    return os.path.abspath(checked)  # noqa: PTH100 - links stay


def check_version(version: Any) -> str | None:
    """Check a version: a str or None."""
    if version is not None and (not isinstance(version, str) or not version):
        raise ValueError(f"version must be a str that is not empty, or None, not {version!r}")
    return version


_COMPRESSIONS = {"AUTO": "auto", "LZ4": "lz4", "ZSTD": "zstd", "NONE": None, "": None}
_TF_COMPRESSIONS = {"GZIP": "zstd", "SNAPPY": "lz4"}


def check_compression(compression: Any) -> Compression:
    """Return a compression by name, in any case; tf.data's two names become the closest ones.

    Examples
    --------
    >>> check_compression("LZ4"), check_compression(None)
    ('lz4', None)
    """
    if compression is None:
        return None
    name = compression.upper() if isinstance(compression, str) else "?"
    if name in _COMPRESSIONS:
        return _COMPRESSIONS[name]  # type: ignore[return-value]  # its values are what it names
    if name in _TF_COMPRESSIONS:
        taken = _TF_COMPRESSIONS[name]
        warnings.warn(
            f"compression={compression!r} is taken as {taken!r}: Arrow IPC has only lz4 and zstd",
            stacklevel=callers_level(),
        )
        return taken  # type: ignore[return-value]  # as above
    raise ValueError(f"compression must be None, 'auto', 'lz4' or 'zstd', not {compression!r}")


def _word(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    return check_word(name, value, allowed)
