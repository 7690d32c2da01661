"""The source of a pool's workers, as the pool sees it; and checks of spare descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tundish.loader.run.pool.peers import Peer


class Recruiting(Protocol):
    """The source of a pool's workers. Nothing here waits.

    A worker is there at once, or it is on its way. In that case its seat is in `sought`, and `hear` returns the
    worker when it has arrived.
    """

    @property
    def sought(self) -> Collection[int]:
        """The seats whose workers are on their way."""
        ...

    @property
    def due(self) -> float | None:
        """When to call `look`, by ``time.monotonic``; None if no worker is on its way."""
        ...

    def start(self, seat: int, *, writes: bool, home: bool) -> Peer | None:
        """Start a worker; None if it is on its way.

        Parameters
        ----------
        seat : int
            Its seat.
        writes : bool
            True for a writer, which only gets orders.
        home : bool
            True for a worker on this machine that only gets tasks whose input lies in shared memory.
        """
        ...

    def withdraw(self, seat: int) -> None:
        """Stop seeking a worker for a seat."""
        ...

    def look(self) -> None:
        """Give up attempts that have taken too long, and make those that are due."""
        ...

    def pump(self) -> None:
        """Process what the processes' launcher has reported."""
        ...

    def hear(self, source: object) -> list[Peer]:
        """Process what the poller has announced; return the workers that have arrived.

        Parameters
        ----------
        source : object
            The token that was registered with the poller.
        """
        ...

    def unfit(self, peer: Peer, error: BaseException) -> None:
        """Raise the error with which a worker failed to start, unless workers on other machines may succeed."""
        ...

    def close(self, *, linger: bool) -> None:
        """Release what is held for starting workers; with `linger`, when the last of them has ended."""
        ...


if sys.platform != "win32":
    import resource

SHORT = (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def descriptors_for(what: str) -> Iterator[None]:
    """Add the purpose to an error that says descriptors ran out."""
    try:
        yield
    except OSError as error:
        if error.errno not in SHORT:
            raise
        raise too_many(error.errno, what) from error


def too_many(number: int | None, what: str) -> OSError:
    """Return the error of a process, or a system, without free descriptors."""
    remedy = "close files, use fewer workers, or raise the limit"
    if number == errno.EMFILE and sys.platform != "win32":
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        remedy += f" (ulimit -n), which is {limit}"
    return OSError(number, f"{os.strerror(number or 0)}: none is left for {what}; {remedy}")


def check_spare(count: int) -> None:
    """Raise if fewer than `count` descriptors are free, which the consumer needs.

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
