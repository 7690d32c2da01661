"""A consumer's connection to a host process, and the parcels that it has views of.

The connection outlives the iterator while a view exists: closing it tells the host process that the slots may be used
again.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.handshake import PROTOCOL, versions
from tundish.loader.service.host.folder import HostFolder
from tundish.loader.service.host.parcels import Span, opened_elements
from tundish.loader.service.host.slots import PrivateSlots
from tundish.loader.service.host.wire import (
    parse_packet,
    read_file,
    receive_packet,
    send_told,
)

if TYPE_CHECKING:
    from tundish.loader.service.host.plan import HostedPlan

ANSWERED_S = 120.0
"""Seconds that a host process has to answer before it counts as ended."""
_CLEARED_S = 1.0

_open: set[HostLink] = set()
"""The links that an iterator uses, or whose memory has views."""


class HostEndedError(ConnectionError):
    """The host process has ended."""


class _SlotView(weakref.ref[Any]):
    """A weak reference to the root of a parcel's views in a slot."""

    __slots__ = ("parcel", "slot")
    parcel: int
    slot: int


class HostLink:
    """A connection to a host process.

    Attributes
    ----------
    pid : int
        The host process's id.
    waiting : bool
        True while no message has come: an interrupt then loses none.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        self._sock, self._name = sock, name
        self.pid, self.waiting = 0, False
        self._owner = os.getpid()
        self._slots: PrivateSlots | None = None
        self._leaving = False
        self._copies = False  # the next parcel, as there are too many views
        # Roots are collected at any point of the program: their callback only appends, and `_collect` does the rest.
        self._returned: deque[_SlotView] = deque()
        self._lock = threading.Lock()
        self._views: dict[int, list[_SlotView]] = {}
        self._freed: list[int] = []
        _open.add(self)

    # -- beginning -----------------------------------------------------------------------------

    def welcome(self, plan: HostedPlan) -> None:
        """Introduce this process, and send the dataset if the host process has none.

        Raises
        ------
        HostEndedError
            The host process has ended, or will not answer.
        ValueError
            It runs another dataset, or has other versions.
        """
        self._sock.settimeout(ANSWERED_S)
        self._tell({"do": "hello", "protocol": PROTOCOL, **versions()})
        kind, *rest, fds = self._receive()
        if kind == "want":
            with plan.packed() as files:
                told = {"do": "dataset", "digest": plan.digest}
                self._tell(told, files)
            kind, *rest, fds = self._receive()
        try:
            (told,) = rest
            if told["digest"] != plan.digest:
                raise ValueError(plan.difference(read_file(fds.pop(1))))
            self.pid = told["pid"]
            self._slots = PrivateSlots(fds.pop(0), told["stride"], told["slots"])
        finally:
            for fd in fds:
                os.close(fd)

    def join(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask for elements from a position; return the stream and the number of the next element."""
        self._tell({"do": "join", "asked": asked})
        _, told, _ = self._receive()
        self._sock.settimeout(None)
        found: dict[str, Any] = told
        return found

    def _tell(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            send_told(self._sock, message, fds)
        except (BrokenPipeError, ConnectionResetError):
            return  # messages that it sent before it ended are still to be read
        except TimeoutError:
            raise HostEndedError(self._silent()) from None

    def _receive(self) -> tuple[Any, ...]:
        """Return the next message, and the descriptors that came with it."""
        self.waiting = True
        try:
            data, fds = receive_packet(self._sock)
            self.waiting = False
        except TimeoutError:
            raise HostEndedError(self._silent()) from None
        if not data:
            raise HostEndedError("the host process has ended")
        message = parse_packet(data, fds)
        if message[0] == "refused":
            raise ValueError(message[1])
        return (*message, fds)

    def _silent(self) -> str:
        return f"the host process has not answered within {self._sock.gettimeout()} s"

    # -- elements ------------------------------------------------------------------------------

    def receive(self) -> tuple[Any, ...]:
        """Return the next message of the host process, waiting for it; of a parcel its elements are opened.

        Raises
        ------
        HostEndedError
            The host process has ended.
        """
        while True:
            *message, fds = self._receive()
            for fd in fds:
                os.close(fd)
            if message[0] == "copy":
                self._copies = True
            elif message[0] == "parcel":
                _, number, first, bodies, spans, anchor = message
                return ("parcel", first, self._open_parcel(number, bodies, spans), anchor)
            else:
                return tuple(message)

    def _open_parcel(self, number: int, bodies: list[Any], spans: list[Span]) -> list[Any]:
        slots, roots = self._slots, dict[int, tuple[Any, int]]()
        assert slots is not None
        copies, self._copies = self._copies or not slots.mapped, False
        reach: dict[int, tuple[int, int]] = {}
        for slot, start, stop, _ in spans:
            low, high = reach.get(slot, (start, stop))
            reach[slot] = (min(low, start), max(high, stop))
        for slot, (low, high) in reach.items():
            roots[slot] = ((slots.copy if copies else slots.view)(slot, low, high), low)
        if reach and not copies:
            self._views[number] = [
                self._watch(number, slot, root) for slot, (root, _) in roots.items()
            ]

        def buffer_of(span: Span) -> Any:
            slot, start, stop, readonly = span
            root, low = roots[slot]
            part = root[start - low : stop - low]
            if readonly:
                part.flags.writeable = False
            return part

        elements = opened_elements(bodies, spans, buffer_of)
        roots.clear()
        if number not in self._views:
            self._freed.append(number)
        self._collect()
        freed, self._freed = self._freed, []
        self._tell({"do": "took", "parcel": number, "free": freed})
        return elements

    def _watch(self, number: int, slot: int, root: Any) -> _SlotView:
        view = _SlotView(root, self._died)
        view.parcel, view.slot = number, slot
        return view

    def _died(self, view: weakref.ref[Any]) -> None:
        self._returned.append(view)  # type: ignore[arg-type]  # nothing else has this callback
        if self._leaving:
            self._collect()

    def _collect(self) -> None:
        """Drop the pages that were written to views that are gone, and note that their parcels may be used again."""
        if os.getpid() != self._owner:
            return
        # Never wait for the lock: this may run inside a call that holds it, and its holder looks again before it returns.
        while self._returned and self._lock.acquire(blocking=False):
            try:
                while self._returned:
                    self._take_back(self._returned.popleft())
            finally:
                self._lock.release()
        if self._leaving and not self._views:
            self._close()

    def _take_back(self, view: _SlotView) -> None:
        assert self._slots is not None
        self._slots.leave(view.slot)
        views = self._views[view.parcel]
        views.remove(view)
        if not views:
            del self._views[view.parcel]
            self._freed.append(view.parcel)

    def ask_state(self, number: int) -> None:
        """Ask for the position before an element; the answer is a message like others."""
        self._tell({"do": "state", "number": number})

    # -- the end -------------------------------------------------------------------------------

    def leave(self) -> None:
        """Ask for no more elements; close the connection when the last view is gone. Safe to call twice."""
        if os.getpid() != self._owner:
            self._close()
            return
        if self._leaving:
            return
        self._leaving = True
        if self._is_deserted():
            # A killed host process leaves its socket behind: its last consumer removes it.
            with contextlib.suppress(OSError), HostFolder.open() as folder:
                folder.remove_deserted(self._name, time.monotonic() + _CLEARED_S)
        self._collect()
        if self._views:
            with contextlib.suppress(OSError):
                self._sock.settimeout(1.0)
                self._tell({"do": "leave", "holds": list(self._views)})

    def _is_deserted(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._sock, 0)
        except ValueError:  # it is closed
            return False
        return bool(poll.poll(0))

    def _close(self) -> None:
        self._sock.close()
        if self._slots is not None:
            self._slots.close()
        _open.discard(self)
