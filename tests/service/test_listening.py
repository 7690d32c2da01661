"""Listening: whoever connects, it is bounded in memory, descriptors and time, and who knows the token is served."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
import pytest
from tests.service.listeners import OTHERS, OURS, TOKEN, dial
from tests.service.waiting import until

from tundish.loader.service.connections import dialing, listening
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.connections.handshake import (
    MAGIC,
    MOST_JSON,
    PROTOCOL,
    digest_of,
    finish,
    framed,
    give,
    hear,
    prove,
    tell,
    versions,
)
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.connections.roles import Accepted, Role


class Keeping(Role):
    """Keeps blobs, and sends their sizes over the connection."""

    def __init__(self) -> None:
        self.blobs: dict[str, Any] = {}
        self.coming: set[str] = set()
        self.asked: list[list[str]] = []
        self.met: list[Accepted] = []

    def lacks(self, blobs: Mapping[str, int]) -> list[str] | None:
        if any(nbytes > 1 << 30 for nbytes in blobs.values()):
            raise ValueError("more than 1 GiB")
        if self.coming & set(blobs):
            return None
        wanted = [name for name in blobs if name not in self.blobs]
        self.asked.append(wanted)
        self.coming |= set(wanted)
        return wanted

    def spoilt(self, digest: str) -> None:
        self.coming.discard(digest)

    def welcome(self, accepted: Accepted) -> dict[str, Any]:
        self.blobs |= accepted.blobs
        self.coming -= set(accepted.blobs)
        if "fail" in accepted.ask:
            raise FileNotFoundError(f"{accepted.ask['fail']} is not there")
        return {"here": True}

    def begin(self, accepted: Accepted) -> None:
        self.met.append(accepted)
        accepted.socket.close()


@contextlib.contextmanager
def listening_to(role: Role) -> Iterator[Listener]:
    with Listener("127.0.0.1", 0, OURS, {"keep": role}) as listener:
        listener.start()
        yield listener


def met(listener: Listener, ask: dict[str, Any] | None = None, blobs: Any = None) -> dict[str, Any]:
    dialed = dial(listener.address, OURS, "keep", ask or {}, blobs)
    dialed.socket.close()
    return dialed.answer


def is_closed(connection: socket.socket, within_s: float = 10.0) -> bool:
    connection.settimeout(within_s)
    try:
        while connection.recv(65536):
            continue
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_a_blob_is_sent_once() -> None:
    role = Keeping()
    data = os.urandom(3_000_000)
    with listening_to(role) as listener:
        for _ in range(3):
            assert met(listener, blobs={digest_of(data): data}) == {"here": True}

    assert bytes(role.blobs[digest_of(data)]) == data
    assert role.asked == [[digest_of(data)], [], []]


def test_a_blob_is_sent_once_though_many_have_it() -> None:
    """The others wait until it is there, longer than a dialer would wait for an answer."""
    role = Keeping()
    data = os.urandom(3_000_000)
    blobs = {digest_of(data): data}
    with listening_to(role) as listener:
        first = begun(listener, blobs)
        answers: list[Any] = []
        others = [
            threading.Thread(target=lambda: answers.append(met(listener, blobs=blobs)))
            for _ in range(5)
        ]
        for each in others:
            each.start()
        time_of_a_wait = listening._WAIT_S + 2 * listening._SWEEP_S
        others[0].join(time_of_a_wait)
        assert not answers
        finish(give(first, data), first, 5)
        for each in others:
            each.join(10)
        first.close()

    assert answers == [{"here": True}] * 5
    assert sorted(map(len, role.asked)) == [0] * 5 + [1]


def begun(listener: Listener, blobs: dict[str, bytes]) -> socket.socket:
    """Return a connection whose blobs are wanted, and not sent yet."""
    with contextlib.ExitStack() as unless_begun:
        sock = unless_begun.enter_context(socket.create_connection(listener.address))
        sock.setblocking(False)
        finish(prove(sock, TOKEN, "x", dials=True), sock, 5)
        sizes = {name: len(blob) for name, blob in blobs.items()}
        hello = {**versions(), "protocol": PROTOCOL, "role": "keep", "ask": {}, "blobs": sizes}
        finish(give(sock, framed(hello)), sock, 5)
        assert finish(hear(sock), sock, 5) == {"want": list(blobs)}
        unless_begun.pop_all()
    return sock


@pytest.mark.parametrize("how", ["leaves", "resets", "sends another"])
def test_one_who_was_to_bring_a_blob_and_does_not(how: str) -> None:
    """Those who wait for it are asked for it then."""
    role = Keeping()
    data = os.urandom(100_000)
    blobs = {digest_of(data): data}
    with listening_to(role) as listener:
        first = begun(listener, blobs)
        other = threading.Thread(target=met, args=(listener, {}, blobs))
        other.start()
        first.send(data[:50_000])
        if how == "sends another":
            finish(give(first, bytes(50_000)), first, 5)
            assert is_closed(first)
        if how == "resets":
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        other.join(10)
        assert not other.is_alive()

    assert bytes(role.blobs[digest_of(data)]) == data


def test_one_that_is_gone_before_it_hears_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are asked for the blob then."""
    role = Keeping()
    data = os.urandom(1000)
    blobs = {digest_of(data): data}
    failing = [True]

    def telling(stream: Any, message: Any) -> Any:
        if message.get("want") and failing.pop() is True:
            failing.append(False)
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        return (yield from tell(stream, message))

    monkeypatch.setattr(listening, "tell", telling)
    with listening_to(role) as listener:
        with pytest.raises(ConnectionError):
            begun(listener, blobs)
        failing[:] = [False]
        other = threading.Thread(target=met, args=(listener, {}, blobs))
        other.start()
        other.join(10)
        assert not other.is_alive()

    assert bytes(role.blobs[digest_of(data)]) == data


def test_refusals_of_a_role_reach_the_dialer() -> None:
    with listening_to(Keeping()) as listener:
        with pytest.raises(Refused, match="/data/x is not there"):
            met(listener, {"fail": "/data/x"})
        with pytest.raises(Refused, match="more than 1 GiB"):
            begun_with(listener, {"f" * 32: 1 << 40})
        for blobs in ({"f": 1}, {"f" * 32: -1}, {"f" * 32: "many"}, {"f" * 32: True}):
            with pytest.raises(Refused, match="a blob"):
                begun_with(listener, blobs)
        assert met(listener)


def begun_with(listener: Listener, sizes: dict[str, Any]) -> None:
    made = dialing.Dial(listener.address, OURS, "keep", {})
    made._hello["blobs"] = sizes
    while made.advance() is None:
        poll = select.poll()
        poll.register(made.fileno(), select.POLLOUT if made.wants_write else select.POLLIN)
        poll.poll(5000)


@pytest.mark.parametrize("change", [
    {"tundish": "99.0"}, {"python": "3.99"}, {"numpy": "9.9"}, {"protocol": PROTOCOL + 1}, {"protocol": None}
])  # fmt: skip
def test_other_versions_are_refused_with_both(change: dict[str, Any]) -> None:
    ours = {**versions(), "protocol": PROTOCOL}
    with listening_to(Keeping()) as listener:
        made = dialing.Dial(listener.address, OURS, "keep", {})
        made._hello.update(change)
        with pytest.raises(Refused) as caught:
            through(made)
        for name, theirs in change.items():
            assert str(theirs) in str(caught.value)
            assert str(ours[name]) in str(caught.value)
        assert "install" in str(caught.value)
        assert met(listener, {"a field of the next version": 1})


def through(made: dialing.Dial) -> Any:
    while (result := made.advance()) is None:
        poll = select.poll()
        poll.register(made.fileno(), select.POLLOUT if made.wants_write else select.POLLIN)
        poll.poll(5000)
    return result


SCANS = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n" + bytes(100),
    "zeros": bytes(1 << 20),
    "no proof": MAGIC + bytes(64),
    "own nonce, no proof": MAGIC + bytes(32) + b"x" * 32,
    "a pickle": b"\x80\x05" + bytes(100),
}


@pytest.mark.parametrize("what", SCANS)
def test_strangers_are_refused(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that they say is read beyond a fixed number of bytes, and the log has it once."""
    role = Keeping()
    with caplog.at_level(logging.WARNING), listening_to(role) as listener:
        for _ in range(20):
            with socket.create_connection(listener.address) as sock, contextlib.suppress(OSError):
                sock.sendall(SCANS[what])
                assert is_closed(sock)
        assert met(listener)

    assert len(caplog.records) == 1
    assert "127.0.0.1" in caplog.text
    assert len(role.met) == 1


def test_a_proof_that_comes_back_is_none() -> None:
    with listening_to(Keeping()) as listener, socket.create_connection(listener.address) as sock:
        with contextlib.suppress(OSError):
            while data := sock.recv(4096):
                sock.sendall(data)
        assert met(listener)


def test_a_proof_of_another_connection_is_none() -> None:
    """One that was heard on the wire cannot be used again: the listener's nonce is new each time."""
    heard = []
    with listening_to(Keeping()) as listener:
        with socket.create_connection(listener.address) as sock:
            sock.setblocking(False)
            recording = Recording(sock)
            finish(prove(recording, TOKEN, "x", dials=True), sock, 5)
            heard = recording.sent
        with socket.create_connection(listener.address) as sock:
            sock.sendall(b"".join(heard))
            received = b""
            with contextlib.suppress(OSError):
                while data := sock.recv(4096):
                    received += data
    assert len(heard) == 2
    assert received[48:] == hashlib.sha256(b"tundish: wrong token").digest()


class Recording:
    def __init__(self, sock: socket.socket) -> None:
        self.recv_into, self._send, self.sent = sock.recv_into, sock.send, list[bytes]()

    def send(self, data: Any, flags: int = 0) -> int:
        self.sent.append(bytes(data))
        return self._send(data, flags)


def test_wrong_token() -> None:
    with listening_to(Keeping()) as listener:
        with pytest.raises(Refused, match=r"does not know the token.*XDG_RUNTIME_DIR"):
            dial(listener.address, OTHERS, "keep", {})
        assert met(listener)


HELLOS = {
    "endless": b"\xff" * 4 + bytes(1 << 20),
    "one byte too long": (MOST_JSON + 1).to_bytes(4, "big"),
    "no JSON": framed({})[:4] + b"{]",
    "nested deep": (60_000).to_bytes(4, "big") + b"[" * 60_000,
    "objects nested deep": (60_000).to_bytes(4, "big") + b'{"a":' * 12_000,
    "no text": (4).to_bytes(4, "big") + b"\xff\xfe\xff\xfe",
    "a number of many digits": (50_000).to_bytes(4, "big") + b"9" * 50_000,
    "empty": framed({}),
    "a role that is a list": framed({**versions(), "protocol": PROTOCOL, "role": [[]]}),
    "an ask that is a list": framed({**versions(), "protocol": PROTOCOL, "role": "keep", "ask": []}),
    "blobs that are a number": framed(
        {**versions(), "protocol": PROTOCOL, "role": "keep", "blobs": 5}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HELLOS)
def test_hostile_hello(what: str, caplog: pytest.LogCaptureFixture) -> None:
    role = Keeping()
    with caplog.at_level(logging.WARNING), listening_to(role) as listener:
        for _ in range(3):
            with socket.create_connection(listener.address) as sock:
                sock.setblocking(False)
                finish(prove(sock, TOKEN, "x", dials=True), sock, 5)
                with contextlib.suppress(OSError):
                    finish(give(sock, HELLOS[what]), sock, 5)
                assert is_closed(sock)
        assert met(listener)

    assert len(caplog.records) == 1
    assert len(role.met) == 1


def conversation(listener: Listener, cut: int, kind: str) -> bool:
    """Dial, and end after so many bytes; return True if that was all."""
    with socket.create_connection(listener.address) as sock:
        sock.setblocking(False)
        data = os.urandom(100)
        sizes = {digest_of(data): 100}
        hello = {**versions(), "protocol": PROTOCOL, "role": "keep", "blobs": sizes}
        left = Leaving(sock, cut)
        try:
            finish(prove(left, TOKEN, "x", dials=True), sock, 5)
            finish(give(left, framed(hello)), sock, 5)
            finish(hear(sock), sock, 5)
            finish(give(left, data), sock, 5)
        except EOFError:
            if kind == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
    return True


class Leaving:
    """A socket that takes so many bytes and no more."""

    def __init__(self, sock: socket.socket, cut: int) -> None:
        self.recv_into, self._send, self._left = sock.recv_into, sock.send, cut

    def send(self, data: Any, flags: int = 0) -> int:
        if not self._left:
            raise EOFError
        sent = self._send(data[: self._left], flags)
        self._left -= sent
        return sent


@pytest.mark.parametrize("kind", ["close", "reset"])
def test_cut_at_every_byte(kind: str) -> None:
    role = Keeping()
    with listening_to(role) as listener:
        cut = 0
        while not conversation(listener, cut, kind):
            cut += 1
        assert cut > 250
        assert met(listener)
        until(lambda: not listener._incoming)


def test_slow_drip_and_silence_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_PATIENCE_S", 0.3)
    with listening_to(Keeping()) as listener:
        silent = socket.create_connection(listener.address)
        drip = socket.create_connection(listener.address)
        began = time.monotonic()
        with silent, drip:
            drip.setblocking(False)
            with contextlib.suppress(OSError):
                for byte in MAGIC + bytes(32):
                    drip.send(bytes([byte]))
                    poll = select.poll()
                    poll.register(drip, select.POLLHUP | LEFT)
                    if poll.poll(50):
                        break
            assert time.monotonic() - began < 2
            assert is_closed(silent, 5)
        assert met(listener)


LEFT = select.POLLRDHUP


@pytest.fixture
def _descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_descriptors")
def test_a_thousand_idle_connections(caplog: pytest.LogCaptureFixture) -> None:
    """They are bounded in number and memory, logged once, and others are served meanwhile."""
    with caplog.at_level(logging.WARNING), listening_to(Keeping()) as listener:
        process = psutil.Process()
        assert met(listener)
        before = process.memory_info().rss
        with contextlib.ExitStack() as idle:
            for _ in range(1000):
                idle.enter_context(socket.create_connection(listener.address))
            took = []
            for _ in range(5):
                began = time.monotonic()
                assert met(listener)
                took.append(time.monotonic() - began)
            assert len(listener._incoming) <= listening._MOST_UNPROVEN
            assert process.memory_info().rss - before < 16 << 20
            assert min(took) < 0.5
    assert len([each for each in caplog.records if "oldest" in each.message]) == 1


LISTENER = """
import os, resource, sys, threading, time
from tundish.loader.service.connections.credentials import Credentials
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.connections.roles import Role
class Welcome(Role):
    def welcome(self, accepted): return {}
    def begin(self, accepted): accepted.socket.close()
listener = Listener("127.0.0.1", 0, Credentials(sys.argv[1].encode()), {"keep": Welcome()})
held = []
def take_all():
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
def told():
    for line in sys.stdin:
        if line.strip() == "free":
            while held:
                os.close(held.pop())
        print(time.process_time(), flush=True)
take_all()
print(listener.address[1], flush=True)
threading.Thread(target=told, daemon=True).start()
listener.serve()
"""


def ask(process: subprocess.Popen[str], what: str) -> float:
    """Tell the listener's process something; return its CPU seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def test_without_descriptors_it_does_not_spin_and_serves_again() -> None:
    """All that its process may have are taken by somebody else, and given back."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, TOKEN.decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process, contextlib.ExitStack() as ending:
        ending.callback(process.kill)
        address = ("127.0.0.1", int(process.stdout.readline()))
        with contextlib.ExitStack() as idle:
            for _ in range(100):
                idle.enter_context(socket.create_connection(address))
            before = ask(process, "time")
            assert not select.select([process.stdout], [], [], 1.0)[0]  # a second goes by
            assert ask(process, "time") - before < 0.2
            ask(process, "free")
            dial(address, OURS, "keep", {}, timeout_s=20).socket.close()
        process.stdin.close()
        process.terminate()
        told = process.stderr.read()
    assert told.count("cannot accept connections") == 1, told
    assert "ulimit -n" in told


def test_a_role_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Role):
        def welcome(self, accepted: Accepted) -> dict[str, Any]:
            raise ZeroDivisionError("of the role")

    roles = {"keep": Keeping(), "broken": Broken()}
    with Listener("127.0.0.1", 0, OURS, roles) as listener:
        listener.start()
        with pytest.raises(ConnectionError):
            dial(listener.address, OURS, "broken", {})
        assert met(listener)
    assert "ZeroDivisionError" in caplog.text


def test_a_port_that_is_taken() -> None:
    shown = r"cannot listen on 127\.0\.0\.1:\d+: Address already"
    with listening_to(Keeping()) as listener, pytest.raises(OSError, match=shown):
        Listener(*listener.address, OURS, {})


def test_closing_ends_everything() -> None:
    with listening_to(Keeping()) as listener:
        sock = socket.create_connection(listener.address)
        assert sock.recv(48)
    with sock:
        assert is_closed(sock)
    listener.close()
    with Listener("127.0.0.1", 0, OURS, {}) as listener:
        pass  # never served


def test_what_another_thread_asked_for_before_the_end_is_done() -> None:
    """As a job does that hangs up, just before its listener is closed."""
    called: list[int] = []
    with contextlib.closing(Loop()) as loop:
        loop.soon(lambda: called.append(1))
        loop.stop()
        loop.run()
    assert called == [1]


def test_it_may_be_closed_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a signal: who closes it waits for its thread, which may not have started yet."""
    listener = Listener("127.0.0.1", 0, OURS, {})
    start, problems = threading.Thread.start, list[Exception]()

    def close() -> None:
        try:
            listener.close()
        except Exception as error:  # noqa: BLE001 - shown below
            problems.append(error)

    closer = threading.Thread(target=close)

    def start_late(thread: threading.Thread) -> None:
        start(closer)
        closer.join(0.1)  # it ends now only if it does not wait
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    listener.start().join()
    closer.join()
    assert not problems
    with pytest.raises(RuntimeError, match="was closed"):
        listener.start()


def test_it_listens_on_ipv6_as_well() -> None:
    try:
        listener = Listener("::1", 0, OURS, {"keep": Keeping()})
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        listener.start()
        assert met(listener)
