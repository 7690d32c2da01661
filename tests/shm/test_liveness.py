"""Waiting: data, room and deaths are noticed by one wait, each by its own name."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tundish.shm.channel import Channel
from tundish.shm.liveness import Poller, describe_exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.shm.conftest import Run

DEADLINE_S = 30

has_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pidfd here")


@pytest.fixture(params=["epoll", "poll"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Poller]:
    monkeypatch.setenv("TUNDISH_PORTABLE", "1" if request.param == "poll" else "0")
    poller = Poller()
    if sys.platform == "linux":
        assert isinstance(poller._poll, select.epoll) == (request.param == "epoll")
    monkeypatch.delenv("TUNDISH_PORTABLE")
    yield poller
    poller.close()


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ends = Channel.pair()
    ends[0].set_nonblocking()
    yield ends
    for end in ends:
        end.close()


def test_a_message_is_noticed(poller: Poller, ends: tuple[Channel, Channel]) -> None:
    poller.register(ends[0].fileno(), ("worker", 3))
    assert poller.poll(0) == []
    assert poller.poll(0.001) == []
    ends[1].send(b"hello")
    assert poller.poll(DEADLINE_S) == [(("worker", 3), True, False)]
    assert poller.poll() == [(("worker", 3), True, False)]  # until it is read
    ends[0].recv_all()
    assert poller.poll(0) == []


def test_room_is_noticed_when_asked_for(poller: Poller, ends: tuple[Channel, Channel]) -> None:
    poller.register(ends[0].fileno(), "a")
    assert poller.poll(0) == []
    poller.modify(ends[0].fileno(), "b", write=True)
    assert poller.poll(DEADLINE_S) == [("b", False, True)]
    ends[1].send(b"hello")
    assert poller.poll(DEADLINE_S) == [("b", True, True)]
    while ends[0].send(bytes(4096)):
        pass
    assert poller.poll(DEADLINE_S) == [("b", True, False)]
    poller.modify(ends[0].fileno(), "c")
    ends[0].recv_all()
    assert poller.poll(0) == []


def test_writing_can_be_waited_for_from_the_start(
    poller: Poller, ends: tuple[Channel, Channel]
) -> None:
    poller.register(ends[0].fileno(), "a", write=True)
    assert poller.poll(DEADLINE_S) == [("a", False, True)]


@pytest.mark.parametrize("unread", [True, False])
def test_an_end_is_something_to_read(
    poller: Poller, ends: tuple[Channel, Channel], *, unread: bool
) -> None:
    if unread:
        ends[0].send(b"never read")
    poller.register(ends[0].fileno(), "a")
    ends[1].close()
    ((token, readable, _),) = poller.poll(DEADLINE_S)
    assert (token, readable) == ("a", True)


def test_what_is_no_longer_watched_is_not_reported(
    poller: Poller, ends: tuple[Channel, Channel]
) -> None:
    poller.register(ends[0].fileno(), "a")
    ends[1].send(b"hello")
    poller.unregister(ends[0].fileno())
    poller.unregister(ends[0].fileno())
    assert poller.poll(0) == []
    poller.register(ends[0].fileno(), "b")
    assert poller.poll(0) == [("b", True, False)]


def test_a_descriptor_watched_twice_is_a_mistake(
    poller: Poller, ends: tuple[Channel, Channel]
) -> None:
    poller.register(ends[0].fileno(), "a")
    if isinstance(poller._poll, select.epoll):
        with pytest.raises(FileExistsError):
            poller.register(ends[0].fileno(), "b")


@has_pidfd
def test_a_death_is_noticed_by_the_same_wait(poller: Poller, ends: tuple[Channel, Channel]) -> None:
    # The child holds a copy of the worker's end, so the channel alone would never tell.
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
    ) as child:
        sentinel = os.pidfd_open(child.pid)
        poller.register(ends[0].fileno(), "data")
        poller.register(sentinel, "death")
        assert poller.poll(0) == []
        ends[1].send(b"hello")
        child.kill()
        assert select.select([sentinel], [], [], DEADLINE_S)[0]
        found = dict.fromkeys(token for token, _, _ in poller.poll(DEADLINE_S))
        assert set(found) == {"data", "death"}
        poller.unregister(sentinel)
        os.close(sentinel)


@pytest.mark.parametrize(
    "change",
    [
        'poller.register(other.fileno(), "child", True)',
        'poller.modify(ours.fileno(), "child", True)',
        "poller.unregister(ours.fileno())",
        "poller.close()",
    ],
)
def test_a_forked_child_changes_nothing_for_its_parent(run: Run, change: str) -> None:
    said = run(
        """
        import os, socket, sys
        from tundish.shm.liveness import Poller

        (ours, theirs), (other, _) = socket.socketpair(), socket.socketpair()
        poller = Poller()
        poller.register(ours.fileno(), "data")
        if (child := os.fork()) == 0:
            exec(sys.argv[1])
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(poller._poll.poll(0))
        theirs.send(b"x")
        print(poller.poll(30))
        """,
        change,
    )
    assert said.splitlines() == ["[]", "[('data', True, False)]"]


def test_an_error_is_something_to_read(poller: Poller) -> None:
    reading, writing = os.pipe()
    poller.register(writing, "a")
    assert poller.poll(0) == []
    os.close(reading)
    assert poller.poll(DEADLINE_S) == [("a", True, False)]
    poller.unregister(writing)
    os.close(writing)


def test_the_timeout_is_in_seconds(poller: Poller, ends: tuple[Channel, Channel]) -> None:
    poller.register(ends[0].fileno(), "a")
    start = time.monotonic()
    assert poller.poll(0.03) == []
    assert 0.025 < time.monotonic() - start < DEADLINE_S


def test_closing_ends_a_wait_in_another_thread(
    poller: Poller, ends: tuple[Channel, Channel]
) -> None:
    poller.register(ends[0].fileno(), "never")
    held = psutil.Process().num_fds()
    begun = threading.Event()
    found: list[Any] = []

    def wait() -> None:
        begun.set()
        try:
            found.append(poller.poll())
        except ValueError as error:  # closed before it waited
            found.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait()
    poller.unregister(ends[0].fileno())
    poller.close()
    waiting.join(5)

    assert found in ([[]], ["nothing is waited for any more: it is closed"])
    with pytest.raises(ValueError, match="it is closed"):
        poller.poll(0.0)
    assert psutil.Process().num_fds() <= held


def test_closing_ends_a_wait_that_a_signal_interrupted(poller: Poller) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: poller.close())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert poller.poll() == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_closing_twice_is_allowed(poller: Poller) -> None:
    poller.close()
    poller.close()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-signal.SIGKILL, "SIGKILL (9)"),
        (-signal.SIGSEGV, "SIGSEGV (11)"),
        (-63, "signal 63"),
    ],
)
def test_an_exit_is_described(code: int, text: str) -> None:
    assert describe_exit(code) == text
