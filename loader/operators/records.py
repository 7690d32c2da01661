"""The records of one file, from an offset on; damaged records come as errors."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.operator import SourceNode
from tundish.loader.protocols.raised import NODE_MARK

if TYPE_CHECKING:
    from tundish.formats.format import Format, RecordReader, Run
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine, Spec


@dataclass(frozen=True, eq=False)
class FileRecords(SourceNode):
    """The records of one file; an element's ref is its offset."""

    path: str
    format: Format

    op = "file"
    reads = "stream"
    computing = dynamic = ours = True
    cardinality = UNKNOWN_CARDINALITY
    safe = False

    def spec(self, below: Spec) -> Any:
        return self.format.spec

    def begun(self, context: Context, skip: int) -> Machine:
        return FileMachine(self, context, skip)


ENDED = 2**62
"""The place after a record from which a file cannot be read any further."""

AT_FIRST, AT_ONCE = 64, 1 << 16
"""The number of small records that are requested from a reader at once: the first time, and later."""


class Damaged:
    """Stands for a record that cannot be read.

    Parameters
    ----------
    place : int
        The record's offset.
    after : int
        The offset where reading continues; `ENDED` if it cannot.
    error : Exception
        The reader's error.
    """

    __slots__ = ("after", "error", "place")

    def __init__(self, place: int, after: int, error: Exception) -> None:
        self.place, self.after, self.error = place, after, error


class OpenFile:
    """An open file of records, read run by run; errors are returned, not raised.

    Parameters
    ----------
    form : Format
        The file's format.
    path : str
        The file's path.
    place : int
        The offset of the first record to read.
    context : Context
        Closes the file when its iterator is closed.

    Raises
    ------
    Exception
        The error of opening the file.
    """

    __slots__ = ("__weakref__", "_reader")

    def __init__(self, form: Format, path: str, place: int, context: Context) -> None:
        self._reader: RecordReader | None = None
        try:
            self._reader = form.open(path, place)
        except Exception as error:
            mark_as_own(error, form)
            raise
        context.files.add(self)

    def some(self, most: int) -> Run | Damaged | None:
        """Return up to `most` records, or damage; at the end close the file and return None."""
        reader = self._reader
        if reader is None:
            return None
        at = reader.place
        try:
            run = reader.read(most)
        except Exception as error:  # noqa: BLE001 - whatever a format, or a driver, raises
            if reader.place > at:
                return Damaged(at, reader.place, error)
            self.close()
            return Damaged(at, ENDED, error)
        if len(run):
            return run
        self.close()
        return None

    def close(self) -> None:
        """Close the file."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def __del__(self) -> None:
        self.close()


class FileMachine:
    """The stream of one file's records; a mark is the offset of the next record.

    Parameters
    ----------
    node : FileRecords
        The operator, with the file.
    context : Context
        The context of the file's plan.
    place : int
        The offset of the first record to read.

    Raises
    ------
    Exception
        The error of opening the file.
    """

    def __init__(self, node: FileRecords, context: Context, place: int) -> None:
        self._node, self._context = node, context
        self.text = node.format.leaf is not None  # all records are bytes, or str
        self._size = AT_FIRST
        self._go(place)

    def _go(self, place: int) -> None:
        self._place = place
        self._run: list[tuple[Made, int]] = []  # the remaining records of a run, in reverse order
        self._damaged: Damaged | None = None
        self._file = None
        if place != ENDED:
            self._file = OpenFile(self._node.format, self._node.path, place, self._context)

    def next(self) -> Any:
        if not self._run:
            failure = self._refill()
            if failure is not None:
                return failure
        item, self._place = self._run.pop()
        return item

    def _refill(self) -> Failure | None:
        """Read more records if there are none left; return an error if that fails."""
        found, self._damaged = self._damaged, None
        if found is None:
            run = None if self._file is None else self._file.some(self._size)
            self._size = min(2 * self._size, AT_ONCE)
            if run is None:
                raise End
            if not isinstance(run, Damaged):
                places = listed_places(run)
                made = map(Made, places, run.records())
                self._run = list(zip(made, [*places[1:], run.after], strict=True))[::-1]
                return None
            found = run
        self._place = found.after
        name_damage(found, self._node.format, self._context.prefix, self._context.where)
        return Failure(found.place, found.error)

    def some(self, most: int) -> tuple[list[int], list[Any]] | None:
        """Return several records with their offsets; None if the next has to come from `next`."""
        if self._file is None or self._run or self._damaged is not None:
            return None
        found = self._file.some(most)
        if found is None:
            return None
        if isinstance(found, Damaged):
            self._damaged = found
            return None
        self._place = found.after
        return listed_places(found), found.records()

    def mark(self) -> int:
        return self._place

    def dump(self, mark: int) -> int:
        return mark

    def load(self, state: int) -> None:
        self._go(state)


def name_damage(found: Damaged, form: Format, file: tuple[Any, ...], where: str) -> None:
    """Add a note to an error that names its record; `file` is the pass and the origin of its file."""
    pass_, path = file
    place = (*path, found.place) if isinstance(path, tuple) else (path, found.place)
    mark_as_own(found.error, form)
    add_origin(found.error, describe_origin(pass_, place), where)


def mark_as_own(error: Exception, form: Format) -> None:
    """Mark an error as one of the reader, not of its input."""
    with contextlib.suppress(AttributeError):  # a type without a __dict__
        setattr(error, NODE_MARK, form.name)


def listed_places(run: Run) -> list[int]:
    """Return the offsets of a run's records as a list of ints."""
    places = run.places
    return places.tolist() if hasattr(places, "tolist") else list(places)
