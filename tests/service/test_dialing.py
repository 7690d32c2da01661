"""Dialling: never waits, ends in time, and believes nobody who does not know the token."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import select
import socket
import threading
import time
from typing import Any

import pytest
from tests.service.listeners import OTHERS, OURS, TOKEN, answering, dial, free_port

from tundish.loader.service.connections import dialing
from tundish.loader.service.connections.dialing import Dial, Dialed, Refused
from tundish.loader.service.connections.handshake import (
    MAGIC,
    digest_of,
    finish,
    framed,
    hear,
    is_silent,
    prove,
    take,
    tell,
    tune,
)


def proven(connection: socket.socket) -> dict[str, Any]:
    """Do what a listener does, up to HELLO."""
    connection.setblocking(False)
    finish(prove(connection, TOKEN, "a dialer", dials=False), connection, 5)
    hello: dict[str, Any] = finish(hear(connection), connection, 5)
    return hello


def say(connection: socket.socket, what: dict[str, Any]) -> None:
    finish(tell(connection, what), connection, 5)


def test_blobs_that_are_wanted_are_sent() -> None:
    blobs = {digest_of(data): data for data in (b"known", b"x" * 3_000_000, b"")}
    got: list[Any] = []

    def behave(connection: socket.socket) -> None:
        hello = proven(connection)
        got.append(hello)
        wanted = list(blobs)[1:]
        say(connection, {"wait": True, "new": "fields are left alone"})
        say(connection, {"want": wanted, "new": 1})
        got.append([finish(take(connection, len(blobs[name])), connection, 5) for name in wanted])
        say(connection, {"answer": {"agent": "a"}, "new": 1})
        connection.settimeout(5)
        got.append(connection.recv(100))

    with answering(behave) as address:
        dialed = dial(address, OURS, "seat", {"threads": 2}, blobs)
        dialed.socket.send(b"the role's own")
        assert not dialed.socket.getblocking()
        dialed.socket.close()

    hello, sent, rest = got
    assert dialed.answer == {"agent": "a"}
    assert (hello["role"], hello["ask"]) == ("seat", {"threads": 2})
    assert hello["blobs"] == {name: len(data) for name, data in blobs.items()}
    assert sent == list(blobs.values())[1:]
    assert rest == b"the role's own"


def test_nothing_waits() -> None:
    """Each step of a dial takes no time, though the other end takes a while for each of its own."""
    steps = threading.Semaphore(0)

    def behave(connection: socket.socket) -> None:
        for step in (
            lambda: proven(connection),
            lambda: say(connection, {"want": []}),
            lambda: say(connection, {"answer": {}}),
        ):
            steps.acquire(timeout=10)
            step()

    with answering(behave) as address:
        made = Dial(address, OURS, "seat", {})
        fileno, result, longest, rounds = made.fileno(), None, 0.0, 0
        while result is None:
            began = time.thread_time()
            result = made.advance()
            longest = max(longest, time.thread_time() - began)
            rounds += 1
            assert result is not None or made.fileno() == fileno
            poll = select.poll()
            poll.register(fileno, select.POLLOUT if made.wants_write else select.POLLIN)
            if result is None and not poll.poll(20):
                steps.release()  # the other end goes on only now: this one would have waited
        assert result.socket.fileno() == fileno
        result.socket.close()

    assert rounds < 50
    assert longest < 0.1


def test_versions_of_both_ends_are_told() -> None:
    def behave(connection: socket.socket) -> None:
        hello = proven(connection)
        say(connection, {"refused": f"you have {hello['python']}"})

    with answering(behave) as address, pytest.raises(Refused, match=r"you have 3\.\d+") as caught:
        dial(address, OURS, "seat", {})

    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert f":{address[1]} refused" in str(again)


@pytest.mark.parametrize("known", [True, False])
def test_wrong_token(known: bool) -> None:
    """Who does not know it is refused, by the dialer as well."""

    def behave(connection: socket.socket) -> None:
        connection.setblocking(False)
        finish(prove(connection, TOKEN if known else OTHERS.token, "x", dials=False), connection, 5)

    with answering(behave) as address, pytest.raises(Refused, match="token") as caught:
        dial(address, OTHERS if known else OURS, "seat", {})
    assert "TUNDISH_SERVICE_TOKEN_FILE" in str(caught.value)


def test_an_impostor_who_lets_everybody_in() -> None:
    """A listener that takes any proof and gives none of its own does not hear HELLO."""
    heard = []

    def behave(connection: socket.socket) -> None:
        connection.sendall(MAGIC + os.urandom(32))
        received = b""
        while len(received) < 80:
            received += connection.recv(100)
        connection.sendall(os.urandom(32))
        heard.append(received + connection.recv(100_000))

    with answering(behave) as address, pytest.raises(Refused, match="does not know the token"):
        dial(address, OURS, "seat", {"secret": 1})
    assert len(heard[0]) == 80


def test_own_bytes_that_come_back_are_no_proof() -> None:
    def echo(connection: socket.socket) -> None:
        while data := connection.recv(4096):
            connection.sendall(data)

    with answering(echo) as address, pytest.raises(Refused, match="does not know the token"):
        dial(address, OURS, "seat", {})


def test_own_proof_for_another_dialer_is_no_proof() -> None:
    """Two dialers that are connected to each other, by somebody who knows nothing, refuse each other."""
    first, second = socket.socketpair()
    first.setblocking(False)
    second.setblocking(False)
    with first, second:
        steps = [prove(end, TOKEN, "x", dials=True) for end in (first, second)]
        with pytest.raises(Refused, match="does not know the token"):
            alternate(steps)


def alternate(steps: list[Any]) -> None:
    for _ in range(20):
        for each in steps:
            next(each)


STRANGERS = {
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + bytes(100),
    "an ssh server": b"SSH-2.0-OpenSSH_9.6\r\n" + bytes(100),
    "TLS": b"\x15\x03\x01\x00\x02\x02\x16" + bytes(100),
    "noise": bytes(range(200)),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers(who: str) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(STRANGERS[who])
        connection.recv(100)

    with answering(behave) as address, pytest.raises(Refused, match=r"not of tundish's|speaks TLS"):
        dial(address, OURS, "seat", {})


def whole() -> bytes:
    """What a listener says to a dialer, from its nonce on; the proof in it is of another connection."""
    return MAGIC + bytes(64) + framed({"want": []}) + framed({"answer": {}})


@pytest.mark.parametrize("cut", range(0, 49, 3))
def test_cut_before_the_proof(cut: int) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(whole()[:cut])

    with (
        answering(behave) as address,
        pytest.raises(ConnectionError, match=r"closed the connection|reset|Broken pipe"),
    ):
        dial(address, OURS, "seat", {})


@pytest.mark.parametrize("kind", ["close", "reset"])
def test_cut_at_every_byte_after_it(kind: str) -> None:
    said = framed({"want": []}) + framed({"answer": {}})
    cuts = iter(range(len(said)))

    def behave(connection: socket.socket) -> None:
        proven(connection)
        connection.settimeout(5)
        connection.sendall(said[: next(cuts)])
        if kind == "reset":
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )  # on, no time

    with answering(behave) as address:
        for _ in range(len(said)):
            with pytest.raises(OSError, match=r"while waiting for the answer of 127\.0\.0\.1"):
                dial(address, OURS, "seat", {})


HOSTILE = {
    "endless": b"\xff\xff\xff\xff" + bytes(1 << 20),
    "no JSON": (5).to_bytes(4, "big") + b"{'a':",
    "no text": (5).to_bytes(4, "big") + b"\xff\xfe\xc0\xc1\x80",
    "nested deep": (60_000).to_bytes(4, "big") + b"[" * 60_000,
    "a list": (2).to_bytes(4, "big") + b"[]",
    "nothing": bytes(4),
    "another frame": framed({"hello": 1}),
    "wants what there is not": framed({"want": ["x"]}),
    "wants a number": framed({"want": 5}),
    "no answer": framed({"want": []}) + framed({"answer": {}, "session": "zz"}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_frames(what: str) -> None:
    def behave(connection: socket.socket) -> None:
        proven(connection)
        connection.settimeout(5)
        connection.sendall(HOSTILE[what])
        connection.recv(10)

    with answering(behave) as address, pytest.raises((Refused, OSError)):
        dial(address, OURS, "seat", {})


def test_nobody_there() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{port}; nothing listens there"):
        dial(("127.0.0.1", port), OURS, "seat", {})


def test_no_such_host() -> None:
    with pytest.raises(OSError, match=r"no-such-host\.invalid"):
        dial(("no-such-host.invalid", 1), OURS, "seat", {})


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_PATIENCE_S", 0.2)

    def listen(connection: socket.socket) -> None:
        while connection.recv(1000):
            continue

    with answering(listen) as address:
        made = Dial(address, OURS, "seat", {})
        with pytest.raises(TimeoutError, match=r"no answer within 0.2 s, while proving"):
            to_the_end(made)
        assert made.fileno() == -1


def to_the_end(made: Dial) -> None:
    while made.advance() is None:
        poll = select.poll()
        poll.register(made.fileno(), select.POLLOUT if made.wants_write else select.POLLIN)
        poll.poll(max(0.0, made.deadline - time.monotonic()) * 1000 + 1)


def test_one_who_asks_late_gets_what_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer does other things between two calls, for longer than the deadline."""
    monkeypatch.setattr(dialing, "_PATIENCE_S", 0.05)

    def behave(connection: socket.socket) -> None:
        proven(connection)
        say(connection, {"want": []})
        say(connection, {"answer": {"fine": True}})

    with answering(behave) as address:
        made = Dial(address, OURS, "seat", {})
        while (result := made.advance()) is None:
            poll = select.poll()
            poll.register(made.fileno(), select.POLLOUT if made.wants_write else select.POLLIN)
            assert poll.poll(10_000)
            until(made.deadline)
        assert result.answer == {"fine": True}
        result.socket.close()


def until(when: float) -> None:
    while (left := when - time.monotonic()) >= 0:
        select.select([], [], [], left + 0.001)


def test_slow_drip_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that come one by one do not move the deadline."""
    monkeypatch.setattr(dialing, "_PATIENCE_S", 0.3)
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        for byte in MAGIC + bytes(32):
            connection.sendall(bytes([byte]))
            if done.wait(0.02):
                return

    with answering(drip) as address:
        with pytest.raises(TimeoutError):
            dial(address, OURS, "seat", {})
        done.set()


def test_a_port_that_is_connected_to_itself() -> None:
    """A free port may be drawn for the dialer's own end: TCP then connects it to itself."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        sock.setblocking(False)
        with pytest.raises(Refused, match="does not know the token"):
            finish(prove(sock, TOKEN, "x", dials=True), sock, 5)


def test_what_was_given_up_is_closed() -> None:
    with answering(lambda connection: connection.recv(1000)) as address:
        made = Dial(address, OURS, "seat", {})
        made.advance()
        made.close()
        made.close()
        assert made.fileno() == -1


def test_an_end_that_does_not_read_is_not_silent() -> None:
    """As a trainer that writes a checkpoint; nothing may end its workers' connections for that."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0],
    ):
        tune(ours)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))
        assert not is_silent(ours, patience_s=0.0)


def test_results_are_values() -> None:
    with socket.socket() as sock:
        assert Dialed(sock, {}).answer == {}
    assert Refused("a:1", "b").errno == errno.ECONNREFUSED
