"""Whether tracebacks have the frames of this library: `enable_traceback_filtering`."""

from __future__ import annotations

from tundish import tracebacks

__all__ = [
    "disable_traceback_filtering",
    "enable_traceback_filtering",
    "is_traceback_filtering_enabled",
]


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
    tracebacks.set_filtering(True)


def disable_traceback_filtering() -> None:
    """Leave all frames in tracebacks, for who looks for a defect of this library.

    See Also
    --------
    enable_traceback_filtering : Switch it on again; there it says what it does.
    """
    tracebacks.set_filtering(False)


def is_traceback_filtering_enabled() -> bool:
    """Whether the frames of this library are left out of tracebacks.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_traceback_filtering_enabled()
    True
    """
    return tracebacks.filtering()
