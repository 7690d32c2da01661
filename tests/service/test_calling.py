"""Calls: answered in any order, repeated when the connection ends, with the handler's errors raised at the caller."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.service.listeners import OTHERS, OURS, answering, dial, free_port
from tests.service.waiting import until

from tundish.errors import SnapshotVersionError
from tundish.loader.service.connections import answering as answers
from tundish.loader.service.connections import calling, dialing
from tundish.loader.service.connections.answering import Calls, Later
from tundish.loader.service.connections.calling import Caller
from tundish.loader.service.connections.credentials import Address
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.connections.mail import encoded

Handler = Callable[..., Any]


@contextlib.contextmanager
def serving(handler: Handler, left: Any = None, *, port: int = 0) -> Iterator[Listener]:
    with Listener("127.0.0.1", port, OURS, {"test": Calls(handler, left)}) as listener:
        listener.start()
        yield listener


def caller(address: Address) -> Caller:
    return Caller(address, OURS, "test")


def echo(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
    return fields, blobs


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
def test_fields_and_blobs_come_back(size: int) -> None:
    blobs = [os.urandom(size), b"", b"x"]
    with serving(echo) as listener, caller(listener.address) as calls:
        for number in range(3):
            answer = calls.call("echo", blobs, number=number, text="ä" * 100)
            assert answer == ({"do": "echo", "number": number, "text": "ä" * 100}, blobs)


@pytest.mark.parametrize(("error", "shown"), [
    (ValueError("no"), "no"),
    (FileNotFoundError(2, "none", "/x"), "/x"),
    (SnapshotVersionError("/x", "2", "1"), "/x"),
])  # fmt: skip
def test_errors_of_the_handler_are_raised_at_the_caller(error: Exception, shown: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    with serving(fail) as listener, caller(listener.address) as calls:
        for _ in range(2):
            with pytest.raises(type(error), match=shown):
                calls.call("x")


def test_an_answer_that_is_no_json_is_an_error() -> None:
    with (
        serving(lambda *_: ({"a": object()}, [])) as listener,
        caller(listener.address) as calls,
        pytest.raises(TypeError, match="JSON"),
    ):
        calls.call("x")


def test_answers_that_come_later_and_in_another_order() -> None:
    waiting: list[Later] = []

    def handle(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        waiting.append(Later())
        if len(waiting) == 3:
            for at, each in enumerate(reversed(waiting)):
                threading.Thread(target=each.answer, args=({"at": at},)).start()
        return waiting[-1]

    with serving(handle) as listener, caller(listener.address) as calls:
        asked = [calls.begin("x") for _ in range(3)]
        until_done(calls, asked)
        assert [each.result()[0]["at"] for each in asked] == [2, 1, 0]


def until_done(calls: Caller, asked: list[Any]) -> None:
    """Go on without waiting but for the descriptor and the deadline."""
    until = time.monotonic() + 20
    while not all(each.done for each in asked):
        calls.advance()
        poll = select.poll()
        if calls.fileno() >= 0:
            poll.register(calls.fileno(), select.POLLOUT if calls.wants_write else select.POLLIN)
        wait_s = min(calls.deadline, until) - time.monotonic()
        if not all(each.done for each in asked):
            poll.poll(max(0.0, wait_s) * 1000)
        assert time.monotonic() < until


def test_a_later_answer_for_one_who_has_left() -> None:
    waiting: list[Later] = []
    left = threading.Event()

    def handle(*_: Any) -> Any:
        waiting.append(Later())
        return waiting[-1]

    with serving(handle, lambda _: left.set()) as listener:
        with caller(listener.address) as calls:
            calls.begin("x")
            until(lambda: went_on(calls) and waiting)
        assert left.wait(10)
        waiting[0].fail(ValueError("nobody hears it"))
        waiting[0].answer({})
        with caller(listener.address) as calls:
            calls.begin("x")
            until(lambda: went_on(calls) and len(waiting) > 1)


def went_on(calls: Caller) -> bool:
    calls.advance()
    return True


def test_what_a_caller_said_last_counts_though_its_answers_cannot_be_sent() -> None:
    """A connection that is closed before its answers were read is reset."""
    said: list[str] = []
    held, goes = threading.Event(), threading.Event()

    def handle(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        said.append(fields["do"])
        return {}, [bytes(64 << 20)] if fields["do"] == "ask" else []

    def hold() -> None:
        held.set()
        goes.wait(10)

    with serving(handle) as listener:
        with dial(listener.address, OURS, "test", {}).socket as sock:
            sock.send(b"".join(encoded({"do": "ask", "call": 1}, [])))
            until(lambda: said)
            listener.loop.soon(hold)
            assert held.wait(10)
            sock.send(b"".join(encoded({"do": "leave", "call": 2}, [])))
        goes.set()
        until(lambda: said == ["ask", "leave"])


def test_each_caller_has_a_number_and_leaves_once() -> None:
    left: list[int] = []

    def who(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        return {"number": number}, []

    with serving(who, left.append) as listener:
        with caller(listener.address) as one, caller(listener.address) as two:
            numbers = [each.call("who")[0]["number"] for each in (one, two, one)]
        until(lambda: len(left) == 2)

    assert numbers[0] == numbers[2] != numbers[1]
    assert sorted(left) == sorted(numbers[:2])


def test_a_listener_that_comes_back() -> None:
    """A call begun while nobody listens is answered when somebody does."""
    port = free_port()
    answers: list[Any] = []

    def ask() -> None:
        with caller(("127.0.0.1", port)) as calls:
            answers.extend(calls.call("echo", number=number) for number in range(2))

    thread = threading.Thread(target=ask)
    thread.start()
    with serving(echo, port=port):
        thread.join(20)
    assert [each[0]["number"] for each in answers] == [0, 1]


def test_an_idle_connection_that_ended_is_made_again() -> None:
    port = free_port()
    with caller(("127.0.0.1", port)) as calls:
        for number in range(3):
            with serving(echo, port=port):
                assert calls.call("echo", again=number != 1, number=number)[0]["number"] == number


def test_a_connection_that_is_cut_at_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller asks again until it has the whole answer, and takes it once."""
    monkeypatch.setattr(calling, "_REDIAL_S", (0.001, 0.002))
    cuts = iter(range(0, 2000, 13))
    seen: list[int] = []

    def count(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        seen.append(number)
        return fields, blobs

    with serving(count) as listener:

        def relay(connection: socket.socket) -> None:
            with socket.create_connection(listener.address) as inner:
                pass_on(connection, inner, next(cuts))

        with answering(relay) as address, caller(address) as calls:
            assert calls.call("echo", [b"x" * 500])[1] == [b"x" * 500]
    assert next(cuts) > 500
    assert len(seen) > 30


def pass_on(outer: socket.socket, inner: socket.socket, allowed: int) -> None:
    """Pass bytes on in both directions, until so many have come from within."""
    poll = select.poll()
    poll.register(outer, select.POLLIN)
    poll.register(inner, select.POLLIN)
    while True:
        for fd, _ in poll.poll(10_000):
            if fd == outer.fileno():
                data = outer.recv(65536)
                inner.sendall(data)
            else:
                data = inner.recv(65536)
                outer.sendall(data[: max(0, allowed)])
                allowed -= len(data)
            if not data or allowed < 0:
                return


def test_a_call_that_must_not_be_repeated() -> None:
    seen = []

    def cut(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        seen.append(fields)
        raise SystemExit  # as a listener that is killed

    listener = Listener("127.0.0.1", 0, OURS, {"test": Calls(cut)})

    def serve() -> None:
        with contextlib.suppress(SystemExit):
            listener.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    with caller(listener.address) as calls, pytest.raises(OSError, match=r"closed|reset"):
        calls.call("x", again=False, timeout_s=10)
    thread.join()
    assert len(seen) == 1


def test_a_call_to_a_machine_that_fell_silent_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel alone would repeat what it has sent for a quarter of an hour."""
    came: list[Later] = []
    silent = [True]
    monkeypatch.setattr(calling, "_LOOK_S", 0.01)
    monkeypatch.setattr(calling, "is_silent", lambda _: silent.pop() if silent else False)

    def handle(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        came.append(Later())
        return came[0] if len(came) == 1 else ({"again": True}, [])

    with serving(handle) as listener, caller(listener.address) as calls:
        assert calls.call("x", timeout_s=20) == ({"again": True}, [])
    assert len(came) == 2


def test_a_caller_whose_machine_fell_silent_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    gone = threading.Event()
    monkeypatch.setattr(answers, "_LOOK_S", 0.01)

    def leaves(number: int) -> None:
        left.append(number)
        gone.set()

    with serving(echo, leaves) as listener, caller(listener.address) as calls:
        calls.call("x")
        monkeypatch.setattr(answers, "is_silent", lambda _: not left)
        assert gone.wait(20)
        assert calls.call("x") == ({"do": "x"}, [])
    assert left[0] == 1


def test_time_runs_out_with_the_reason() -> None:
    port = free_port()
    shown = f":{port} did not answer 'x' within 0.2 s; .*refused"
    with caller(("127.0.0.1", port)) as calls, pytest.raises(TimeoutError, match=shown):
        calls.call("x", timeout_s=0.2)


def test_an_answer_that_nobody_waits_for_any_more() -> None:
    waiting: list[Later] = []

    def handle(fields: dict[str, Any], blobs: list[bytes], number: int) -> Any:
        if fields["do"] == "now":
            return {}, []
        waiting.append(Later())
        return waiting[-1]

    with serving(handle) as listener, caller(listener.address) as calls:
        with pytest.raises(TimeoutError, match="did not answer 'x'"):
            calls.call("x", timeout_s=0.1)
        waiting[0].answer({})
        assert calls.call("now") == ({}, [])


def test_who_does_not_know_the_token_is_refused_at_once() -> None:
    with (
        serving(echo) as listener,
        Caller(listener.address, OTHERS, "test") as calls,
        pytest.raises(Refused, match="token"),
    ):
        calls.call("x")


def test_another_role_is_named() -> None:
    with (
        serving(echo) as listener,
        Caller(listener.address, OURS, "seat") as calls,
        pytest.raises(Refused, match="has no role 'seat', but 'test'"),
    ):
        calls.call("x")


def test_other_versions_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher unpickles nothing, so agents and trainers of other versions of anything are its."""
    old = {"tundish": "0.0.1", "python": "3.10", "numpy": "1.26"}
    monkeypatch.setattr(dialing, "versions", lambda: old)
    with serving(echo) as listener, caller(listener.address) as calls:
        assert calls.call("x") == ({"do": "x"}, [])


HOSTILE = {
    "endless": b"\xff\xff\xff\xff" + bytes(1 << 16),
    "no JSON": (4).to_bytes(4, "big") + b"{{{{",
    "sizes that are none": (16).to_bytes(4, "big") + b'{"blobs": [-50]}',
    "more than there is memory": (32).to_bytes(4, "big") + b'{"blobs": [9999999999999999999]}',
    "half": (100).to_bytes(4, "big") + b"{",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_callers_end_alone(what: str) -> None:
    with serving(echo) as listener, caller(listener.address) as calls:
        assert calls.call("x")
        stream = dial(listener.address, OURS, "test", {}).socket
        stream.setblocking(True)
        with contextlib.suppress(OSError):
            stream.sendall(HOSTILE[what])
            if what != "half":
                assert not stream.recv(10)
        stream.close()
        assert calls.call("x")


CALLER = """
import signal, sys
from tundish.loader.service.connections.calling import Caller
from tundish.loader.service.connections.credentials import Credentials
Caller(("127.0.0.1", int(sys.argv[1])), Credentials(sys.argv[2].encode()), "test").call("x")
signal.pause()
"""


def test_a_killed_caller_is_noticed() -> None:
    called, left = threading.Event(), threading.Event()

    def handle(*_: Any) -> Any:
        called.set()
        return {}, []

    with serving(handle, lambda _: left.set()) as listener:
        arguments = [str(listener.address[1]), OURS.token.decode()]
        with subprocess.Popen([sys.executable, "-c", CALLER, *arguments]) as process:
            assert called.wait(20)
            assert not left.is_set()
            process.kill()
            assert left.wait(5)
