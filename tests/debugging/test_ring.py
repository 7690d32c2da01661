"""Files of a dump: whole lines survive kill -9, a torn one is told, readers come at any time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish.debugging import reading
from tundish.debugging import ring as ring_module
from tundish.debugging.reading import read_dump
from tundish.debugging.ring import LineRing, checked_line, parse_line
from tundish.errors import TundishError

RECORD = ', "t": 1, "node": "map#1", "origin": [0, 1], "it": "1.0", "plan": "p", "leaves": []}'
ABOUT = {"role": "consumer", "mode": "SHAPE"}

WRITER = """
import sys
from tundish.debugging.ring import LineRing

ring = LineRing(sys.argv[1], int(sys.argv[2]), {"role": "worker", "mode": "SHAPE"})
text = ', "t": 1, "node": "map#1", "origin": null, "it": "1.0", "plan": "%s", "leaves": []}'
n = 0
while True:
    ring.add(text % ("p" * (n % 5000)))
    n += 1
    if n == 50:
        print("going", flush=True)
"""


def one_file(folder: Path) -> Path:
    """The only file there."""
    [path] = folder.iterdir()
    return path


def test_a_line_has_its_checksum() -> None:
    line = checked_line('{"n": 1}')

    assert re.fullmatch(rb'[0-9a-f]{8} \{"n": 1\}\n', line)
    assert parse_line(line.rstrip()) == {"n": 1}
    assert parse_line(line[:-3]) is None
    assert parse_line(line.replace(b"1}", b"2}").rstrip()) is None
    assert parse_line(b"") is None
    assert parse_line(b"zzzz {}") is None


def test_a_torn_end_is_left_out_and_counted(tmp_path: Path) -> None:
    ring = LineRing(str(tmp_path), 0, ABOUT)
    for _ in range(3):
        ring.add(RECORD)
    path = one_file(tmp_path)
    whole = path.read_bytes()

    for cut in range(len(whole) - len(whole.splitlines()[-1]), len(whole)):
        path.write_bytes(whole[:cut])
        dump = read_dump(tmp_path)
        assert [each.number for each in dump.records] == [0, 1]
        assert dump.torn == (cut > len(whole) - len(whole.splitlines()[-1]) - 1)


def test_a_changed_byte_costs_one_record(tmp_path: Path) -> None:
    ring = LineRing(str(tmp_path), 0, ABOUT)
    for _ in range(3):
        ring.add(RECORD)
    path = one_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"map", b"mop")
    path.write_bytes(b"".join(lines))

    dump = read_dump(tmp_path)

    assert [each.number for each in dump.records] == [0, 2]
    assert dump.torn == 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 7, 300])
def test_kill_at_any_time(size: int, tmp_path: Path) -> None:
    """Four writers are killed at four times: what stands is a run of the newest, at most one torn."""
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(size)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        until = time.perf_counter() + attempt * 0.0037
        while time.perf_counter() < until:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

        dump = read_dump(folder)
        numbers = [each.number for each in dump.records]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert dump.torn <= 1
        assert len(numbers) >= 50 if not size else len(numbers) >= min(size, 49)
        assert all(len(each.plan) == each.number % 5000 for each in dump.records)


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    """Each look sees the newest as of some moment, in one piece, whatever is removed meanwhile."""
    ring, stop = LineRing(str(tmp_path), 20, ABOUT), threading.Event()
    for _ in range(25):
        ring.add(RECORD)

    def write() -> None:
        while not stop.is_set():
            ring.add(RECORD)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        last = 0
        for _ in range(200):
            dump = read_dump(tmp_path)
            numbers = [each.number for each in dump.records]
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert numbers[-1] >= last
            last = numbers[-1]
    finally:
        stop.set()
        writer.join()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns after every step."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-7)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_share_a_ring(tmp_path: Path) -> None:
    ring = LineRing(str(tmp_path), 0, ABOUT)
    together = threading.Barrier(4)

    def write() -> None:
        together.wait()
        for _ in range(500):
            ring.add(RECORD)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    dump = read_dump(tmp_path)

    assert [each.number for each in sorted(dump.records, key=lambda each: each.number)] == list(
        range(2000)
    )
    assert dump.torn == 0


def test_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "MOST_BYTES", 4096)
    ring = LineRing(str(tmp_path), 1000, ABOUT)
    for _ in range(1000):
        ring.add(RECORD)

    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    numbers = [each.number for each in read_dump(tmp_path).records]

    assert len(sizes) == 2
    assert max(sizes) < 4096 + 300
    assert numbers == list(range(numbers[0], 1000))
    assert len(numbers) > 20


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_cannot_be_written_ends_the_ring_and_nothing_else(tmp_path: Path) -> None:
    ring = LineRing(str(tmp_path), 5, ABOUT)
    ring.add(RECORD)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, ring._file)
    os.close(full)

    with pytest.warns(RuntimeWarning, match="No space left on device"):
        ring.add(RECORD)
    ring.add(RECORD)

    assert [each.number for each in read_dump(tmp_path).records] == [0]


def test_no_folder_and_no_dump(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        read_dump(tmp_path / "none")
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(FileNotFoundError, match="no dump is in this folder"):
        read_dump(tmp_path)


def test_a_later_version(tmp_path: Path) -> None:
    (tmp_path / "h-1-1.0.dump").write_bytes(checked_line('{"tundish": "dump", "version": 2}'))

    with pytest.raises(TundishError, match="version 2, this library reads 1"):
        read_dump(tmp_path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "h-1-1.0.dump").write_bytes(b"\x00\xff\nnothing")
    (tmp_path / "h-2-1.0.dump").write_bytes(b"")

    dump = read_dump(tmp_path)

    assert (dump.records, dump.processes, dump.torn) == ((), (), 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_ring_of_its_own(tmp_path: Path) -> None:
    td.debugging.enable_dump_debug_info(tmp_path, op_regex="range")
    it = iter(td.Dataset.range(4))
    try:
        next(it)
        child = os.fork()
        if not child:
            next(it)
            os._exit(0)
        os.waitpid(child, 0)
        next(it)
    finally:
        td.debugging.disable_dump_debug_info()

    dump = read_dump(tmp_path)

    assert {each.pid for each in dump.processes} == {os.getpid(), child}
    assert dump.torn == 0


def test_a_reader_that_is_overtaken_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both files have been begun anew before it has opened both: no record is missing within."""
    ring = LineRing(str(tmp_path), 3, ABOUT)
    for _ in range(4):
        ring.add(RECORD)
    opened = reading._opened
    looks: list[Path] = []

    def slow(path: Path) -> Any:
        found = opened(path)
        looks.append(path)
        if len(looks) == 1:
            for _ in range(8):
                ring.add(RECORD)
        return found

    monkeypatch.setattr(reading, "_opened", slow)
    assert [each.number for each in read_dump(tmp_path).records] == [9, 10, 11]
    assert len(looks) == 4
    ring.close()


def test_between_any_two_steps_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks in the middle sees what was written before, as many as are kept."""
    ring, done, looks = LineRing(str(tmp_path), 3, ABOUT), 0, 0

    def looked(name: str) -> None:
        step = getattr(os, name)

        def look(*given: Any) -> Any:
            nonlocal looks
            if any(tmp_path.glob("*.dump")):
                with monkeypatch.context() as plain:
                    plain.setattr(os, name, step)
                    numbers = [each.number for each in read_dump(tmp_path).records]
                assert numbers in (
                    [*range(max(0, done - 3), done)],
                    [*range(max(0, done - 2), done + 1)],
                )
                looks += 1
            return step(*given)

        monkeypatch.setattr(os, name, look)

    for name in ("open", "write", "replace", "close", "unlink"):
        looked(name)
    for _ in range(20):
        ring.add(RECORD)
        done += 1
    ring.close()
    assert looks > 30


def test_a_writer_that_is_always_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer makes many turns between any two steps of a reader: the newest are given, without a gap."""
    ring, opened = LineRing(str(tmp_path), 3, ABOUT), reading._opened
    ring.add(RECORD)

    def slow(path: Path) -> Any:
        for _ in range(20):
            ring.add(RECORD)
        return opened(path)

    monkeypatch.setattr(reading, "_opened", slow)
    last = 0
    for _ in range(5):
        numbers = [each.number for each in read_dump(tmp_path).records]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[-1] > last
        last = numbers[-1]
    ring.close()
