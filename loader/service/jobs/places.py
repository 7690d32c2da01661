"""The place of a job's server, and the connection to it, which follows the job when another process serves it."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.service.connections.calling import Caller
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.jobs.dealing import ROLE
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Address, Credentials

_LOOK_ANEW_S = 1.0
"""The time after which a job's server that cannot be reached is looked for again."""
_ALONE_S = 30.0
"""The time without one after which a consumer is warned, with the reason."""


class JobPlace(Protocol):
    """Tells where a job is served."""

    @property
    def credentials(self) -> Credentials:
        """The token and certificates."""

    @property
    def wanted(self) -> Mapping[str, Any]:
        """The job, as `job_wanted` says it."""

    def address(self, *, received: bool) -> Address:
        """Return the address of the job's server; it may wait, and raise `OSError` to be asked again.

        Parameters
        ----------
        received : bool
            True if an element was received since the last call.
        """


class JobConnection:
    """A connection to the server of a job.

    Parameters
    ----------
    place : JobPlace
        Tells where the job is served.
    job_name : str
        Its name, for errors.
    patience_s : float
        The time after which it is an error that no process serves the job.

    Attributes
    ----------
    received : bool
        Set to True when an element is received: the job goes on, however often its server ends.
    """

    def __init__(self, place: JobPlace, job_name: str, patience_s: float) -> None:
        self._place, self._job_name, self._patience_s = place, job_name, patience_s
        self.received = False
        self._gone_since: float | None = None
        self._warned = False
        self._look_at = 0.0  # when the job's server is looked for again
        self._box: list[Caller] = []  # so that dropping this ends the connection
        weakref.finalize(self, _leave, self._box, os.getpid())

    def find(self) -> Caller | None:
        """Return the connection to where the job is served now; None if no process serves it yet.

        Raises
        ------
        ConnectionError
            Nobody has served the job for too long.
        """
        if self._box and self._box[0].error is None:
            self._gone_since = None
            return self._box[0]
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since, self._look_at = now, now + (_LOOK_ANEW_S if self._box else 0.0)
        if now >= self._look_at:
            self._look(self._gone_since)
        return self._box[0] if self._box else None

    def _look(self, gone_since: float) -> None:
        """Ask where the job is served, and connect to there."""
        address, error = None, self._box[0].error if self._box else None
        try:
            address = self._place.address(received=self.received)
            self.received = False
        except (Refused, FileNotFoundError):  # FileNotFoundError: its dataset is registered no more
            raise
        except OSError as unknown:
            error = unknown
        gone_s = time.monotonic() - gone_since
        if error is not None and gone_s > self._patience_s:
            raise ConnectionError(
                f"job {self._job_name!r} is not served for {self._patience_s:g} s: {error}"
            ) from error
        if error is not None and gone_s > _ALONE_S and not self._warned:
            self._warned = True
            warnings.warn(
                f"job {self._job_name!r} is not served for {gone_s:.0f} s, and it is looked for again, for at most "
                f"{self._patience_s:g} s: {error}",
                stacklevel=callers_level(),
            )
        self._look_at = time.monotonic() + _LOOK_ANEW_S
        if self._box and address in {None, self._box[0].address}:
            return
        self.hang_up()
        if address is not None:
            place = self._place
            self._box.append(Caller(address, place.credentials, ROLE, place.wanted))

    def wait(self, seconds: float) -> None:
        """Wait until the connection is ready, or for some time; without a connection, until the next search for the job."""
        now = time.monotonic()
        if self._box:
            self._box[0].wait(now + seconds)
        else:
            time.sleep(max(0.0, min(self._look_at - now, _LOOK_ANEW_S)))

    def hang_up(self) -> None:
        """End the connection."""
        _hang_up(self._box)


def _leave(box: list[Caller], owner: int) -> None:
    """End the connection of a consumer that was dropped, and tell the job, so that it waits for no lease."""
    for caller in box if os.getpid() == owner else ():  # a forked child has the connection, too
        with contextlib.suppress(Exception):
            if caller.fileno() >= 0:
                caller.begin("leave", again=False)
                caller.advance()
    _hang_up(box)


def _hang_up(box: list[Caller]) -> None:
    while box:
        box.pop().close()
