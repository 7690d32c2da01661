"""The roles of connections: the uses of a connection after the other end has proved the token."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.service.connections.loop import Loop


@dataclass
class Accepted:
    """A connection whose dialer has proved the token.

    Attributes
    ----------
    socket : socket.socket
        Not blocking. With TLS a `TlsStream`; for a role that hands connections over, the bare socket.
    hello : dict
        Its HELLO: versions, ``role``, ``ask``, ``blobs``.
    blobs : dict of str to bytes-like
        The blobs that were wanted, by digest.
    peer : str
        Its address.
    secret : bytes
        The secret that the next session of TLS proves; empty without TLS.
    """

    socket: socket.socket
    hello: dict[str, Any]
    blobs: dict[str, Any]
    peer: str
    secret: bytes = b""

    @property
    def ask(self) -> dict[str, Any]:
        """The request."""
        ask: dict[str, Any] = self.hello["ask"]
        return ask


class Role:
    """One thing that connections are for. All its methods are called on the listener's thread.

    Attributes
    ----------
    alike : tuple of {"tundish", "python", "numpy"}
        What must be of the same version on both ends.
    hands_over : bool
        True if connections go to other processes, which begin their own sessions of TLS.
    """

    alike: tuple[str, ...] = ("tundish", "python", "numpy")
    hands_over = False

    def attach(self, loop: Loop) -> None:
        """Take the loop in which it is called; the listener does this when it is made."""

    def check(self, hello: Mapping[str, Any]) -> None:
        """Raise if a request is refused before anything is sent for it.

        Raises
        ------
        ValueError
            Its text goes to the other end.
        """

    def lacks(self, blobs: Mapping[str, int]) -> list[str] | None:
        """Return the digests of those blobs that are to be sent; None to be asked again when another connection has brought some.

        Parameters
        ----------
        blobs : mapping of str to int
            The numbers of bytes, by digest.

        Raises
        ------
        ValueError
            They are not taken; its text goes to the other end.
        """
        return list(blobs)

    def place(self, digest: str, nbytes: int) -> Any:
        """Return a writable buffer to receive a blob into; it is in `Accepted.blobs` later."""
        return bytearray(nbytes)

    def spoilt(self, digest: str) -> None:
        """Forget a blob that was wanted and did not come."""

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        """Return the answer to a request. The socket is not to be used yet.

        Raises
        ------
        ValueError, OSError
            The request is refused; its text goes to the other end. But a ``ConnectionError`` ends the connection
            alone, and the other end may try again.
        """
        raise NotImplementedError

    def begin(self, accepted: Accepted) -> None:
        """Take the socket over, now that the answer was sent."""
        raise NotImplementedError

    def close(self) -> None:
        """Close everything, when the listener ends."""
