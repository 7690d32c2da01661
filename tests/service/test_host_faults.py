"""What dies, lags or lies: no consumer of a host process loses an element, gets one twice, or sees a torn one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.service.hosted import (
    Consumer,
    checked,
    descriptors,
    end_of,
    firsts,
    host_pids,
    hosted,
    is_torn,
)
from tests.service.waiting import until

import tundish as td
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.service.connections.handshake import PROTOCOL, versions
from tundish.loader.service.host import link
from tundish.loader.service.host.folder import HostFolder, packet_socket
from tundish.loader.service.host.host import host
from tundish.loader.service.host.wire import LARGEST, receive_packet, send_told

pytestmark = pytest.mark.usefixtures("forks_hosts")

HELLO = {"do": "hello", "protocol": PROTOCOL, **versions()}


def batches(elements: int) -> list[list[int]]:
    """Return what the dataset's batches are."""
    return [list(range(first, first + 4)) for first in range(0, elements, 4)]


def reading(name: str, elements: int, **given: Any) -> Iterator[Any]:
    """Yield each batch's numbers, and whether it is torn, holding a few batches."""
    held: list[Any] = []
    for batch in hosted(name, elements, window="4 MB", **given):
        held = [*held[-2:], batch]
        yield firsts(batch), any(map(is_torn, held))


def whole(elements: int) -> list[Any]:
    """Return what such a consumer says."""
    return [(batch, False) for batch in batches(elements)]


@pytest.mark.parametrize("seed", range(3))
def test_consumers_that_are_killed_harm_no_others(seed: int) -> None:
    rng = random.Random(seed)
    stays = [Consumer(reading, "killed", 240, workers=seed or None) for _ in range(2)]
    for _ in range(6):
        dies = Consumer(reading, "killed", 240)
        for _ in range(rng.randrange(6)):
            with contextlib.suppress(EOFError):
                dies.next()
        dies.kill()
        dies.wait()

    assert [each.rest() for each in stays] == [whole(240)] * 2


@pytest.mark.parametrize("seed", range(3))
def test_the_host_process_may_be_killed_at_any_time(seed: int, forks_hosts: Path) -> None:
    rng = random.Random(seed)
    workers = 1 if seed == 0 else None  # which begin a second later
    consumers = [Consumer(reading, "dying", 160, workers=workers) for _ in range(3)]
    found: list[list[Any]] = [[] for _ in consumers]
    for _ in range(3):
        for each, had in zip(consumers, found, strict=True):
            for _ in range(rng.randrange(8)):
                had.append(each.next())
        for pid in host_pids(forks_hosts):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    found = [had + each.rest() for each, had in zip(consumers, found, strict=True)]

    assert found == [whole(160)] * 3


def test_states_are_known_when_the_host_process_is_dead() -> None:
    plain = iter(checked())
    with iter(hosted("dead")) as it:
        for _ in range(3):
            next(it), next(plain)
        pid = it.host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: end_of(pid), "killed")
        assert it.state_dict() == plain.state_dict()
    plain.close()


def test_small_elements_go_on_within_a_parcel() -> None:
    ds = td.Dataset.range(500).shuffle(64, seed=1)
    expected = [int(x) for x in ds.iterator(iteration=0)]
    found = []
    with iter(host(ds, "within", linger=0.2)) as it:
        for step, x in enumerate(it):
            found.append(int(x))
            if step in (70, 71, 200) and it.host_pid is not None:
                pid = it.host_pid
                os.kill(pid, signal.SIGKILL)
                until(partial(end_of, pid), "killed")
                it.state_dict()  # is computed here, and the element after it is the next
    assert found == expected


def test_a_packet_that_is_lost_for_want_of_a_descriptor_is_an_error_and_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packets = [0]

    def lossy(sock: socket.socket) -> tuple[bytes, list[int]]:
        data, fds = receive_packet(sock)
        packets[0] += 1
        if packets[0] % 7 == 5:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "no descriptor is left")
        return data, fds

    errors, found = 0, []
    with iter(hosted("lossy", 200)) as it:
        found += [firsts(next(it))]  # the first packets are of the greeting
        monkeypatch.setattr(link, "receive_packet", lossy)
        while True:
            try:
                for batch in it:
                    found.append(firsts(batch))
                break
            except OSError:
                errors += 1
    assert found == batches(200)
    assert errors


def test_a_state_whose_answer_is_lost_is_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [False]
    receive = link.HostLink.receive

    def without_anchors(self: link.HostLink) -> tuple[Any, ...]:
        message = receive(self)
        return (*message[:3], None) if message[0] == "parcel" else message

    def lossy(sock: socket.socket) -> tuple[bytes, list[int]]:
        data, fds = receive_packet(sock)
        if not lost[0]:
            lost[0] = True
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "no descriptor is left")
        return data, fds

    # A parcel may bring the position after it, so that nothing would be asked for.
    monkeypatch.setattr(link.HostLink, "receive", without_anchors)
    plain = iter(checked(200))
    with iter(hosted("unanswered", 200)) as it:
        for _ in range(3):
            next(it), next(plain)
        monkeypatch.setattr(link, "receive_packet", lossy)
        assert it.state_dict() == plain.state_dict()
        assert lost[0]
        assert [firsts(batch) for batch in it] == batches(200)[3:]
    plain.close()


def test_descriptors_that_do_not_fit_are_an_error() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, scratch() as fd:
        send_told(ours, {"do": "x"}, (fd, fd, fd))
        free = lowest_free()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        try:
            with pytest.raises(OSError, match="no descriptor is left"):
                receive_packet(theirs)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert lowest_free() == free


@contextlib.contextmanager
def scratch() -> Iterator[int]:
    fd = scratch_file(b"x")
    try:
        yield fd
    finally:
        os.close(fd)


def lowest_free() -> int:
    """Return the number that the next descriptor would have."""
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_a_host_process_that_always_dies_is_an_error() -> None:
    def deadly(x: Any) -> Any:
        if x == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with iter(host(td.Dataset.range(9).map(deadly), "deadly", linger=0.1)) as it:
        found = [int(next(it)) for _ in range(0)]
        with pytest.raises(ConnectionError, match="has ended 4 times before it gave element"):
            found += [int(x) for x in it]


def test_others_wait_for_one_that_lags() -> None:
    with iter(hosted("lags", 200, window="1 MB")) as slow:
        next(slow)
        fast = Consumer(reading_slowly, "lags", 200)
        others = [fast.next() for _ in range(3)]
        assert [firsts(batch) for batch in slow] == batches(200)[1:]
        assert others + fast.rest() == whole(200)


def reading_slowly(name: str, elements: int) -> Iterator[Any]:
    """Yield what a consumer gets with a small window."""
    for batch in hosted(name, elements, window="1 MB"):
        yield firsts(batch), is_torn(batch)


def test_one_that_lags_and_is_killed_or_stopped_does_not_hold_others_up_for_ever() -> None:
    lagging = Consumer(reading_slowly, "stopped", 200)
    lagging.next()
    os.kill(lagging.pid, signal.SIGSTOP)
    fast = Consumer(reading_slowly, "stopped", 200)
    assert fast.next() == whole(200)[0]
    lagging.kill()
    lagging.wait()
    assert fast.rest() == whole(200)[1:]


def test_one_that_lags_may_skip_and_is_told_how_many() -> None:
    with iter(hosted("skips", 400, window="1 MB", lag="skip")) as slow:
        first = firsts(next(slow))
        fast = Consumer(reading_slowly, "skips", 400)
        assert fast.rest() == whole(400)
        found = [first, firsts(next(slow))]
        while not slow.skipped:
            found.append(firsts(next(slow)))
        state = slow.state_dict()
        left = [firsts(batch) for batch in slow]
        assert len(found) + len(left) + slow.skipped == 100
        assert found + left == sorted(found + left)
    plain = iter(checked(400))
    plain.load_state_dict(state)
    assert [firsts(batch) for batch in plain] == batches(400)[-len(left) :] if left else True


def test_junk_on_the_socket_is_refused_and_harms_nobody(forks_hosts: Path) -> None:
    rng = random.Random(7)
    with iter(hosted("junk", 400, window="2 MB")) as it:
        next(it)
        pid = it.host_pid
        before = descriptors(pid)
        hello = json.dumps(HELLO).encode()
        told: list[bytes] = [
            b"{}",
            b"[]",
            b"\xff\xfe",
            b"[" * 90_000,
            b'{"do":"join"}',
            b'{"do":"took","parcel":1,"free":[]}',
            b'{"do":"took","free":[0]}',
            b'{"do":"state","number":-1}',
            b'{"do":"leave"}',
            b'{"do":"hello"}',
            b'{"do":"hello","protocol":[]}',
            b'{"do":"dataset","digest":1}',
            rng.randbytes(LARGEST),
            *(rng.randbytes(rng.randrange(1, 400)) for _ in range(20)),
            *(hello[:cut] for cut in range(0, len(hello), 9)),
        ]
        for data in told:
            for first in (b"", hello):
                with stranger("junk") as sock:
                    for each in (first, data):
                        with contextlib.suppress(OSError):
                            if each:
                                sock.send(each)
        for asked in (  # type: ignore[var-annotated]
            {},
            [],
            {"stream": 5},
            join(position={"n": "x"}),
            join(iteration="no"),
            join(number=-5, stream="s"),
        ):
            with stranger("junk") as sock:
                sock.send(hello)
                for fd in receive_packet(sock)[1]:
                    os.close(fd)
                fd = scratch_file(json.dumps(asked).encode())
                send_told(sock, {"do": "join"}, (fd, fd, fd))
                os.close(fd)
                with contextlib.suppress(TimeoutError):
                    receive_packet(sock)
        reading, writing = os.pipe()
        with stranger("junk") as sock:
            sock.send(hello)
            send_told(sock, {"do": "join"}, (reading, writing))
        os.close(reading)
        os.close(writing)
        assert [firsts(batch) for batch in it] == batches(400)[1:]
        assert it.host_pid in (pid, None)
        again = hosted("junk", 400, window="2 MB")
        with iter(again) as other:
            next(other)
            assert other.host_pid == pid
            until(lambda: descriptors(pid) <= before + 2, "descriptors are left")


def join(**changed: Any) -> dict[str, Any]:
    """Return what a consumer asks as it joins, with something changed."""
    right = {"iteration": 0, "seed": 0, "graph_seed": None, "position": None, "lag": "wait"}
    return {**right, "stream": None, "number": 0, "anchor": 0, **changed}


@contextlib.contextmanager
def stranger(name: str) -> Iterator[socket.socket]:
    """Connect as nobody does."""
    with HostFolder.open() as folder:
        sock = folder.connect(name)
    assert sock is not None
    with sock:
        sock.settimeout(5.0)
        yield sock


def test_nothing_is_left_in_a_consumer() -> None:
    def held() -> tuple[int, int]:
        return descriptors(None), len(Path("/proc/self/maps").read_text().splitlines())

    ds = hosted("leaks", 40, linger=5.0)
    for batch in ds:
        assert not is_torn(batch)
    del batch
    before = held()
    pid = 0
    for _ in range(20):
        with iter(ds) as it:
            kept = [next(it), next(it)]
            pid = it.host_pid or pid
        del kept
    after = held()
    assert after[0] == before[0]
    assert after[1] <= before[1] + 3
    assert descriptors(pid) < 30
    os.kill(pid, signal.SIGTERM)
    until(lambda: end_of(pid), "ended")
    with iter(hosted("leaks", 40)) as it:
        next(it)


def test_an_iterator_that_has_lost_its_host_process_is_closed_for_good() -> None:
    it = iter(hosted("lost"))
    next(it)
    it._engine._part()  # as after a message that is lost
    assert it.host_pid is None
    it.close()
    before = it.stats.wall_s
    assert it.stats.wall_s == before  # the clock of an open one goes on between two looks


def test_a_killed_host_process_leaves_a_socket_that_its_last_consumer_removes(
    forks_hosts: Path,
) -> None:
    with iter(hosted("left")) as it:
        next(it)
        pid = it.host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: end_of(pid), "killed")
        assert [each.name for each in forks_hosts.iterdir()] == ["left.sock"]
    assert not list(forks_hosts.iterdir())


def test_a_deserted_socket_is_replaced(forks_hosts: Path) -> None:
    with HostFolder.open() as folder:
        folder.listen("deserted").close()
        assert folder.connect("deserted") is None
    with iter(hosted("deserted")) as it:
        assert firsts(next(it)) == batches(40)[0]


def test_the_folder_must_be_this_users_alone(runtime: Path, tmp_path: Path) -> None:
    runtime.mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="mode 755"):
        iter(hosted("open"))
    runtime.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(runtime, 12345, -1)
        with pytest.raises(PermissionError, match="of user 12345"):
            iter(hosted("another"))
    runtime.rmdir()
    runtime.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is a link"):
        iter(hosted("link"))
    runtime.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_process_of_another_user_is_not_trusted(forks_hosts: Path) -> None:
    def listening() -> Iterator[Any]:
        with packet_socket() as listener:
            listener.bind(str(forks_hosts / "trap.sock"))
            os.setuid(12345)
            listener.listen(5)  # now, so the other end is shown this user
            yield "listens"
            sock, _ = listener.accept()
            yield sock.recv(10)

    with HostFolder.open() as folder:
        trap = Consumer(listening)
        trap.next()
        with pytest.raises(PermissionError, match="user 12345's"):
            folder.connect("trap")
        assert trap.rest() == [b""]
        folder.remove("trap")


def test_other_versions_are_refused_by_name(forks_hosts: Path) -> None:
    with iter(hosted("versions")) as it:
        next(it)
        with stranger("versions") as sock:
            send_told(sock, {**HELLO, "numpy": "1.0"})
            data, _ = receive_packet(sock)
            assert b"the other end has numpy 1.0" in data


def test_a_consumer_that_never_introduces_itself_ends_nothing(forks_hosts: Path) -> None:
    silent = [packet_socket() for _ in range(80)]
    with iter(hosted("silent")) as it:
        next(it)
        for sock in silent:
            sock.connect(str(forks_hosts / "silent.sock"))
        assert [firsts(batch) for batch in it] == batches(40)[1:]
    for sock in silent:
        sock.close()


def test_the_host_process_ends_within_a_bound() -> None:
    with iter(hosted("bound", linger=0.3)) as it:
        next(it)
        pid = it.host_pid
    began = time.monotonic()
    assert pid is not None
    until(lambda: end_of(pid), "it ends")
    assert time.monotonic() - began < 5.0
