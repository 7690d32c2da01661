"""Streams of messages of which large ones go straight into their places: any cut, any order, any place."""

from __future__ import annotations

import contextlib
import socket
import struct
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tundish.shm.channel import Channel, ChannelClosed
from tundish.shm.frames import HEAD, LARGE

if TYPE_CHECKING:
    from tundish.shm.frames import Placing

PLACED = 80


def message(kind: int, size: int, seed: int) -> bytes:
    return bytes([kind, seed % 251]) + bytes((seed + i) % 253 for i in range(97)) * (size // 97 + 1)


def whole(kind: int, size: int, seed: int) -> bytes:
    return message(kind, size, seed)[:size]


class Desk:
    """Places messages of one kind in parts, and remembers how many were taken in when it was asked."""

    def __init__(self, cuts: list[int]) -> None:
        self.cuts, self.placed, self.taken = cuts, list[bytearray](), 0
        self.asked_at: list[int] = []

    def place(self, head: bytes, size: int) -> Placing | None:
        assert len(head) == HEAD
        assert size > LARGE
        self.asked_at.append(self.taken)
        return self._parts(size) if head[0] == PLACED else None

    def _parts(self, size: int) -> Placing:
        memory = bytearray(size)
        self.placed.append(memory)
        edges = sorted({0, size, *(cut % (size + 1) for cut in self.cuts)})
        views = [memoryview(memory)[a:b] for a, b in pairwise(edges)]
        yield [memoryview(b""), *views[:2], memoryview(b"")]
        if views[2:]:
            yield []
            yield views[2:]
        return b"placed %d" % (len(self.placed) - 1)


def ends(desk: Desk) -> tuple[socket.socket, Channel]:
    raw, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    receiver = Channel.adopt(other.detach(), "stream")
    receiver.set_nonblocking()
    receiver.receive_into(desk.place)
    return raw, receiver


def read(desk: Desk, receiver: Channel, enough: float) -> list[Any]:
    got = receiver.recv_all(enough)
    desk.taken += len(got)
    return got


def resolved(desk: Desk, got: list[Any]) -> list[bytes]:
    return [
        bytes(desk.placed[int(bytes(each)[7:])])
        if bytes(each).startswith(b"placed ")
        else bytes(each)
        for each in got
    ]


SIZES = st.one_of(st.integers(HEAD, 400), st.integers(LARGE - 8, LARGE + 300), st.just(3 * LARGE))


@given(
    plan=st.lists(st.tuples(st.sampled_from((PLACED, 7)), SIZES), min_size=1, max_size=7),
    cuts=st.lists(st.integers(0, 1 << 20), max_size=6),
    steps=st.lists(st.integers(1, 90_000), min_size=1, max_size=40),
    enough=st.sampled_from((1, float("inf"))),
)
def test_any_messages_in_any_pieces_go_to_their_places(
    plan: list[tuple[int, int]], cuts: list[int], steps: list[int], enough: float
) -> None:
    desk = Desk(cuts)
    raw, receiver = ends(desk)
    sent = [whole(kind, size, at) for at, (kind, size) in enumerate(plan)]
    stream = b"".join(struct.pack("<Q", len(part)) + part for part in sent)
    got: list[Any] = []
    raw.setblocking(False)
    with raw, closing(receiver):
        at = 0
        for step in [*steps, *[50_000] * (len(stream) // 50_000 + 1)]:
            upto = min(at + step, len(stream))
            while at < upto:
                with contextlib.suppress(BlockingIOError):  # until some of it is read
                    at += raw.send(stream[at:upto])
                got += read(desk, receiver, enough)
        while more := read(desk, receiver, enough):
            got += more
    assert resolved(desk, got) == sent
    # Its place depends on what came before it: all of that had been taken in.
    large = [at for at, part in enumerate(sent) if len(part) > LARGE]
    assert set(desk.asked_at) <= set(large)


@pytest.mark.parametrize(
    "there", [0, 3, 8, 8 + HEAD - 1, 8 + HEAD, 5000, LARGE + 7, 8 + 2 * LARGE - 1]
)
def test_a_sender_that_dies_in_the_middle_leaves_no_message(there: int) -> None:
    desk = Desk([1000])
    raw, receiver = ends(desk)
    first, second = whole(7, 100, 1), whole(PLACED, 2 * LARGE, 2)
    with closing(receiver):
        raw.sendall(struct.pack("<Q", len(first)) + first)
        raw.sendall((struct.pack("<Q", len(second)) + second)[:there])
        raw.close()
        assert resolved(desk, read(desk, receiver, float("inf"))) == [first]
        with pytest.raises(ChannelClosed):
            receiver.recv_all()
    for memory in desk.placed:  # what came is where it belongs, and nothing else was written
        come = max(0, there - 8)
        assert memory[:come] == second[:come]
        assert not any(memory[come:])


def test_a_place_of_another_size_than_the_message_is_noticed() -> None:
    def place(head: bytes, size: int) -> Placing:
        yield [memoryview(bytearray(size - 1))]
        return b"short"

    raw, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with raw, closing(Channel.adopt(other.detach(), "stream")) as receiver:
        receiver.set_nonblocking()
        receiver.receive_into(place)
        part = struct.pack("<Q", 2 * LARGE) + whole(PLACED, 2 * LARGE, 0)
        raw.sendall(part[:1000])
        assert receiver.recv_all() == []
        raw.sendall(part[1000:])
        with pytest.raises(AssertionError, match="1 bytes early"):
            receiver.recv_all()
        with pytest.raises(ChannelClosed):  # it would be misread from here on
            receiver.recv_all()


def test_parts_are_sent_as_one_message() -> None:
    sender, receiver = Channel.pair("stream")
    parts = [memoryview(whole(7, size, size)) for size in (1, 0, 70, 5000)]
    with closing(sender), closing(receiver):
        sender.send_parts(parts)
        sender.send(b"after")
        assert receiver.recv() == b"".join(parts)
        assert receiver.recv() == b"after"


def test_more_parts_than_the_kernel_takes_at_once() -> None:
    sender, receiver = Channel.pair("stream")
    parts = [memoryview(bytes([at % 251] * 3)) for at in range(3000)]
    with closing(sender), closing(receiver):
        sender.send_parts(parts)
        assert receiver.recv() == b"".join(parts)
    with pytest.raises(ChannelClosed):
        sender.send_parts(parts)
