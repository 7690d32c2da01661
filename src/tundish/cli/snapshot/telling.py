"""Tracebacks as a user wants them: their own lines."""

from __future__ import annotations

import traceback
from pathlib import Path

import tundish

__all__ = ["raised_by_the_user", "traceback_of"]

OURS = Path(tundish.__file__).parent


def raised_by_the_user(error: BaseException) -> bool:
    """Whether a line of the user's own failed."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not _is_ours(frames[-1])


def traceback_of(error: BaseException) -> str:
    """A traceback; of an error in the user's lines without ours."""
    told = traceback.TracebackException.from_exception(error)
    if raised_by_the_user(error):
        told.stack[:] = [frame for frame in told.stack if not _is_ours(frame)]
    return "".join(told.format()).rstrip()


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(OURS)
