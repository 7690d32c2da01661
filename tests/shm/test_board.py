"""The board: a message that a process publishes is read whole, or not at all, whatever happens to the writer."""

from __future__ import annotations

import errno
import gc
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tundish.loader.run.watching import publishing
from tundish.shm import board as boards
from tundish.shm.board import LARGEST, Board, pids_with_a_board, read_board

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it needs memfd and /proc")

DEADLINE_S = 20
HEADS, HALVES = (64, 128), (4096, 4096 + LARGEST)

# Each message says its number in every one of its bytes' places, and is as long as the number says.
ENDLESS = """
    import sys
    from tundish.shm.board import Board

    board, number = Board(), 0
    board.publish(b"0")
    print("published", flush=True)
    while True:
        number += 1
        board.publish(b"%d," % number * (1 + number % 5000))
"""


@pytest.fixture(autouse=True)
def nothing_told_before() -> None:
    """Take down what pipelines of other tests have told; it comes back when there is news."""
    for telling in publishing._current:
        telling.board.close()


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.close()


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script; whatever is left of it is ended."""
    started: list[subprocess.Popen[str]] = []

    def start_script(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start_script
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a script prints."""
    stream = process.stdout
    assert stream is not None
    return stream.readline().strip()


def links() -> list[str]:
    folder = Path("/proc/self/fd")
    return [str(path.readlink()) for path in folder.iterdir() if path.is_symlink()]


def is_one_message(data: bytes) -> bool:
    """Return True if the data are exactly what `ENDLESS` published at one time."""
    number = int(data.split(b",")[0])
    return data == (b"%d," % number * (1 + number % 5000) if number else b"0")


# -- one process ----------------------------------------------------------------------------------


def test_the_newest_is_read(board: Board) -> None:
    for data in (b"first", b"second, longer", b"", bytes(range(256)) * 1024, b"short again"):
        board.publish(data)
        assert read_board(os.getpid()) == data


def test_there_is_one_descriptor_and_nothing_with_a_name(board: Board) -> None:
    assert not any("tundish-board" in link for link in links())
    board.publish(b"a")
    board.publish(b"b")
    assert [link for link in links() if "tundish-board" in link] == [
        "/memfd:tundish-board (deleted)"
    ]
    assert not os.get_inheritable(board._fd)

    board.close()
    board.close()
    assert not any("tundish-board" in link for link in links())


def test_one_that_is_dropped_is_taken_down() -> None:
    board = Board()
    board.publish(b"a")
    del board
    gc.collect()

    assert not any("tundish-board" in link for link in links())


def test_what_is_not_used_takes_no_memory(board: Board) -> None:
    board.publish(b"a" * 100)
    board.publish(b"b" * 100)

    assert os.fstat(board._fd).st_size > 2 * LARGEST
    assert os.fstat(board._fd).st_blocks * 512 <= 3 * 4096


def test_what_is_too_large_leaves_the_old_one(board: Board) -> None:
    board.publish(b"old")
    board.publish(b"x" * LARGEST)
    with pytest.raises(ValueError, match="262,145 bytes do not fit on a board of 262,144"):
        board.publish(b"x" * (LARGEST + 1))

    assert read_board(os.getpid()) == b"x" * LARGEST


def test_it_is_found_among_many_descriptors(board: Board) -> None:
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(256)]
    try:
        board.publish(b"here")
        assert board._fd > 256
        assert read_board(os.getpid()) == b"here"
    finally:
        for fd in others:
            os.close(fd)


def test_without_a_descriptor_left_it_says_so_and_is_made_later(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(boards, "open_memfd", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            board.publish(b"a")
    board.publish(b"b")

    assert read_board(os.getpid()) == b"b"


def test_a_descriptor_that_became_another_file_is_left_alone(board: Board, tmp_path: Path) -> None:
    """As in a daemon that closes all it has and opens its log."""
    board.publish(b"before")
    fd = board._fd
    log = tmp_path / "log"
    log.write_bytes(b"log")
    other = os.open(log, os.O_RDWR)
    os.dup2(other, fd, inheritable=False)
    os.close(other)

    board.publish(b"after")

    assert log.read_bytes() == b"log"
    assert read_board(os.getpid()) == b"after"
    os.close(fd)  # it is still open: the log is not the board's to close


def test_the_portable_back_end_has_none(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_PORTABLE", "1")

    with pytest.raises(OSError, match="Linux's memfd"):
        board.publish(b"a")


def test_publishing_costs_little(board: Board, tmp_path: Path) -> None:
    """Not much more than to write the bytes somewhere: no lock, no file that is opened, no wait."""
    data = os.urandom(8192)
    board.publish(data)
    file = os.open(tmp_path / "data", os.O_RDWR | os.O_CREAT)
    written, published = [], []
    for _ in range(500):
        began = time.perf_counter()
        os.pwrite(file, data, 0)
        zlib.crc32(data)
        middle = time.perf_counter()
        board.publish(data)
        published.append(time.perf_counter() - middle)
        written.append(middle - began)
    os.close(file)

    assert sorted(published)[250] < 10 * sorted(written)[250]


# -- torn, by construction ------------------------------------------------------------------------


def head(seq: int, data: bytes) -> bytes:
    start = struct.pack("<QII", seq, len(data), zlib.crc32(data))
    return start + struct.pack("<I", zlib.crc32(start))


@pytest.mark.parametrize("step", ["head made invalid", "half of the data", "half of the head"])
def test_a_writer_that_stopped_in_the_middle_leaves_the_last_one(board: Board, step: str) -> None:
    for number in range(3):
        board.publish(b"number %d" % number * 1000)
    half = 4 % 2  # the fourth goes where the second stands
    os.pwrite(board._fd, bytes(20), HEADS[half])
    if step != "head made invalid":
        os.pwrite(board._fd, b"number 3" * 500, HALVES[half])
    if step == "half of the head":
        os.pwrite(board._fd, head(4, b"number 3" * 1000)[:10], HEADS[half])

    assert read_board(os.getpid()) == b"number 2" * 1000

    board.publish(b"number 4")
    assert read_board(os.getpid()) == b"number 4"


def test_a_write_that_fails_leaves_the_last_one(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        board.publish(b"number %d" % number)
    real = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at in HALVES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            board.publish(b"number 2")

    assert read_board(os.getpid()) == b"number 1"
    assert os.pread(board._fd, 20, HEADS[1]) == bytes(
        20
    )  # what is half written is not taken for old


def test_changed_bytes_under_a_right_head_are_not_given(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.publish(b"one")
    os.pwrite(board._fd, b"t", HALVES[1])
    monkeypatch.setattr(boards, "_AGAIN_S", 0.0)

    with pytest.raises(TimeoutError):
        read_board(os.getpid())


def test_a_reader_that_is_overtaken_reads_again(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between head and data, what was found is written over, with the same length."""
    board.publish(b"one")
    real, overtakes = os.pread, [2]

    def overtaken(fd: int, n: int, at: int) -> bytes:
        if at in HALVES and overtakes[0]:
            overtakes[0] -= 1
            board.publish(b"two")
            board.publish(b"new")
        return real(fd, n, at)

    monkeypatch.setattr(os, "pread", overtaken)

    assert read_board(os.getpid()) == b"new"
    assert overtakes == [0]


def test_data_is_not_taken_for_whole_by_its_checksum_alone(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer has begun to write over it, and the checksum happens to be right."""
    board.publish(b"one")
    real = os.pread

    def begun(fd: int, n: int, at: int) -> bytes:
        data = real(fd, n, at)
        if at in HALVES:
            os.pwrite(board._fd, bytes(20), HEADS[1])
        return data

    monkeypatch.setattr(os, "pread", begun)
    monkeypatch.setattr(boards, "_AGAIN_S", 0.0)

    with pytest.raises(TimeoutError, match="64 reads"):
        read_board(os.getpid())


def test_one_that_is_overtaken_for_ever_gives_up(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.publish(b"0")
    real, number = os.pread, [0]

    def overtaken(fd: int, n: int, at: int) -> bytes:
        if at in HALVES:
            for _ in range(2):
                number[0] += 1
                board.publish(b"%d" % number[0])
        return real(fd, n, at)

    monkeypatch.setattr(os, "pread", overtaken)
    monkeypatch.setattr(boards, "_AGAIN_S", 0.0)

    with pytest.raises(TimeoutError, match="changed during each of 64 reads"):
        read_board(os.getpid())


# -- several processes ----------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_and_stopped_in_the_middle_it_is_never_wrong(start: Any) -> None:
    process = start(ENDLESS)
    assert said(process) == "published"
    seen: set[bytes] = set()

    def read_several() -> bool:
        data = read_board(process.pid)
        assert is_one_message(data)
        seen.add(data)
        return len(seen) == 20

    wait_until(read_several)
    for _ in range(100):  # anywhere between two instructions
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        assert is_one_message(read_board(process.pid))
        process.send_signal(signal.SIGCONT)


def test_after_a_kill_nothing_is_left(start: Any) -> None:
    process = start(ENDLESS)
    assert said(process) == "published"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now

    with pytest.raises(ProcessLookupError, match=f"no process {process.pid}"):
        read_board(process.pid)
    process.wait()
    with pytest.raises(ProcessLookupError, match=f"no process {process.pid}"):
        read_board(process.pid)
    assert not list(Path("/dev/shm").glob("*tundish*"))


# What is registered first is called last: what the library does at exit has been done.
LEAVING = """
    import atexit

    atexit.register(lambda: print("leaving", flush=True) or input())
    from tundish.shm.board import Board

    board = Board()
    board.publish(b"the last")
"""


def test_one_that_leaves_is_read_to_its_end(start: Any) -> None:
    """It does not look like a process that has nothing to tell."""
    process = start(LEAVING)
    assert said(process) == "leaving"

    assert read_board(process.pid) == b"the last"


def test_one_that_is_ending_has_ended(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptors are closed, and it is no zombie yet."""
    real = Path.read_text

    def ending(path: Path, *arguments: Any, **options: Any) -> str:
        text = real(path, *arguments, **options)
        if path.name != "stat" or not left:
            return text
        before, _, after = text.rpartition(")")
        fields = after.split()
        fields[6] = str(int(fields[6]) | 0x4)  # PF_EXITING
        return f"{before}) {' '.join(fields)}"

    left: list[Path] = []

    def leave(folder: Path) -> Iterator[Path]:
        left.append(folder)
        return iter(())

    monkeypatch.setattr(Path, "read_text", ending)
    monkeypatch.setattr(Path, "iterdir", leave)

    with pytest.raises(ProcessLookupError, match=f"no process {os.getpid()}"):
        read_board(os.getpid())


def test_a_forked_child_has_its_own() -> None:
    board = Board()
    board.publish(b"the parent's")
    ours, theirs = os.pipe()
    go, wait = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, b"forked")
            os.read(go, 1)
            board.publish(b"the child's")
            os.write(theirs, b"published")
            os.read(go, 1)
        finally:
            os._exit(0)  # whatever is raised: no test goes on in here
    try:
        assert os.read(ours, 100) == b"forked"
        with pytest.raises(FileNotFoundError, match="no tundish pipeline"):
            read_board(child)  # it has its parent's descriptor, and nothing of its own to tell
        os.write(wait, b".")
        assert os.read(ours, 100) == b"published"
        assert read_board(child) == b"the child's"
        assert read_board(os.getpid()) == b"the parent's"
        board.publish(b"the parent's, later")
        assert read_board(child) == b"the child's"
        assert {child, os.getpid()} <= set(pids_with_a_board())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for fd in (ours, theirs, go, wait):
            os.close(fd)
        board.close()


def test_a_thread_is_asked_as_its_process_is(board: Board) -> None:
    board.publish(b"whole")
    done = threading.Event()
    thread = threading.Thread(target=done.wait)  # one that lives until it has been asked
    thread.start()
    try:
        assert thread.native_id is not None
        assert thread.native_id != os.getpid()
        assert read_board(thread.native_id) == b"whole"
    finally:
        done.set()
        thread.join()


# -- whom one may ask -----------------------------------------------------------------------------


@pytest.mark.parametrize("pid", [0, -1])
def test_no_pid(pid: int) -> None:
    with pytest.raises(ValueError, match=f"{pid} is not a pid"):
        read_board(pid)


def test_no_such_process() -> None:
    with pytest.raises(ProcessLookupError, match="there is no process 4194305"):
        read_board(4194305)  # above what Linux gives


def test_a_process_without_one() -> None:
    with pytest.raises(FileNotFoundError, match="TUNDISH_WATCH=0"):
        read_board(os.getpid())


def test_a_process_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", forbidden)

    with pytest.raises(PermissionError, match=f"process {os.getpid()} belongs to another user"):
        read_board(os.getpid())


def test_a_board_of_another_version(board: Board) -> None:
    board.publish(b"a")
    os.pwrite(board._fd, struct.pack("<I", 7), 8)

    with pytest.raises(ValueError, match=r"is of version 7 and this program reads 1: use the"):
        read_board(os.getpid())


def test_a_file_that_only_has_its_name() -> None:
    fd = os.memfd_create("tundish-board", os.MFD_CLOEXEC)
    try:
        with pytest.raises(FileNotFoundError):
            read_board(os.getpid())
        os.pwrite(fd, os.urandom(8192), 0)
        with pytest.raises(FileNotFoundError):
            read_board(os.getpid())
    finally:
        os.close(fd)


def test_elsewhere_it_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(NotImplementedError, match=r"iterator.stats.*iterator.explain"):
        read_board(os.getpid())
    assert pids_with_a_board() == []


def test_in_a_container_a_process_is_known_by_its_outer_pid(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board has the pid by which its process knows itself; the reader has another one."""
    board.publish(b"within")
    os.pwrite(board._fd, struct.pack("<I", 17), 12)
    real = Path.read_text

    def status(path: Path, *arguments: Any, **options: Any) -> str:
        text = real(path, *arguments, **options)
        return "".join(
            f"NStgid:\t{os.getpid()}\t17\n" if line.startswith("NStgid:") else line
            for line in text.splitlines(keepends=True)
        )

    monkeypatch.setattr(Path, "read_text", status)

    assert read_board(os.getpid()) == b"within"


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0)
