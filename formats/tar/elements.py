"""The records of a tar archive: dicts of the members that share a base name."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from tundish.errors import RecordCorruptError
from tundish.formats.bytes.file import open_file
from tundish.formats.bytes.stream import open_stream
from tundish.formats.format import RUN_BYTES, Format, Identity, Places, RecordReader, RecordRun
from tundish.formats.tar.members import (
    ByteWindow,
    DamageError,
    Member,
    check_end,
    cut_off_data,
    next_member,
    over_file,
    over_stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.formats.tar.members import ByteWindow


class MemberGroups:
    """Walks through an archive, from one group of members with the same key to the next.

    Attributes
    ----------
    place : int
        The offset of the next group, including skipped members before it. It does not change
        if that group cannot be read to its end.
    """

    def __init__(self, window: ByteWindow, place: int) -> None:
        self.place = place
        self._window = window
        self._met: tuple[bytes, Member] | None = None  # the first of the next group, and its key
        self._end = place
        self._over = False  # whether the end has been reached, with nothing after it

    def next(self, take: Callable[[Member], object]) -> tuple[int, bytes] | None:
        """Walk through the next group.

        Parameters
        ----------
        take : callable
            Called with each of its members.

        Returns
        -------
        int, bytes
            The offset of its first member, and its key; None at the end.

        Raises
        ------
        DamageError
            It cannot be read to its end, or the archive continues after its end marker.
        """
        met = None if self._over else self._met or self._next(self.place)
        if met is None:
            self._check_end()
            return None
        key, first = met
        while met is not None and met[0] == key:
            member = whole(met[1])
            take(member)
            met = self._next(member.after)
        self._met = met
        self.place = self._end if met is None else met[1].start
        return first.start, key

    def _next(self, offset: int) -> tuple[bytes, Member] | None:
        """Return the next member that belongs to a group, and its key."""
        while (member := next_member(self._window, offset)) is not None:
            key = parts_of(member.name)[0] if member.regular else b""
            if key:
                return key, member
            offset = whole(member).after
        self._end = offset
        return None

    def _check_end(self) -> None:
        """Check that the archive ends here; a stream cannot check twice."""
        if self._over:
            return
        try:
            check_end(self._window, self._end)
        except DamageError as damage:
            if damage.on is not None:
                self.place = damage.on
            raise
        self._over = True


def whole(member: Member) -> Member:
    """Return a member if its data is complete; else raise."""
    if member.there < member.size:
        raise cut_off_data(member.start, member.there, member.size)
    return member


def parts_of(name: bytes) -> tuple[bytes, bytes]:
    """Return a member's key and extension: the parts before and after the first dot of the base name.

    The key is empty for a member that belongs to no element: it has no dot, is hidden, or is in a
    folder such as ``__about__``, where WebDataset stores information about the archive.
    """
    folder, slash, base = name.rpartition(b"/")
    stem, dot, extension = base.partition(b".")
    about = name.partition(b"/")[0]
    if (
        not stem
        or not dot
        or (len(about) > 3 and about.startswith(b"__") and about.endswith(b"__"))
    ):
        return b"", b""
    return folder + slash + stem, extension


KEY = "__key__"
"""Where an element says what its members are called, up to the first dot of their base names."""


@dataclass(frozen=True)
class TarFormat(Format):
    """The format of tar archives: consecutive members with one base name are an element.

    Parameters
    ----------
    compression : str
        "", "GZIP", "ZLIB" or "ZSTD".
    extensions : tuple of str, optional
        The extensions to read, in lower case, which every element must have. None: all.
    storage_options : tuple of pairs, optional
        Options of a URL's filesystem.
    """

    compression: str = ""
    extensions: tuple[str, ...] | None = None
    storage_options: tuple[tuple[str, Any], ...] | None = None

    name: ClassVar[str] = "TarDataset"
    tuning: ClassVar[frozenset[str]] = frozenset({"storage_options"})

    def open(self, path: str, place: int = 0, *, ahead: bool = True) -> RecordReader:
        options = dict(self.storage_options or ())
        if self.compression:
            stream = open_stream(path, self.compression, options, place)
            return _TarReader(stream, over_stream(stream), place, self.extensions)
        file = open_file(path, options)
        return _TarReader(file, over_file(file, ahead=ahead), place, self.extensions)

    def places(self, path: str) -> Places:
        if not self.seekable:
            return super().places(path)
        found = []
        with open_file(path, dict(self.storage_options or ())) as file:
            groups = MemberGroups(over_file(file, ahead=False), 0)
            while True:
                before = groups.place
                try:
                    group = groups.next(_leave)
                except DamageError:
                    found.append(before)
                    if groups.place == before:
                        break
                else:
                    if group is None:
                        break
                    found.append(group[0])
        return np.asarray(found, np.int64)


def _leave(member: Member) -> None:
    """Skip a member."""


class _Opened(Protocol):
    """The common interface of `ByteFile` and `ByteStream`."""

    path: str
    identity: Identity

    def close(self) -> None: ...


class _TarReader(RecordReader):
    """Reads the elements in sequence."""

    def __init__(
        self, file: _Opened, window: ByteWindow, place: int, extensions: tuple[str, ...] | None
    ) -> None:
        self.path, self.identity, self.place = file.path, file.identity, place
        self._file, self._window, self._extensions = file, window, extensions
        self._groups = MemberGroups(window, place)
        self._late: Exception | None = None  # the error of the element at `place`, if it is known

    def read(self, most: int) -> RecordRun:
        places: list[int] = []
        values: list[Any] = []
        size = 0
        while len(values) < most and size < RUN_BYTES:
            try:
                if self._late is not None:
                    raise self._late
                element = self._next()
            except (RecordCorruptError, OSError) as problem:
                # Without its traceback, whose frames refer to the iterator.
                self._late = copy(problem)
                if values:
                    break
                if self._groups.place != self.place:  # the offset to continue from is known
                    self._late = None
                self.place = self._groups.place
                raise
            if element is None:
                break
            start, value = element
            places.append(start)
            values.append(value)
            size += sum(len(data) for data in value.values())
            self.place = self._groups.place
        return RecordRun(places, self.place, values)

    def _next(self) -> tuple[int, dict[str, Any]] | None:
        """Return the next element and its offset."""
        element = _Element(self.path, self._window, self._extensions)
        try:
            found = self._groups.next(element.take)
        except DamageError as damage:
            raise RecordCorruptError(self.path, damage.offset, damage.problem) from None
        return None if found is None else (found[0], element.value(*found))

    def seek(self, place: int) -> None:
        if place != self.place or self._late is not None:
            self.place, self._late = place, None
            self._groups = MemberGroups(self._window, place)

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


class _Element:
    """An element that is being read, member by member, since a stream cannot go back."""

    def __init__(self, path: str, window: ByteWindow, extensions: tuple[str, ...] | None) -> None:
        self._path, self._window, self._wanted = path, window, extensions
        self._members: dict[str, bytes] = {}
        self._unwanted: list[str] = []
        self._problem: RecordCorruptError | None = None  # the first

    def take(self, member: Member) -> None:
        """Read a member, if its extension is wanted."""
        extension = self._decoded(parts_of(member.name)[1], member.start).lower()
        if self._wanted is not None and extension not in self._wanted:
            self._unwanted.append(extension)
        elif extension == KEY or extension in self._members:
            problem = "occurs twice: extensions are compared in lower case"
            self._refuse(member.start, f"{_shown(member.name)} {problem}")
        elif member.sparse:
            problem = "is a sparse file, whose holes are not read; pack it without --sparse"
            self._refuse(member.start, f"{_shown(member.name)} {problem}")
        else:
            self._members[extension] = self._data(member)

    def value(self, start: int, key: bytes) -> dict[str, Any]:
        """Return the element, after all its members."""
        name = self._decoded(key, start)
        wanted = self._members if self._wanted is None else self._wanted
        missing = [extension for extension in wanted if extension not in self._members]
        if missing:
            have = ", ".join(sorted([*self._members, *self._unwanted]))
            problem = f"element {_shown(key)} has no {missing[0]!r}; it has {have}"
            self._refuse(start, problem)
        if self._problem is not None:
            raise self._problem
        return {KEY: name, **{extension: self._members[extension] for extension in wanted}}

    def _decoded(self, name: bytes, offset: int) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            self._refuse(
                offset, f"{_shown(name)} is not UTF-8: {error.reason} at byte {error.start}"
            )
            return ""

    def _data(self, member: Member) -> bytes:
        data = self._window.at(member.data, member.size)
        if len(data) < member.size:
            raise cut_off_data(member.start, len(data), member.size)
        return data

    def _refuse(self, offset: int, problem: str) -> None:
        self._problem = self._problem or RecordCorruptError(self._path, offset, problem)


def _shown(name: bytes) -> str:
    return repr(name.decode(errors="backslashreplace"))
