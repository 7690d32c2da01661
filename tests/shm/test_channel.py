"""The channel: whole messages in order, no waiting at the coordinator's end, and deaths seen."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tundish.shm.channel import Channel, ChannelClosed, default_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.shm.conftest import Run

KINDS = ("packet", "stream") if sys.platform == "linux" else ("stream",)
KIB = 1 << 10
DEADLINE_S = 30


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ends(kind: str) -> Iterator[tuple[Channel, Channel]]:
    """A coordinator's end and a worker's."""
    coordinator, worker = Channel.pair(kind)
    coordinator.set_nonblocking()
    yield coordinator, worker
    coordinator.close()
    worker.close()


def pattern(size: int, start: int = 0) -> bytes:
    return bytes((start + i) % 251 for i in range(min(size, 251))) * (size // 251 + 1)


def message(size: int, start: int = 0) -> bytes:
    return pattern(size, start)[:size]


def fill(channel: Channel, size: int = 4 * KIB) -> int:
    """Send until the kernel takes no more; return how many messages that took."""
    for count in range(100_000):
        if not channel.send(message(size, count)):
            return count + 1
    raise AssertionError("the kernel takes everything")


def receive(channel: Channel, count: int) -> list[bytes]:
    """Receive on a non-blocking end until `count` messages are there."""
    messages: list[bytes] = []
    while len(messages) < count:
        assert select.select([channel], [], [], DEADLINE_S)[0], f"{len(messages)} of {count} came"
        messages += map(bytes, channel.recv_all())
    return messages


@pytest.mark.parametrize("size", [1, 7, 48, 4096, 16 * KIB, 16 * KIB + 1, 180 * KIB])
def test_a_message_arrives_whole(ends: tuple[Channel, Channel], size: int) -> None:
    coordinator, worker = ends
    assert coordinator.send(message(size))
    assert worker.recv() == message(size)
    assert worker.send(message(size, 3))
    assert coordinator.recv() == message(size, 3)
    assert coordinator.recv() is None
    assert coordinator.recv_all() == []


@pytest.mark.parametrize("size", [180 * KIB + 1, 5_000_000])
def test_a_stream_carries_messages_of_any_size(size: int) -> None:
    sender, receiver = Channel.pair("stream")
    sender.set_nonblocking()
    receiver.set_nonblocking()
    assert sender.max_message is None
    before, after = message(10, 1), message(10, 2)
    for part in (before, message(size), after):
        sender.send(part)
    got: list[Any] = []
    while len(got) < 3:
        sender.flush()
        got += receiver.recv_all()
    assert not sender.pending
    assert [bytes(part) for part in got] == [before, message(size), after]
    assert isinstance(got[1], memoryview)
    assert not got[1].readonly
    sender.close()
    receiver.close()


@given(sizes=st.lists(st.integers(1, 400_000) | st.integers(1, 64), max_size=12))
@example(sizes=[400_000] * 12)
def test_any_messages_arrive_in_order(sizes: list[int]) -> None:
    for kind in KINDS:
        sender, receiver = Channel.pair(kind)
        sender.set_nonblocking()
        receiver.set_nonblocking()
        limit = sender.max_message or max(sizes, default=1)
        sent = [message(min(size, limit), index) for index, size in enumerate(sizes)]
        for part in sent:
            sender.send(part)
        got: list[bytes] = []
        while len(got) < len(sent):
            sender.flush()
            got += map(bytes, receiver.recv_all())
        assert got == sent
        assert not sender.pending
        sender.close()
        receiver.close()


@given(data=st.data(), sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_a_stream_may_come_in_any_pieces(data: st.DataObject, sizes: list[int]) -> None:
    raw, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sent = [message(size, index) for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack("<Q", len(part)) + part for part in sent)
    got: list[bytes] = []
    with raw, closing(Channel.adopt(other.detach(), "stream")) as receiver:
        receiver.set_nonblocking()
        while stream:
            step = data.draw(st.integers(1, len(stream)))
            raw.sendall(stream[:step])
            stream = stream[step:]
            if data.draw(st.booleans()):
                got += map(bytes, receiver.recv_all())
            elif (one := receiver.recv()) is not None:
                got.append(bytes(one))
        got += map(bytes, receiver.recv_all())
    assert got == sent


def test_sending_never_waits(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    count = fill(coordinator)
    assert not coordinator.send(b"later")
    assert not coordinator.flush()
    for index in range(count):
        assert worker.recv() == message(4 * KIB, index)
        coordinator.flush()
    assert not coordinator.pending
    assert worker.recv() == b"later"


def test_a_waiting_worker_wakes_the_coordinator(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    fill(coordinator)
    assert not select.select([], [coordinator], [], 0)[1]
    while coordinator.pending:
        worker.recv()
        if select.select([], [coordinator], [], 0)[1]:
            coordinator.flush()
    assert coordinator.send(b"and on")


def test_recv_all_leaves_nothing(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    for index in range(50):
        worker.send(message(100, index))
    assert coordinator.recv() == message(100, 0)
    assert coordinator.recv_all() == [message(100, index) for index in range(1, 50)]
    assert not select.select([coordinator], [], [], 0)[0]


def test_a_worker_takes_all_that_waits_for_it(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    for index in range(3):
        coordinator.send(message(100, index))
    assert worker.recv_all() == [message(100, index) for index in range(3)]


@pytest.mark.parametrize("take", [Channel.recv, Channel.recv_all])
def test_a_worker_waits_for_the_first(
    ends: tuple[Channel, Channel], take: Callable[[Channel], object]
) -> None:
    coordinator, worker = ends
    taken: list[object] = []
    thread = threading.Thread(target=lambda: taken.append(take(worker)))
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    coordinator.send(b"now")
    thread.join(DEADLINE_S)
    assert taken in ([b"now"], [[b"now"]])


def test_what_was_sent_before_an_end_is_received(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    worker.send(b"one")
    worker.send(b"two")
    worker.close()
    assert coordinator.recv_all() == [b"one", b"two"]
    for _ in range(2):
        with pytest.raises(ChannelClosed):
            coordinator.recv_all()
        with pytest.raises(ChannelClosed):
            coordinator.recv()


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_peer_that_died_with_unread_messages(
    ends: tuple[Channel, Channel], *, one_by_one: bool
) -> None:
    # The kernel reports ECONNRESET here; on a packet socket before the messages that still wait.
    coordinator, worker = ends
    coordinator.send(b"never read")
    worker.send(b"one")
    worker.send(b"two")
    worker.close()
    if one_by_one:
        assert [coordinator.recv(), coordinator.recv()] == [b"one", b"two"]
    else:
        assert coordinator.recv_all() == [b"one", b"two"]
    with pytest.raises(ChannelClosed):
        coordinator.recv()


def test_a_worker_notices_the_coordinators_end(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    worker.send(b"never read")
    coordinator.send(b"one")
    coordinator.close()
    assert worker.recv() == b"one"
    with pytest.raises(ChannelClosed):
        worker.recv()
    with pytest.raises(ChannelClosed):
        worker.send(b"hello?")


def test_sending_to_the_dead_leaves_what_they_said(ends: tuple[Channel, Channel]) -> None:
    coordinator, worker = ends
    fill(coordinator)
    worker.send(b"last words")
    worker.close()
    with pytest.raises(ChannelClosed):
        coordinator.flush()
    assert not coordinator.pending
    with pytest.raises(ChannelClosed):
        coordinator.send(b"hello?")
    assert coordinator.recv_all() == [b"last words"]


def test_a_process_killed_in_the_middle_of_a_message(kind: str) -> None:
    coordinator, worker = Channel.pair(kind)
    coordinator.set_nonblocking()
    script = """
        import sys
        from tundish.shm.channel import Channel

        channel = Channel.adopt(int(sys.argv[1]), sys.argv[2])
        for _ in range(10_000):  # until the socket is full: this end waits, the last one half out
            channel.send(bytes(150_000))
        """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(worker.fileno()), kind],
        pass_fds=[worker.fileno()],
    )
    os.set_blocking(worker.fileno(), False)
    while select.select([], [worker], [], 0)[1]:  # full when it could not take another byte
        assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    worker.close()
    messages = coordinator.recv_all()
    assert messages
    assert all(bytes(part) == bytes(150_000) for part in messages)
    with pytest.raises(ChannelClosed):
        coordinator.recv()
    coordinator.close()


def test_a_dead_worker_does_not_kill_who_has_restored_sigpipe(kind: str, run: Run) -> None:
    said = run(
        """
        import signal, sys
        from tundish.shm.channel import Channel, ChannelClosed

        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        coordinator, worker = Channel.pair(sys.argv[1])
        worker.close()
        try:
            coordinator.send(b"hello?")
        except ChannelClosed as error:
            print(error)
        """,
        kind,
    )
    assert "Broken pipe" in said


class Interrupted:
    """A socket at which Ctrl-C arrives as soon as the system call is over."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def recv_into(self, *arguments: Any) -> int:
        self.socket.recv_into(*arguments)
        raise KeyboardInterrupt

    def send(self, *arguments: Any) -> int:
        self.socket.send(*arguments)
        raise KeyboardInterrupt


@pytest.mark.parametrize("direction", ["send", "recv"])
def test_an_interrupted_transfer_ends_the_channel(
    ends: tuple[Channel, Channel], direction: str
) -> None:
    coordinator, worker = ends
    worker.send(b"one")
    worker.send(b"two")
    original = coordinator._socket
    coordinator._socket = Interrupted(original)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        coordinator.send(b"x") if direction == "send" else coordinator.recv()
    coordinator._socket = original
    with pytest.raises(ChannelClosed):
        coordinator.recv()
    with pytest.raises(ChannelClosed):
        coordinator.send(b"y")


class Reset:
    """A socket of a system that repeats ECONNRESET where Linux goes on to the end."""

    def recv_into(self, *_: Any) -> int:
        raise ConnectionResetError


def test_a_reset_that_is_repeated_is_an_end(ends: tuple[Channel, Channel]) -> None:
    coordinator, _ = ends
    original = coordinator._socket
    coordinator._socket = Reset()  # type: ignore[assignment]
    with pytest.raises(ChannelClosed):
        coordinator.recv()
    coordinator._socket = original


def test_a_default_timeout_of_the_user_is_not_ours(kind: str) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        ends = Channel.pair(kind)
        adopted = Channel.adopt(os.dup(ends[0].fileno()), kind)
    finally:
        socket.setdefaulttimeout(before)
    assert [end._socket.gettimeout() for end in (*ends, adopted)] == [None, None, None]
    for end in (*ends, adopted):
        end.close()


def test_descriptors_are_closed_on_exec(ends: tuple[Channel, Channel], kind: str) -> None:
    passed = os.dup(ends[0].fileno())
    os.set_inheritable(passed, True)
    adopted = Channel.adopt(passed, kind)
    assert not any(os.get_inheritable(end.fileno()) for end in (*ends, adopted))
    adopted.close()


def test_closing_twice_is_allowed(ends: tuple[Channel, Channel]) -> None:
    for _ in range(2):
        ends[0].close()
    assert ends[0].fileno() == -1
    for step in (ends[0].recv, ends[0].recv_all, ends[0].flush, lambda: ends[0].send(b"x")):
        with pytest.raises(ChannelClosed):
            step()


def test_the_largest_packet_always_fits_an_empty_socket() -> None:
    for asked in (1 << 20, 20_000):
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, asked)
        sender, receiver = (Channel.adopt(end.detach(), "packet") for end in pair)
        sender.set_nonblocking()
        assert sender.max_message
        assert sender.send(bytes(sender.max_message))
        assert len(receiver.recv() or b"") == sender.max_message
        sender.close()
        receiver.close()


@pytest.mark.parametrize("size", [0, 180 * KIB + 1])
def test_a_size_that_cannot_be_sent_is_refused(size: int) -> None:
    sender, receiver = Channel.pair("packet")
    with pytest.raises(ValueError, match=f"a message of {size:,} bytes; 1 to 184,320"):
        sender.send(bytes(size))
    assert not sender.pending
    sender.close()
    receiver.close()


def test_an_unknown_or_wrong_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="'carrier pigeon'"):
        Channel.pair("carrier pigeon")
    sender, receiver = Channel.pair("stream")
    with pytest.raises(ValueError, match="not of a packet socket"):
        Channel.adopt(os.dup(sender.fileno()), "packet")
    sender.close()
    receiver.close()


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({}, "packet"),
        ({"TUNDISH_PORTABLE": "0"}, "packet"),
        ({"TUNDISH_PORTABLE": "1"}, "stream"),
        ({"TUNDISH_MEMORY": "none"}, "stream"),
        ({"TUNDISH_MEMORY": "tmpdir"}, "packet"),
    ],
)
def test_the_kind_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], kind: str
) -> None:
    for name in ("TUNDISH_PORTABLE", "TUNDISH_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if sys.platform != "linux":
        kind = "stream"
    assert default_kind() == kind
    ends = Channel.pair()
    assert [end.kind for end in ends] == [kind, kind]
    for end in ends:
        end.close()
