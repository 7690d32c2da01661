"""Descriptors that the system has no more of: an error that says for what, and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

if sys.platform != "win32":
    import resource

SHORT = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def descriptors_for(what: str) -> Iterator[None]:
    """Name what descriptors were wanted for, where there are no more."""
    try:
        yield
    except OSError as error:
        if error.errno not in SHORT:
            raise
        raise too_many(error.errno, what) from error


def too_many(number: int | None, what: str) -> OSError:
    """Make the error of a process, or a system, without descriptors."""
    remedy = "close files, use fewer workers, or raise the limit"
    if number == errno.EMFILE and sys.platform != "win32":
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        remedy += f" (ulimit -n), which is {limit}"
    return OSError(number, f"{os.strerror(number or 0)}: none is left for {what}; {remedy}")


def check_spare(count: int) -> None:
    """Refuse to go on where fewer descriptors are left: they are the consumer's.

    Raises
    ------
    OSError
        ``EMFILE`` or ``ENFILE``.
    """
    held: list[int] = []
    try:
        while len(held) < count:
            held.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for descriptor in held:
            os.close(descriptor)
