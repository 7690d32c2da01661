"""Operators that keep what was computed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.plan.checks import check_callable, check_count, check_word
from tundish.loader.plan.node import AUTOTUNE, UNKNOWN_CARDINALITY, walk
from tundish.loader.protocols.lineage import as_tuple
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.stated import count
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Identity
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.loader.protocols.rng import Path

Compression = Literal["auto", "lz4", "zstd"] | None
Mode = Literal["auto", "read", "write", "off"]


class DatasetClass(Protocol):
    """What is asked of `Dataset`, which is made of this family."""

    @classmethod
    def _of(cls, node: Operator) -> Any: ...
    @classmethod
    def from_list(cls, elements: list[Any], name: str | None = None) -> Any: ...


MIB = 1 << 20


@dataclass(frozen=True, eq=False)
class Cache(Unary):
    """The elements of the first pass, kept in memory for later ones."""

    computing = dynamic = passes = one_by_one = distributive = True
    positional = False

    @property
    def batching(self) -> Operator | None:
        return self.up.batching

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        return [(0, ref, 0)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity:
        up = of(self.up)

        def pinned(ref: Any, pass_: int) -> tuple[int, Path]:
            # Upstream the pass is 0 whenever it runs; a pass of a repeat there is part of the
            # origin, and randomness downstream is of the pass that is being delivered.
            p, path = up(ref, 0)
            return pass_, (p, *as_tuple(path)) if p else path

        return pinned


@dataclass(frozen=True)
class Keeping:
    """How a snapshot is kept: nothing of it changes the elements.

    Parameters
    ----------
    compression : {None, "auto", "lz4", "zstd"}
        Of the batches on disk.
    version : str or None
        Stands for the code of the functions below.
    mode : {"auto", "read", "write", "off"}
        What may be done with files.
    on_mismatch : {"new", "error", "any"}
        What to do where only snapshots of other pipelines stand: write a new one and say so, fail,
        or write it without a word.
    verify : {"batch", "size", "full"}
        What is checked of the files when they are read.
    shard_bytes, batch_bytes : int
        When a file, and a batch in it, is large enough.
    part : (int, int) or None
        Which of how many ranges of the source this one is.
    note : tuple of (str, str)
        What its run's header is to say besides.
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


@dataclass(frozen=True, eq=False)
class Snapshot(Unary):
    """The elements of the first pass, kept in files for this and later runs.

    When an iterator is made, one of which all elements stand in files is replaced by a `Stored`.
    """

    path: str
    keeping: Keeping = Keeping()
    reader_func: Callable[..., Any] | None = None
    shard_func: Callable[..., Any] | None = None
    make: type[DatasetClass] | None = None

    computing = replays = awaited = passes = recorded = True
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
        if self.reader_func is None:  # then the order is the writer's, whatever file they stand in
            given.pop("shard_func", None)
        return given

    def params(self) -> dict[str, Any]:
        # Where it stands and how it is kept changes no element: a state may be read elsewhere.
        return {k: v for k, v in super().params().items() if k == "reader_func"}


@dataclass(frozen=True, eq=False)
class SortedSnapshot(Snapshot):
    """A snapshot whose elements a function deals to files: what it says is a note."""

    op = "snapshot"
    noting = True


@dataclass(frozen=True)
class Found:
    """A complete snapshot, as it was found on disk: what a process needs to open it.

    Parameters
    ----------
    path, key : str
        Where it stands.
    runs : tuple of str
        Its runs, in order.
    upto : tuple of int
        How many journal records each of them has.
    rows : int
        How many elements.
    mapped : bool
        Whether elements are views of local files: then they are read in the consumer's process.
    uniform : bool
        Whether all elements have one structure, and leaves of one dtype and shape.
    safe : bool
        Whether none of them is an error.
    verify : {"batch", "size", "full"}
        What is checked.
    content : str or None
        The name of what was drawn that the plan does not say.
    """

    path: str
    key: str
    runs: tuple[str, ...]
    upto: tuple[int, ...]
    rows: int
    mapped: bool
    uniform: bool
    safe: bool
    verify: str = "batch"
    content: str | None = None


@dataclass(frozen=True, eq=False)
class Stored(Snapshot):
    """A snapshot that is complete: a source with random access; its input is not run."""

    found: Found = None  # type: ignore[assignment]  # always given; fields before it have defaults

    op = "snapshot"
    positional = True
    computing = replays = False

    @property
    def dynamic(self) -> bool:
        return False

    @property
    def safe(self) -> bool:
        return self.found.safe

    @property
    def uniform(self) -> bool:
        return self.found.uniform

    @property
    def cardinality(self) -> int:
        return self.found.rows

    @property
    def numbers(self) -> int:
        return self.found.rows

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return where

    def nested(self, at: int) -> Any:
        return stored_position(at, self.found.content)

    def position(self, state: dict[str, Any]) -> int:
        return read_position(state, self.found.content)

    @property
    def running(self) -> tuple[Operator, ...]:
        return ()

    @property
    def parallel(self) -> int | None:
        """Compressed batches are read by as many workers as its input asked for."""
        asked = [getattr(node, "parallel", None) for node in walk(self.up)]
        counts = [count for count in asked if count is not None]
        if self.found.mapped or not counts:
            return None
        return AUTOTUNE if AUTOTUNE in counts else max(counts)


@dataclass(frozen=True, eq=False)
class Reread(Snapshot):
    """A snapshot that is complete, in the order that its `reader_func` chose."""

    found: Found = None  # type: ignore[assignment]  # always given, as below
    order: Operator = None  # type: ignore[assignment]

    op = "snapshot"

    @property
    def running(self) -> tuple[Operator, ...]:
        return ()

    def needs_replay(self, ref: Any) -> bool:
        return bool(ref >= self.found.rows)  # else it is an index


def stored_position(at: int, content: str | None) -> dict[str, Any]:
    """Return a position in a snapshot as JSON: an index, and of what, if the plan does not say it."""
    return {"n": at} if content is None else {"n": at, "content": content}


def read_position(state: Any, content: str | None) -> int:
    """Return the index that a position in a snapshot says.

    Raises
    ------
    IncompatibleCheckpointError
        It was taken of other draws than those that stand here.
    """
    at = count(state, "n")
    there = state.get("content", content)
    if at and there != content:
        difference = (
            f"snapshot: random operators below it drew {content} here, {there} in the state; "
            "give them seeds"
        )
        raise IncompatibleCheckpointError((difference,))
    return at


class StoringMethods:
    """Methods of `Dataset` that keep what was computed."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Self:
        """Keep the elements in memory once a whole pass has been read, or in files.

        Later passes (of a `repeat`, or of another iterator of this dataset in this process) are
        served from memory. What lies below runs in pass 0 whenever it runs: later passes have the
        same order and the same augmentations, served or recomputed.

        Parameters
        ----------
        filename : path, optional
            A folder: the elements are kept there, as by ``snapshot(filename, compression=None)``, for
            later runs too.
        name : str, optional
            For tf.data's sake; ignored.

        Returns
        -------
        Dataset

        Notes
        -----
        In memory at most as many bytes as the memory budget are kept (16 GiB without workers), in the
        consumer's process and beside what the budget counts. Past them nothing is kept, and each
        pass is computed anew, with one warning. The first full pass completes the cache, whatever
        was read in part before it or beside it; ``take(n)`` of exactly all is a full pass where
        the cardinality is known, as in tf.data. A failed element is an element: it fails in each
        pass (in tf.data it is missing from later ones). An iterator restored in another process
        reads its pass again from the start; from files, it goes on where it was.

        In tf.data a file is read whatever the pipeline below has become, and refused while somebody
        writes it; here another pipeline is kept beside the first one, and who comes second computes.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(2).cache().repeat(2)
        >>> [int(x) for x in ds]
        [0, 1, 0, 1]
        """
        if not isinstance(filename, (str, os.PathLike)):
            raise TypeError(
                "filename must be a path, or '' for a cache in memory, not "
                f"{type(filename).__name__} ({filename!r})"
            )
        if os.fspath(filename):
            return self.snapshot(filename, compression=None)
        return self._then(Cache)

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
        """Keep the elements in files while the first pass runs, and read them in every later one.

        What lies below is computed once. Stopped or killed at any instant, the next run reads what was
        made durable and computes the rest; a complete snapshot is read by every later iterator, in
        this process and in others, without anything below it being run.

        Parameters
        ----------
        path : path
            A folder for snapshots of any number of pipelines: each has a folder of its own there,
            named by what the pipeline computes. ``s3://...`` and the like need `fsspec`.
        compression : {"auto", None, "lz4", "zstd"}
            Of the files. "auto": none on a local disk, where elements are then read as they lie;
            lz4 elsewhere. tf.data's "GZIP" and "SNAPPY" are taken as zstd and lz4, with a warning.
        reader_func : callable, optional
            Chooses the order of reading: called with a dataset of datasets, one for each shard, it
            returns a dataset. By default elements come in the order in which they were written.
        shard_func : callable, optional
            Deals elements to shards: called with an element, it returns an int of at least 0. The
            order of reading does not depend on it.
        name : str, optional
            For tf.data's sake; ignored.
        version : str, optional
            Stands for the code of all functions below: only another version, or another plan, makes
            another snapshot. What was kept without a version is not found with one.
        mode : {"auto", "read", "write", "off"}
            "auto": read what is complete, else continue what was begun, else begin. While another
            process writes, this one reads what it has made durable, computes the rest and writes
            nothing. "read": it must be complete. "write": compute and write, whoever else does, in
            the place of what stood complete when it began; of two that do, what is complete first
            stays. "off": touch no file.
        on_mismatch : {"new", "error"}
            Where only snapshots of other pipelines stand: begin a new one, and log what has changed;
            or raise.
        verify : {"batch", "size", "full"}
            What is checked of files, besides that all are there and of the right size: each batch by its
            checksum when it is first read; nothing; or all batches before the first element. A batch is
            verified once, by whichever process reads it first, until its file is changed.
        shard_bytes : int
            A file is closed when it is as large as this.
        batch_bytes : int
            Elements are stored in batches of about this size.

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
            From ``iter``: something that a function below uses has no state that could be compared
            from run to run (an open file, a lock). The message names it; `version` is one way out.
        SnapshotCorruptError
            A file is missing, cut off or changed; the message names it.
        SnapshotError
            The files cannot be written. It is raised once, where that shows; what was made durable
            stays, and iteration goes on without writing.

        Notes
        -----
        What lies below runs in pass 0 whenever it runs, as below `cache`: put shuffles and random
        augmentation behind the snapshot, or each epoch is the same. Behind it an element is known by
        its number in the snapshot, which keys its random numbers; so they do not depend on whether it
        was read or computed.

        An element that failed is an element: it is stored as an error, and fails in each pass. One of
        Python's own exceptions comes back as itself, another as a `TransformError` that has its
        text. Elements may be nests of anything that numpy has a dtype for, of str and bytes, all of one
        structure; shapes may differ. Arrays that are read are read-only.

        In tf.data a snapshot counts only when its end was reached, is written anew after every
        interruption, is not checked for missing files, and does not see that Python code has changed.

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
    """A path, or an address such as ``memory://folder``."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {type(path).__name__} ({path!r})")
    checked = os.fspath(path)
    if not isinstance(checked, str):
        checked = os.fsdecode(checked)
    if not checked:
        raise ValueError(f"{name} must be the path of a folder, not ''")
    # Where it is now: a program may go to another folder before it reads it.
    if "://" in checked or os.path.isabs(checked):  # noqa: PTH117 - as below
        return checked
    return os.path.abspath(checked)  # noqa: PTH100 - links stay


def check_version(version: Any) -> str | None:
    """A version: a text, or None."""
    if version is not None and (not isinstance(version, str) or not version):
        raise ValueError(f"version must be a str that is not empty, or None, not {version!r}")
    return version


_COMPRESSIONS = {"AUTO": "auto", "LZ4": "lz4", "ZSTD": "zstd", "NONE": None, "": None}
_TF_COMPRESSIONS = {"GZIP": "zstd", "SNAPPY": "lz4"}


def check_compression(compression: Any) -> Compression:
    """A compression by name, in any case; tf.data's two are taken as the nearest there is.

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
