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
    """Leave the frames of this library out of tracebacks; this is the default.

    The caller's frames stay, and the called method, and the frames of your functions that it
    called.

    See Also
    --------
    disable_traceback_filtering : Switch it off.

    Notes
    -----
    It is tf.debugging's function. It applies to errors that leave a method of `Dataset`, ``next`` of an iterator, or a
    `DataLoader`, in all threads of this process (in TensorFlow: in the thread that calls it).
    The ``__cause__`` of an error from a worker is the text of its frames there, always without those of the
    library. An unexpected error within the library
    keeps all frames: it is a defect, and the frames show where.

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
    """Keep all frames in tracebacks, to find a defect of this library.

    See Also
    --------
    enable_traceback_filtering : Switch filtering on again, and describe it.
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
