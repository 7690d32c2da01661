"""Which globals were changed at run time, as far as this process has learnt it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tundish.loader.plan.variables import Global

__all__ = ["Known", "first_told", "remember", "remembered"]


class Known(NamedTuple):
    """What is known about a global.

    Parameters
    ----------
    counts : bool
        Whether workers are to have the consumer's value.
    changed : bool
        Whether it was changed after its module was imported: nobody need find out again.
    """

    counts: bool
    changed: bool


_seen: dict[Global, bytes] = {}
_changed: set[Global] = set()
_exempt: dict[Global, bytes] = {}
_told: set[Global] = set()


def remembered(place: Global, form: bytes) -> Known:
    """Return what is known about a global that has this form now."""
    if _seen.setdefault(place, form) != form:
        _changed.add(place)
        _seen[place] = form
    changed = place in _changed
    return Known(changed or _exempt.get(place) != form, changed)


def remember(place: Global, form: bytes, *, changed: bool) -> None:
    """Keep that a global was changed at run time, or that this form of it comes of its import."""
    if changed:
        _changed.add(place)
    else:
        _exempt[place] = form


def first_told(place: Global) -> bool:
    """Return whether nobody has been told of a global yet; from now on somebody has."""
    if place in _told:
        return False
    _told.add(place)
    return True
