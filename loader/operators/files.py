"""Operators that read files of records."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tundish.formats.files import UNREADABLE, RecordFiles
from tundish.formats.tables.files import TableFiles
from tundish.loader.operators.flat_map import FlatMap
from tundish.loader.operators.interleaving import Interleave
from tundish.loader.operators.listing import Files
from tundish.loader.operators.records import FileRecords
from tundish.loader.operators.sources import FromSource
from tundish.loader.operators.stored import rows_of
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, OwnFunction, walk
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.generating import BrokenElement
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.positional import listed
from tundish.loader.protocols.raised import raise_from

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tundish.formats.format import Format
    from tundish.formats.index import Index as FileIndex
    from tundish.loader.protocols.contracts import Gather, Identity, Maker, Spec, Value
    from tundish.loader.protocols.rng import Path

Index = Literal["beside"] | bool | None
"""True: index files. False: never. None: if needed. "beside": index, and store each index next to its file."""


@dataclass(frozen=True, eq=False)
class Filenames(Files):
    """Paths of files given by the user."""

    op = "filenames"


@dataclass(frozen=True)
class Opening(OwnFunction):
    """Makes the plan of a file's records from its path."""

    format: Format

    def __call__(self, path: Any, *rest: Any) -> _Plan:
        return _Plan(FileRecords(checked_path(path, rest), self.format))


@dataclass(frozen=True)
class _Plan:
    """A stand-in for a `Dataset` of which only the plan is needed."""

    _node: Operator


def checked_path(path: Any, rest: tuple[Any, ...] = ()) -> str:
    """Check an element of a dataset of paths."""
    if rest or not isinstance(path, (str, bytes, os.PathLike)):
        found = (path, *rest) if rest else path
        raise TypeError(
            f"filenames must give paths (str, bytes or os.PathLike), not {type(found).__name__} ({found!r})"
        )
    return os.fsdecode(path)


class Reads:
    """The common part of nodes that read files in sequence or in turn."""

    function: Opening
    on_error: str | None
    index: Index
    up: Operator

    placed = True
    seedless = False

    @property
    def format(self) -> Format:
        """The format of the files' records."""
        return self.function.format

    def spec(self, below: Spec) -> Any:
        return self.format.spec

    @property
    def label(self) -> str:
        return self.format.name

    @property
    def kept(self) -> bool:
        return self.format.tabular

    @property
    def leaves_out(self) -> bool:
        return self.on_error == "skip"

    @property
    def replays(self) -> bool:
        return not self.format.seekable

    @property
    def redone(self) -> str:
        if not self.replays:
            return ""
        return f"{self.label} reads a file again up to its position: it is compressed, or a query"

    @property
    def awaited(self) -> bool:
        return self.indexable

    def opens_paths(self) -> Sequence[str]:
        """Return the files that workers open, if they are known; a payload asks every object that it sends."""
        return self.up.listed_paths or ()

    @property
    def indexable(self) -> bool:
        """True if the files can be indexed to find record i: their paths are known, and they are read in sequence."""
        return not self.unnumbered

    @property
    def unnumbered(self) -> str:
        """The reason why an index cannot find record i; "" if it can."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        return self.format.given


@dataclass(frozen=True, eq=False)
class ReadFiles(Reads, FlatMap):
    """The records of several files in sequence."""

    function: Opening
    on_error: str | None = None
    index: Index = None

    ours = consecutive = True

    @property
    def unnumbered(self) -> str:
        if not self.format.seekable:
            given = getattr(self.format, "compression", "")
            return (
                f"a {given} file is read from its start" if given else "a query runs from its start"
            )
        if self.on_error == "skip":
            return "records that on_error='skip' drops have no number; use ignore_errors() after it instead"
        if self.index is False:
            return "index=False"
        if self.up.listed_paths is None:
            return "its files are known only as it runs; give a list, or list_files(..., shuffle=False)"
        return ""

    @property
    def unpositioned(self) -> str:
        if self.on_error != "skip":
            return ""
        return (
            f", and {self.label} leaves out records that cannot be read, which have none: let it raise, "
            "and put ignore_errors() after the shuffle"
        )


@dataclass(frozen=True, eq=False)
class ReadFilesInTurn(Reads, Interleave):
    """The records of several files in turn, by the rules of `interleave`."""

    function: Opening
    on_error: str | None = None
    index: Index = None

    @property
    def unnumbered(self) -> str:
        return "num_parallel_reads takes records of several files in turn"

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "cycle": self.cycle}


@dataclass(frozen=True, eq=False)
class Indexed(FromSource):
    """The records of files, by number: an index finds each of them."""

    source: RecordFiles
    files_at: tuple[int, ...]
    """The position of each file among the paths that the user gave."""

    ours = True

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        if by_number:
            return None
        origin, named = self.source.origin, self.files_at

        def identity(ref: Any, pass_: int) -> tuple[int, Path]:
            file, place = origin(ref)
            path = (*prefix, named[file])
            if place == UNREADABLE:  # an error of the whole file
                return pass_, path if prefix else named[file]
            return pass_, (*path, place)

        return identity

    @property
    def format(self) -> Format:
        """The format of the files' records."""
        return self.source.form

    @property
    def grouped(self) -> bool:
        return self.format.grouped

    def several(self) -> Callable[[list[int]], Sequence[Any]]:
        get = self.source.get
        return lambda indices: [
            BrokenElement(x) if isinstance(x, Exception) else x for x in get(indices)
        ]

    def spec(self, below: Spec) -> Any:
        return self.format.spec

    @property
    def label(self) -> str:
        return self.format.name

    @property
    def kept(self) -> bool:
        return self.format.tabular

    @property
    def record_files(self) -> RecordFiles:
        return self.source

    @property
    def unit_sizes(self) -> np.ndarray:
        return self.source.units

    def random_access(self) -> Callable[[int], Any]:
        return rows_of(self.source, self.count)

    def evaluator(self, maker: Maker) -> Value:
        source, label = self._opened(maker.context), self.format.name
        records = maker.context.records.setdefault(id(self), {})

        def value(item: Any, _: int) -> Any:
            if item in records:
                found = records.pop(item)
                if isinstance(found, BrokenElement):
                    raise_from(found.error, label)
                return found
            try:
                return source[item]
            except Exception as error:  # noqa: BLE001 - the record's, or its file's
                raise_from(error, label)

        return value

    def gather(self, maker: Maker) -> Gather | None:
        source = self._opened(maker.context)
        return lambda refs, _: source.gather(refs)

    def _opened(self, context: Context) -> RecordFiles:
        """Return the open files; they are closed with the iterator, and share its cache budget."""
        context.files.add(self.source)
        sources = [node.source for node in context.nodes if isinstance(node, Indexed)]
        self.source.keep(context.room // max(1, len(sources)))
        return self.source


@dataclass(frozen=True, eq=False)
class ByNumber(Unary):
    """A stand-in for files that will be read by number, to display a plan without opening them."""

    format: Format

    positional = True
    safe = False
    cardinality = UNKNOWN_CARDINALITY
    at_work = "a source, by number (an index of the files)"

    @property
    def label(self) -> str:
        return self.format.name

    @property
    def grouped(self) -> bool:
        return self.format.grouped

    def arguments(self) -> dict[str, Any]:
        return self.format.given


def reads(root: Operator, *, running: bool = True) -> list[ReadFiles]:
    """Return the nodes of a plan that read files in sequence; with `running`, only those that are run."""
    return [node for node in walk(root, running=running) if isinstance(node, ReadFiles)]


def check_readable(root: Operator) -> None:
    """Raise an error if a file of a plan cannot be opened, since the number of its records is then unknown.

    Raises
    ------
    OSError, RecordCorruptError
        The error that opening it raised.
    """
    for node in walk(root, running=True):
        if isinstance(node, Indexed):
            node.source.check_readable()


_MADE: weakref.WeakKeyDictionary[ReadFiles, tuple[list[FileIndex], Indexed]] = (
    weakref.WeakKeyDictionary()
)


def by_number(node: ReadFiles) -> Indexed:
    """Index files and return their records by number; the same node as long as the files do not change."""
    # pyarrow takes a while to load, and only this function needs it.
    from tundish.formats.index import indexes_of  # noqa: PLC0415 - see above

    paths, at = named_paths(node.up)
    found = indexes_of(node.format, paths, keep="beside" if node.index == "beside" else True)
    known = _MADE.get(node)
    if known is not None and all(a is b for a, b in zip(known[0], found, strict=True)):
        return known[1]
    source = (TableFiles if node.format.tabular else RecordFiles)(node.format, paths, found)
    made = Indexed(source, len(source), at)
    _MADE[node] = (found, made)
    return made


def named_paths(node: Operator) -> tuple[list[str], tuple[int, ...]]:
    """Return the paths that a plan selects from a list, and their positions in it."""
    paths = node.listed_paths
    assert paths is not None
    refs = listed(node.refs_at(range(node.cardinality), 0, Context(node, 0, 0)))
    return [paths[ref] for ref in refs], tuple(refs)
