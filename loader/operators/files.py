"""The nodes that read files of records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tundish.formats.files import UNREADABLE
from tundish.loader.operators.choosing import Shard, Skip, Take
from tundish.loader.operators.flat_map import FlatMap
from tundish.loader.operators.interleaving import Interleave
from tundish.loader.operators.listing import Files
from tundish.loader.operators.sources import FromSource
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, OwnFunction
from tundish.loader.protocols.generating import Broken
from tundish.loader.protocols.operator import Operator, Passing, SourceNode, Unary

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.formats.files import RecordFiles
    from tundish.formats.format import Format
    from tundish.loader.protocols.operator import Identity, Spec
    from tundish.loader.protocols.rng import Path

Index = Literal["beside"] | bool | None
"""When an index is made (None: where it is needed), and whether it stands beside the file."""

_CHOOSING = (Passing, Shard, Skip, Take)


@dataclass(frozen=True, eq=False)
class Filenames(Files):
    """Paths of files that the user named."""

    op = "filenames"


@dataclass(frozen=True, eq=False)
class FileRecords(SourceNode):
    """The records of one file. An element's ref is its place."""

    path: str
    format: Format

    op = "file"
    reads = "stream"
    computing = dynamic = True
    cardinality = UNKNOWN_CARDINALITY
    safe = False

    def spec(self, below: Spec) -> Any:
        return self.format.spec


@dataclass(frozen=True)
class Opening(OwnFunction):
    """Makes the plan of a file's records of its path."""

    format: Format

    def __call__(self, path: Any, *rest: Any) -> _Plan:
        return _Plan(FileRecords(checked_path(path, rest), self.format))


@dataclass(frozen=True)
class _Plan:
    """What stands for a `Dataset` where only its plan is asked for."""

    _node: Operator


def checked_path(path: Any, rest: tuple[Any, ...] = ()) -> str:
    """An element of a dataset of paths."""
    if rest or not isinstance(path, (str, bytes, os.PathLike)):
        found = (path, *rest) if rest else path
        raise TypeError(
            f"filenames must give paths (str, bytes or os.PathLike), not {type(found).__name__} ({found!r})"
        )
    return os.fsdecode(path)


class Reads:
    """What reading files one after another and in turn have in common."""

    function: Opening
    on_error: str | None
    index: Index
    up: Operator

    placed = True
    seedless = False

    @property
    def format(self) -> Format:
        """How records stand in the files."""
        return self.function.format

    def spec(self, below: Spec) -> Any:
        return self.format.spec

    @property
    def label(self) -> str:
        return self.format.name

    @property
    def leaves_out(self) -> bool:
        return self.on_error == "skip"

    @property
    def replays(self) -> bool:
        return not self.format.seekable

    @property
    def awaited(self) -> bool:
        return self.indexable

    @property
    def indexable(self) -> bool:
        """Whether an index can say where record i is: files that are known, one after another."""
        return not self.unnumbered

    @property
    def unnumbered(self) -> str:
        """Why it cannot."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        return self.format.given


@dataclass(frozen=True, eq=False)
class ReadFiles(Reads, FlatMap):
    """The records of one file after another."""

    function: Opening
    on_error: str | None = None
    index: Index = None

    @property
    def unnumbered(self) -> str:
        if not self.format.seekable:
            given = getattr(self.format, "compression", "")
            return (
                f"a {given} file is read from its start" if given else "a query runs from its start"
            )
        if self.on_error == "skip":
            return "what on_error='skip' leaves out has no number; ignore_errors() behind it leaves out the same"
        if self.index is False:
            return "index=False"
        if paths_node(self.up) is None:
            return "which files it reads shows as it runs; give a list, or list_files(..., shuffle=False)"
        return ""

    @property
    def unpositioned(self) -> str:
        if self.on_error != "skip":
            return ""
        return (
            f", and {self.label} leaves out records that cannot be read, which have none: let it raise, "
            "and put ignore_errors() behind the shuffle"
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


def paths_node(node: Operator) -> Files | None:
    """The list of files that a dataset of paths only chooses from; None where it is anything else."""
    while isinstance(node, _CHOOSING):
        node = node.up
    return node if isinstance(node, Files) else None


@dataclass(frozen=True, eq=False)
class Indexed(FromSource):
    """The records of files, by their number: an index says where each is."""

    source: RecordFiles
    files_at: tuple[int, ...]
    """Where each file stands among the paths that the user named."""

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        if by_number:
            return None
        origin, named = self.source.origin, self.files_at

        def identity(ref: Any, pass_: int) -> tuple[int, Path]:
            file, place = origin(ref)
            path = (*prefix, named[file])
            if place == UNREADABLE:  # it stands for the file
                return pass_, path if prefix else named[file]
            return pass_, (*path, place)

        return identity

    @property
    def format(self) -> Format:
        """How records stand in the files."""
        return self.source.form

    @property
    def grouped(self) -> bool:
        return self.format.grouped

    def several(self) -> Callable[[list[int]], Sequence[Any]]:
        get = self.source.get
        return lambda indices: [Broken(x) if isinstance(x, Exception) else x for x in get(indices)]

    def spec(self, below: Spec) -> Any:
        return self.format.spec

    @property
    def label(self) -> str:
        return self.format.name


@dataclass(frozen=True, eq=False)
class ByNumber(Unary):
    """What stands for files that will be read by number, before they are looked at: to show a plan."""

    format: Format

    positional = True
    safe = False
    cardinality = UNKNOWN_CARDINALITY

    @property
    def label(self) -> str:
        return self.format.name

    def arguments(self) -> dict[str, Any]:
        return self.format.given
