"""Tracebacks as a user wants them: their own lines."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import tundish

__all__ = ["raised_by_the_user", "traceback_of"]

OURS = Path(tundish.__file__).parent
STANDARD = sysconfig.get_paths()["stdlib"]


def raised_by_the_user(error: BaseException) -> bool:
    """Whether a line of the user's own failed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_pythons(f)]
    return bool(frames) and not _is_ours(frames[-1])


def traceback_of(error: BaseException) -> str:
    """A traceback; of an error in the user's lines without ours."""
    told = traceback.TracebackException.from_exception(error)
    if raised_by_the_user(error):
        told.stack[:] = [f for f in told.stack if not (_is_ours(f) or _is_import(f))]
    return "".join(told.format()).rstrip()


def _is_pythons(frame: traceback.FrameSummary) -> bool:
    if frame.filename.startswith("<frozen "):
        return True
    path = Path(frame.filename)
    return path.is_relative_to(STANDARD) and "site-packages" not in path.parts


def _is_import(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith("<frozen importlib") or (
        _is_pythons(frame) and Path(frame.filename).parent.name == "importlib"
    )


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(OURS)
