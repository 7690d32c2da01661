"""How ``tundish snapshot`` ends: a status for each way, and what is said of it."""

from __future__ import annotations

import errno

__all__ = [
    "BAD_RECORDS",
    "DONE",
    "FAILED",
    "HELD",
    "HELP",
    "INCOMPLETE",
    "NO_SPACE",
    "USAGE",
    "Refusal",
    "status_of",
    "told",
]

DONE, FAILED, USAGE, INCOMPLETE, HELD, NO_SPACE, BAD_RECORDS = range(7)

HELP = """\
exit status:
  0    done
  1    an unexpected error
  2    usage: no such pipeline, path or shard, or a pipeline that cannot be divided
  3    incomplete: ranges are missing, or a snapshot is damaged
  4    another process is writing it
  5    no space: said before the first byte where the size is known
  6    more bad records than --max-errors
  130  SIGINT, 143  SIGTERM: what was made is committed, the same command continues
"""


class Refusal(Exception):  # noqa: N818 - it is told to people, as what it is
    """A reason to end, in words for people.

    Parameters
    ----------
    status : int
        The exit status.
    text : str
        What is wrong, and what to do.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text


def told(signal: int) -> int:
    """The status of a process that a signal told to end."""
    return 128 + signal


def status_of(error: BaseException) -> int:
    """The status for an error of the disk: whether there was no space."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return NO_SPACE
        cause = cause.__cause__
    return FAILED
