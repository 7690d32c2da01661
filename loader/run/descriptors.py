"""Running out of file descriptors: an error that says what they were for and what to do."""

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
    """Add to the error of a lack of descriptors what they were wanted for."""
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
    """Raise where fewer than `count` descriptors are left: the consumer needs those.

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
