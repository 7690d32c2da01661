"""TLS: either end has a certificate of the other's authority, and workers have sessions of their own."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import shutil
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.service.certificates import Authority
from tests.service.listeners import TOKEN, answering, dial

from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.answering import Calls
from tundish.loader.service.connections.calling import Caller
from tundish.loader.service.connections.credentials import Credentials, TlsFiles
from tundish.loader.service.connections.dialing import Dialed, Refused
from tundish.loader.service.connections.handshake import digest_of, finish
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.connections.tls import TlsStream, resume
from tundish.shm.channel import Channel, ChannelClosed

SECRET = b"what nobody may read on the way " * 4


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours") / "authority")


@pytest.fixture(scope="module")
def ours(authority: Authority) -> Credentials:
    return Credentials(TOKEN, authority.member("trainer"))


@pytest.fixture(scope="module")
def agents(authority: Authority) -> Credentials:
    return Credentials(TOKEN, authority.member("agent"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    """The token is known; the certificate is another authority's."""
    return Credentials(TOKEN, Authority(tmp_path_factory.mktemp("other") / "a").member("trainer"))


def echo(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
    return fields, blobs


@contextlib.contextmanager
def serving(credentials: Credentials) -> Iterator[Listener]:
    with Listener("127.0.0.1", 0, credentials, {"test": Calls(echo)}) as listener:
        listener.start()
        yield listener


@pytest.fixture
def agent(agents: Credentials) -> Iterator[Agent]:
    with Agent("127.0.0.1", 0, agents) as made:
        made.start()
        yield made


def seat(agent: Agent, credentials: Credentials, entry: str, config: bytes = b"config") -> Dialed:
    ask = {"entry": f"tests.service.entries:{entry}", "threads": 1, "digest": None}
    return dial(agent.address, credentials, "seat", ask, {digest_of(config): config}, timeout_s=30)


def exactly(dialed: Dialed, size: int) -> bytes:
    dialed.socket.setblocking(True)
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = dialed.socket.recv_into(view)
        assert count
        view = view[count:]
    return bytes(data)


def test_calls(ours: Credentials, agents: Credentials) -> None:
    with serving(agents) as listener, Caller(listener.address, ours, "test") as calls:
        for size in (0, 1, 16384, 16385, 5_000_000):
            blob = os.urandom(size)
            assert calls.call("echo", [blob, b"x"], n=size) == (
                {"do": "echo", "n": size},
                [blob, b"x"],
            )


def test_a_certificate_of_another_authority(
    ours: Credentials, agents: Credentials, strangers: Credentials
) -> None:
    with serving(agents) as listener:
        with pytest.raises(Refused, match="must be signed by the authority"):
            dial(listener.address, strangers, "test", {})
        with Caller(listener.address, ours, "test") as calls:
            assert calls.call("x")
    shown = "must be signed by the authority"
    with serving(strangers) as listener, pytest.raises(Refused, match=shown):
        dial(listener.address, ours, "test", {})


def test_no_certificate(agents: Credentials, ours: Credentials) -> None:
    context = ssl.create_default_context(cafile=str(Path(agents_file(agents).authority)))
    context.check_hostname = False
    with serving(agents) as listener:
        with (
            socket.create_connection(listener.address) as sock,
            context.wrap_socket(sock) as session,
            pytest.raises(ssl.SSLError, match=r"certificate required|CERTIFICATE_REQUIRED"),
        ):
            session.recv(1)
        with Caller(listener.address, ours, "test") as calls:
            assert calls.call("x")


def agents_file(credentials: Credentials) -> TlsFiles:
    assert credentials.tls is not None
    return credentials.tls


def test_an_older_tls_is_refused(agents: Credentials) -> None:
    files = agents_file(agents)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        serving(agents) as listener,
        socket.create_connection(listener.address) as sock,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(sock)


def test_one_end_without_tls(ours: Credentials, agents: Credentials) -> None:
    with serving(agents) as listener, pytest.raises(ConnectionError, match=r"speaks? TLS"):
        dial(listener.address, Credentials(TOKEN), "test", {})
    shown = "it does not speak TLS"
    with serving(Credentials(TOKEN)) as listener, pytest.raises(Refused, match=shown):
        dial(listener.address, ours, "test", {})


def test_the_token_is_asked_for_as_well(ours: Credentials, agents: Credentials) -> None:
    wrong = Credentials(b"x" * 32, ours.tls)
    with serving(agents) as listener, pytest.raises(Refused, match="does not know the token"):
        dial(listener.address, wrong, "test", {})


def test_certificates_are_renewed(authority: Authority, ours: Credentials, tmp_path: Path) -> None:
    """An agent takes new files without being started again."""
    names = ("certificate", "key", "authority")
    old, new = authority.member("expired", days=-1), authority.member("renewed")
    paths = TlsFiles(*(str(tmp_path / name) for name in names))
    copy(old, paths)
    with serving(Credentials(TOKEN, paths)) as listener:
        with pytest.raises(Refused, match="expired"):
            dial(listener.address, ours, "test", {})
        copy(new, paths)
        with Caller(listener.address, ours, "test") as calls:
            assert calls.call("x")


def test_certificates_that_are_not_there_are_an_error_at_the_start(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = authority.member("here")
    absent = replace(files, certificate=str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match="absent"):
        Credentials.find(tls=absent)
    wrong = replace(files, certificate=files.key)
    with pytest.raises(OSError, match="no certificate, its key and its authority"):
        Credentials.find(tls=wrong)


def test_certificates_that_are_damaged_later_are_told(
    authority: Authority, ours: Credentials, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("certificate", "key", "authority")
    paths = TlsFiles(*(str(tmp_path / name) for name in names))
    copy(authority.member("good"), paths)
    with serving(Credentials(TOKEN, paths)) as listener:
        Path(paths.certificate).write_text("damaged")
        with pytest.raises(ConnectionError):
            dial(listener.address, ours, "test", {})
    assert "its own certificates are not right" in caplog.text


def copy(source: TlsFiles, target: TlsFiles) -> None:
    for name in ("certificate", "key", "authority"):
        shutil.copyfile(getattr(source, name), getattr(target, name))
        os.utime(getattr(target, name), ns=(time.time_ns(), time.time_ns()))


@pytest.mark.parametrize("size", [1, 16384, 3_000_000])
def test_a_worker_has_a_session_of_its_own(agent: Agent, ours: Credentials, size: int) -> None:
    dialed = seat(agent, ours, "echo")
    worker = int(exactly(dialed, 10))
    assert worker != os.getpid()
    data = os.urandom(size)
    for at in range(0, size, 60_000):  # one thread: a session has one user at a time
        piece = memoryview(data)[at : at + 60_000]
        send(dialed, piece)
        assert exactly(dialed, len(piece)) == piece
    dialed.socket.close()


def send(dialed: Dialed, data: memoryview) -> None:
    while data:
        data = data[dialed.socket.send(data) :]


def test_nothing_is_readable_on_the_way(agent: Agent, ours: Credentials) -> None:
    seen = bytearray()

    def relay(connection: socket.socket) -> None:
        with socket.create_connection(agent.address) as inner:
            poll = select.poll()
            ends = {connection.fileno(): (connection, inner), inner.fileno(): (inner, connection)}
            for fd in ends:
                poll.register(fd, select.POLLIN)
            while True:
                for fd, _ in poll.poll(20_000):
                    data = ends[fd][0].recv(65536)
                    seen.extend(data)
                    ends[fd][1].sendall(data)
                    if not data:
                        return

    with answering(relay) as address:
        ask = {"entry": "tests.service.entries:echo", "threads": 1, "digest": None}
        blobs = {digest_of(SECRET): SECRET}
        dialed = dial(address, ours, "seat", ask, blobs, timeout_s=30)
        exactly(dialed, 10)
        dialed.socket.send(SECRET)
        assert exactly(dialed, len(SECRET)) == SECRET
        dialed.socket.close()

    assert len(seen) > 4 * len(SECRET)
    for part in (SECRET[:16], b"entries:echo", TOKEN, b"tundish"):
        assert part not in seen


def test_who_takes_the_connection_over_does_not_know_the_secret(
    ours: Credentials, agents: Credentials
) -> None:
    """A member without the token may stand between the two sessions."""
    left, right = socket.socketpair()
    streams = [
        TlsStream(left, agents_file(ours), server=False),
        TlsStream(right, agents_file(agents), server=True),
    ]
    thread = threading.Thread(target=lambda: finish(streams[1].shake("x"), streams[1], 5))
    thread.start()
    finish(streams[0].shake("x"), streams[0], 5)
    thread.join()

    def pretend() -> None:
        with contextlib.suppress(Refused):
            finish(resume(streams[1], b"a guess", server=True), streams[1], 5)

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(Refused, match="does not know the secret"):
        finish(resume(streams[0], b"the secret", server=False), streams[0], 5)
    thread.join()
    for each in streams:
        each.close()


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("linger", [0, 1])
def test_an_end_that_has_left(ours: Credentials, server: bool, linger: int) -> None:
    """It is no refusal, since an agent may have been killed; and nothing is left open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        if linger:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    assert poll.poll(5000)
    stream = TlsStream(sock, agents_file(ours), server=server)
    with pytest.raises(OSError, match=r"left|reset|Broken pipe") as caught:
        finish(stream.shake("x"), stream, 5)
    assert not isinstance(caught.value, Refused)
    stream.close()
    gc.collect()


def test_channels_over_sessions(ours: Credentials, agents: Credentials) -> None:
    """Messages of all sizes, sent together, are received whole; one end waits and the other does not."""
    left, right = socket.socketpair()
    streams = [
        TlsStream(left, agents_file(ours), server=False),
        TlsStream(right, agents_file(agents), server=True),
    ]
    thread = threading.Thread(target=lambda: finish(streams[1].shake("x"), streams[1], 5))
    thread.start()
    finish(streams[0].shake("x"), streams[0], 5)
    thread.join()
    trainer = Channel.adopt(streams[0], "stream")  # type: ignore[arg-type]
    worker = Channel.adopt(streams[1], "stream")  # type: ignore[arg-type]
    trainer.set_nonblocking()
    messages = [os.urandom(size) for size in (1, 100, 16376, 16384, 200_000, 5, 70_000, 1)] * 3

    def work() -> None:
        for _ in messages:
            message = worker.recv()
            assert message is not None
            worker.send(bytes(message))

    thread = threading.Thread(target=work)
    thread.start()
    for message in messages:
        trainer.send(message)
    received: list[bytes] = []
    until = time.monotonic() + 20
    while len(received) < len(messages):
        assert time.monotonic() < until
        poll = select.poll()
        poll.register(trainer.fileno(), select.POLLIN | (select.POLLOUT if trainer.pending else 0))
        poll.poll(5000)
        if trainer.pending:
            trainer.flush()
        received += map(bytes, trainer.recv_all())
    thread.join()
    assert received == messages

    worker.close()
    with pytest.raises(ChannelClosed):
        trainer.recv_all()
    assert sent_until_closed(trainer) < 1000
    trainer.close()


def sent_until_closed(channel: Channel) -> int:
    for count in range(1000):
        try:
            channel.send(b"x")
        except ChannelClosed:
            return count
    return 1000


def test_a_worker_goes_with_its_trainer(agent: Agent, ours: Credentials) -> None:
    dialed = seat(agent, ours, "sleep")
    pid = int(exactly(dialed, 10))
    fd = os.pidfd_open(pid)
    dialed.socket.close()
    try:
        assert select.select([fd], [], [], 10)[0]
    finally:
        os.close(fd)
