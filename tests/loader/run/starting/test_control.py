"""Messages between a consumer and its zygote: whole, in order, each with its own descriptors."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tundish.loader.run.starting.control import Control, ControlKind, Message, scratch_file


@pytest.fixture
def ends() -> Iterator[tuple[Control, Control]]:
    ours, sock = Control.pair()
    theirs = Control(sock)
    yield ours, theirs
    ours.close()
    theirs.close()


def _waits(control: Control) -> bool:
    """Return True if messages wait to be sent; asked anew each time."""
    return bool(control.unsent)


def test_messages_arrive_in_order(ends: tuple[Control, Control]) -> None:
    ours, theirs = ends
    ours.send(ControlKind.READY)
    ours.send(ControlKind.ENDED, 2**32 - 1, -9, text=b"last words")
    theirs.send(ControlKind.KILL, 3)

    assert theirs.receive() == [
        Message(ControlKind.READY, 0, 0, b"", ()),
        Message(ControlKind.ENDED, 2**32 - 1, -9, b"last words", ()),
    ]
    assert ours.receive() == [Message(ControlKind.KILL, 3, 0, b"", ())]
    assert theirs.receive() == []


def test_each_message_has_its_own_descriptors(ends: tuple[Control, Control]) -> None:
    ours, theirs = ends
    files = [scratch_file(str(i).encode()) for i in range(6)]
    for number, sent in enumerate(([0, 1], [], [2], [3, 4, 5])):
        ours.send(ControlKind.START, number, fds=tuple(files[i] for i in sent))
    for fd in files:
        os.close(fd)

    messages = theirs.receive()

    found = [[os.pread(fd, 9, 0) for fd in message.fds] for message in messages]
    assert found == [[b"0", b"1"], [], [b"2"], [b"3", b"4", b"5"]]
    for fd in (fd for message in messages for fd in message.fds):
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_what_cannot_be_opened_is_missing_from_its_own_message_alone(
    ends: tuple[Control, Control],
) -> None:
    ours, theirs = ends
    first, second = scratch_file(b"first"), scratch_file(b"second")
    ours.send(ControlKind.START, 1, fds=(first, first))
    ours.send(ControlKind.START, 2, fds=(second,))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/dev/fd").iterdir())
    free = [os.dup(0)]
    while free[-1] < highest:
        free.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1] + 1, limits[1]))
    os.close(free.pop())  # there is room for one
    try:
        messages = theirs.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    found = [[os.pread(fd, 9, 0) for fd in message.fds] for message in messages]
    assert found == [[b"first"], []]
    for fd in (first, second, *free, *messages[0].fds):
        os.close(fd)


def test_descriptors_that_are_missing_are_not_made_up_with_the_next_messages(
    ends: tuple[Control, Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As when another thread closes some in between.
    ours, theirs = ends
    first, second = scratch_file(b"first"), scratch_file(b"second")
    ours.send(ControlKind.START, 1, fds=(first,))
    ours.send(ControlKind.START, 2, fds=(second,))
    receive = theirs._receive
    cut = iter([socket.MSG_CTRUNC, 0])

    def cut_short() -> Any:
        data, ancillary, flags, address = receive()
        two = data[:1] + b"\2" + data[2:]  # the message's head says how many it had
        flag = next(cut)
        return (two if flag else data), ancillary, flags | flag, address

    monkeypatch.setattr(theirs, "_receive", cut_short)

    messages = theirs.receive()

    found = [[os.pread(fd, 9, 0) for fd in message.fds] for message in messages]
    assert found == [[b"first"], [b"second"]]
    for fd in (first, second, *(fd for message in messages for fd in message.fds)):
        os.close(fd)


def test_what_the_kernel_does_not_take_waits(ends: tuple[Control, Control]) -> None:
    ours, theirs = ends
    file = scratch_file(b"the file")
    text = b"x" * 60_000
    while not _waits(ours):
        ours.send(ControlKind.ENDED, 1, text=text)
    ours.send(ControlKind.STARTED, 2, fds=(file,))
    os.close(file)
    messages = []
    while _waits(ours):
        messages += theirs.receive()
        ours.flush()
    messages += theirs.receive()

    assert {message.text for message in messages[:-1]} == {text}
    assert os.pread(messages[-1].fds[0], 9, 0) == b"the file"
    os.close(messages[-1].fds[0])


def test_half_a_message_is_none() -> None:
    ours, sock = Control.pair()
    theirs = Control(socket.socket(fileno=os.dup(sock.fileno())))
    with ours._socket as raw:
        ours.send(ControlKind.ENDED, 1, text=b"whole")
        data = sock.recv(1000)
        sock.close()
        for i in range(len(data)):
            assert theirs.receive() == []
            assert raw.send(data[i : i + 1]) == 1

        assert theirs.receive() == [Message(ControlKind.ENDED, 1, 0, b"whole", ())]
    theirs.close()


@pytest.mark.parametrize("unread", [False, True])
def test_a_dead_peer_is_noticed_after_what_it_said(unread: bool) -> None:
    ours, sock = Control.pair()
    theirs = Control(sock)
    theirs.send(ControlKind.READY)
    if unread:
        ours.send(ControlKind.QUIT)  # the kernel then says "reset" where it would say "end"
    theirs.close()

    told = ours.receive() + ours.receive()

    assert [message.kind for message in told] == [ControlKind.READY]
    assert ours.closed
    ours.send(ControlKind.QUIT)
    ours.close()


def test_nobody_listens_is_no_error() -> None:
    ours, sock = Control.pair()
    sock.close()
    ours.send(ControlKind.QUIT)

    assert ours.receive() == []
    assert ours.closed
    ours.close()
    ours.close()
