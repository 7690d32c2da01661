"""Tracebacks and warnings as their reader wants them: the caller's lines, without those of this library.

An error's traceback is cut where it leaves the library. What arises in the library itself, and is no error that
it raises on purpose, keeps all frames: whoever reports it needs them.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from tundish.errors import TundishError, WorkerTraceback

__all__ = ["callers_level", "filtering", "hide_frames", "set_filtering"]

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")  # noqa: PTH100, PTH118, PTH120 - `pathlib` costs every process
_FILTERING = [True]


def set_filtering(enabled: bool) -> None:
    """Whether frames are left out from now on, in this process."""
    _FILTERING[0] = enabled


def filtering() -> bool:
    """Whether frames are left out."""
    return _FILTERING[0]


def hide_frames(error: BaseException, *, meant: tuple[type[BaseException], ...] = ()) -> None:
    """Take the library's frames out of the traceback of an error that is about to leave it.

    The first stays: it is the one that was called.

    Parameters
    ----------
    error : BaseException
        It is changed.
    meant : tuple of types
        Errors that the library raises on purpose here, beside its own.
    """
    first = error.__traceback__
    if first is None or not _FILTERING[0]:
        return
    kept: list[TracebackType] = [first]
    last, at = first, first.tb_next
    while at is not None:
        if not _is_ours(at):
            kept.append(at)
        last, at = at, at.tb_next
    told = isinstance(error, (TundishError, *meant)) or type(error.__cause__) is WorkerTraceback
    if _is_ours(last) and not told:
        return
    chain = None
    for each in reversed(kept):
        chain = TracebackType(chain, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = chain


def callers_level() -> int:
    """The ``stacklevel`` by which a warning of the calling function names the line outside this library."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the public `inspect` is slow
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_OURS)
