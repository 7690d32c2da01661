"""Which members make an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tundish.formats.tar.members import DamageError, Member, check_end, cut_off_data, next_member

if TYPE_CHECKING:
    from tundish.formats.tar.window import Window

__all__ = ["Groups", "parts_of"]


class Groups:
    """Goes over an archive, from one group of members with the same key to the next.

    Attributes
    ----------
    place : int
        Where the next group begins, or the members before it that belong to none. It stays where it is
        if that group cannot be read to its end.
    """

    def __init__(self, window: Window, place: int) -> None:
        self.place = place
        self._window = window
        self._met: tuple[bytes, Member] | None = None  # the first of the next group, and its key
        self._end = place
        self._over = False  # whether the end has been met, and nothing behind it

    def next(self, take: Callable[[Member], object]) -> tuple[int, bytes] | None:
        """Go over the next group.

        Parameters
        ----------
        take : callable
            Is given each of its members.

        Returns
        -------
        int, bytes
            Where its first member begins, and its key; None at the end.

        Raises
        ------
        DamageError
            It cannot be read to its end, or the archive goes on behind its own.
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
        """The next member that belongs to a group, and its key."""
        while (member := next_member(self._window, offset)) is not None:
            key = parts_of(member.name)[0] if member.regular else b""
            if key:
                return key, member
            offset = whole(member).after
        self._end = offset
        return None

    def _check_end(self) -> None:
        """See that the archive ends here; a stream cannot look twice."""
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
    """The same, if its data is there."""
    if member.there < member.size:
        raise cut_off_data(member.start, member.there, member.size)
    return member


def parts_of(name: bytes) -> tuple[bytes, bytes]:
    """The key and the extension: what stands before and behind the first dot of the base name.

    The key is empty where a member belongs to no element: it has no dot, or is hidden, or stands in a
    folder such as ``__about__``, where WebDataset keeps words about the archive.
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
