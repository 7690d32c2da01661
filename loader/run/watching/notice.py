"""Warnings from between two steps of an engine, where nothing may be raised."""

from __future__ import annotations

import warnings

__all__ = ["notice"]


def notice(message: str) -> None:
    """Warn; where warnings are errors it is shown all the same, and nothing is raised.

    An exception here would take an element along that is on its way, or leave workers behind.

    Parameters
    ----------
    message : str
        What has happened, and what goes on without it.
    """
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        warnings.showwarning(message, RuntimeWarning, __file__, 0)
