"""Tracebacks and warnings that point to the caller's lines, not to this library's.

An error's traceback is cut where it leaves the library. Errors that the library does not raise on purpose
keep all frames, for a bug report.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from tundish.errors import TundishError, WorkerTraceback

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")  # noqa: PTH100, PTH118, PTH120 - `pathlib` costs every process
_FILTERING = [True]


def set_filtering(enabled: bool) -> None:
    """Set whether frames are removed from now on, in this process."""
    _FILTERING[0] = enabled


def filtering() -> bool:
    """Return True if frames are removed."""
    return _FILTERING[0]


def hide_frames(error: BaseException, *, meant: tuple[type[BaseException], ...] = ()) -> None:
    """Remove the library's frames from the traceback of an error that is about to leave it.

    The first frame, that of the public method, is kept.

    Parameters
    ----------
    error : BaseException
        The error, which is changed.
    meant : tuple of types
        Errors that the library raises on purpose here, besides its own.
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
    BaseException.__setattr__(
        error, "__traceback__", chain
    )  # its class may refuse, a frozen dataclass say


def callers_level() -> int:
    """Return the ``stacklevel`` that makes a warning name the line outside this library."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the public `inspect` is slow
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_OURS)


def enable_traceback_filtering() -> None:
    """Leave the frames of this library out of tracebacks, as it is by default.

    What stays are the caller's frames, the method that was called, and the frames of functions of
    yours that it called in turn.

    See Also
    --------
    disable_traceback_filtering : Switch it off.

    Notes
    -----
    As tf.debugging's. It is for errors that leave a method of `Dataset`, ``next`` of an iterator, or a
    `DataLoader`, in this process, whichever thread they are raised in (tensorflow: in the thread that calls it).
    What is raised in a worker has the text of its frames there as its ``__cause__``; the library's own are
    left out of it either way. An error that arises within the library and is none that it raises on purpose
    keeps all frames: it is a defect, and they tell where.

    Examples
    --------
    >>> import traceback
    >>> import tundish as td
    >>> def frames():
    ...     try:
    ...         td.Dataset.range(3).batch("two")
    ...     except TypeError as error:
    ...         return len(traceback.extract_tb(error.__traceback__))
    >>> filtered = frames()
    >>> td.debugging.disable_traceback_filtering()
    >>> whole = frames()
    >>> td.debugging.enable_traceback_filtering()
    >>> filtered, whole
    (2, 4)
    """
    set_filtering(True)


def disable_traceback_filtering() -> None:
    """Leave all frames in tracebacks, for who looks for a defect of this library.

    See Also
    --------
    enable_traceback_filtering : Switch it on again; there it says what it does.
    """
    set_filtering(False)


def is_traceback_filtering_enabled() -> bool:
    """Return True if the frames of this library are left out of tracebacks.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_traceback_filtering_enabled()
    True
    """
    return filtering()
