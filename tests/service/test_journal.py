"""The dispatcher's journal, cut at every byte, killed at every step, and with each system call failing."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tundish.errors import RecordCorruptError, SnapshotVersionError
from tundish.loader.service.dispatching.journal import (
    NAME,
    Disk,
    LocalJournal,
    RemoteJournal,
    frame,
    open_journal,
)
from tundish.snapshot.files.store import open_store

ENTRIES = [{"kind": "x", "number": n, "text": "é" * (n % 7)} for n in range(9)]
AFTER = {"kind": "after"}


class Hasty(Disk):
    """A disk that is not waited for: where thousands of journals are opened."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


def entries_of(folder: Path) -> list[dict[str, Any]]:
    """What a dispatcher that begins in a folder finds."""
    journal = LocalJournal(folder, Hasty())
    journal.close()
    return journal.entries


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The journal of `ENTRIES`."""
    journal = LocalJournal(tmp_path / "first")
    for entry in ENTRIES:
        journal.append(entry)
    journal.close()
    return journal.path


def starts(data: bytes) -> list[int]:
    """Where each line begins, and the end of the last."""
    return [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]


def test_what_was_written_is_read(written: Path) -> None:
    assert entries_of(written.parent) == ENTRIES


def with_bytes(folder: Path, data: bytes) -> Path:
    """A folder whose journal has these bytes."""
    folder.mkdir(exist_ok=True)
    (folder / NAME).unlink(missing_ok=True)  # a file that is cut is waited for as it is closed
    (folder / NAME).write_bytes(data)
    return folder


def test_a_cut_at_any_byte_leaves_the_whole_lines_before_it(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    ends = starts(data)
    for cut in range(len(data) + 1):
        folder = with_bytes(tmp_path / "cut", data[:cut])
        whole = sum(end <= cut for end in ends) - 1
        left = ENTRIES[: max(0, whole - 1)]  # the first line says the format

        journal = LocalJournal(folder, Hasty())
        assert journal.entries == left, cut
        journal.append(AFTER)
        journal.close()
        assert entries_of(folder) == [*left, AFTER], cut


def test_blocks_of_the_last_line_that_were_never_written(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    last = starts(data)[-2]
    for first in range(last, len(data)):
        for stop in {first + 1, (first + len(data)) // 2 + 1, len(data)}:
            torn = data[:first] + b"\0" * (stop - first) + data[stop:]
            assert entries_of(with_bytes(tmp_path / "torn", torn)) == ENTRIES[:-1]
    assert entries_of(with_bytes(tmp_path / "torn", data + b"\0" * 4096)) == ENTRIES


def test_any_byte_that_was_changed_is_named(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    ends = starts(data)
    for at in range(len(data)):
        line = max(start for start in ends if start <= at)
        for flip in (0x01, 0x20, 0x80):
            changed = bytearray(data)
            changed[at] ^= flip
            if changed[at] == 0 and line == ends[-2]:
                continue  # as if it had never been written
            with pytest.raises(RecordCorruptError, match=f"byte {line}: ") as caught:
                entries_of(with_bytes(tmp_path / "changed", bytes(changed)))
            assert caught.value.offset == line
            assert (tmp_path / "changed" / NAME).read_bytes() == changed, "it was left as it is"


@pytest.mark.parametrize("change", ["lost", "doubled", "swapped"])
def test_lines_that_were_moved_are_an_error(written: Path, tmp_path: Path, change: str) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    moved = {
        "lost": [*lines[:3], *lines[4:]],
        "doubled": [*lines[:4], *lines[3:]],
        "swapped": [*lines[:3], lines[4], lines[3], *lines[5:]],
    }[change]
    with pytest.raises(RecordCorruptError, match="crc32"):
        entries_of(with_bytes(tmp_path / "moved", b"".join(moved)))


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    line, _ = frame({"journal": "tundish dispatcher", "format": 2}, 0)
    with pytest.raises(SnapshotVersionError, match="is of format 2"):
        entries_of(with_bytes(tmp_path / "later", line))


def test_one_dispatcher_has_it(tmp_path: Path) -> None:
    journal = LocalJournal(tmp_path)
    with pytest.raises(BlockingIOError, match="another dispatcher"):
        LocalJournal(tmp_path)
    journal.close()
    assert entries_of(tmp_path) == []


class Crash(BaseException):
    """The end of the process, or of the machine."""


class FaultyDisk(Disk):
    """A disk that ends at a step, or fails there; it knows what would be left after a crash of the machine."""

    def __init__(
        self, path: Path, step: int, fault: Callable[[], BaseException], taken: int = 0
    ) -> None:
        self.step, self.fault, self.taken = step, fault, taken
        self.steps = 0
        self.descriptor = -1
        self.possible: list[bytes | None] = [path.read_bytes() if path.exists() else None]
        """Contents that the file may have after a crash of the machine; None: there is no file."""

    def reach(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.step

    def content(self) -> bytes:
        return super().read(self.descriptor)

    def open(self, path: Path) -> int:
        if self.reach():
            raise self.fault()
        there = path.exists()
        self.descriptor = super().open(path)
        if not there:
            self.possible = [None, b""]
        return self.descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        faulty = self.reach()
        taken = super().write(descriptor, data[: self.taken] if faulty else data)
        now = self.content()
        self.possible += [now[: len(now) - k] for k in range(taken)]
        if faulty:
            raise self.fault()
        return taken

    def truncate(self, descriptor: int, size: int) -> None:
        if self.reach():
            raise self.fault()
        super().truncate(descriptor, size)
        self.possible.append(self.content())

    def sync(self, descriptor: int) -> None:
        if self.reach():
            raise self.fault()
        self.possible = [each for each in self.possible if each is None] + [self.content()]

    def sync_folder(self, path: Path) -> None:
        if self.reach():
            raise self.fault()
        self.possible = [each for each in self.possible if each is not None]


def run(folder: Path, disk: Disk, acknowledged: list[dict[str, Any]]) -> None:
    """A dispatcher's life: it opens its journal, and answers after each entry; an error is told and it goes on."""
    journal = None
    try:
        while journal is None:
            with suppress(OSError):
                journal = LocalJournal(folder, disk)
        for entry in ENTRIES[len(journal.entries) :]:
            with suppress(OSError):
                journal.append(entry)
                acknowledged.append(entry)
    finally:
        if journal is not None:
            journal.close()


def histories(tmp_path: Path) -> Iterator[tuple[Path, bytes]]:
    """Folders in which a dispatcher begins: none, an empty one, a torn first line, some entries and a torn one."""
    yield tmp_path / "none", b""
    whole = LocalJournal(tmp_path / "whole")
    whole.append(ENTRIES[0])
    whole.append(ENTRIES[1])
    whole.close()
    data = whole.path.read_bytes()
    for name, cut in {"first": 9, "two": len(data), "torn": len(data) - 5}.items():
        yield with_bytes(tmp_path / name, data[:cut]), data[:cut]


def test_the_machine_ends_at_any_step(tmp_path: Path) -> None:
    runs = 0
    for folder, before in histories(tmp_path):
        for step in itertools.count():
            if before:
                with_bytes(folder, before)
            else:
                (folder / NAME).unlink(missing_ok=True)
            found = entries_of(folder) if before else []
            if before:
                with_bytes(folder, before)
            disk, answered = FaultyDisk(folder / NAME, step, Crash, taken=step % 40), list(found)
            with suppress(Crash):
                run(folder, disk, answered)
            for content in disk.possible:
                if content is None:
                    (folder / NAME).unlink(missing_ok=True)
                else:
                    with_bytes(folder, content)
                left = entries_of(folder)
                assert left[: len(answered)] == answered, (folder.name, step)
                assert left in (answered, [*answered, *ENTRIES[len(answered) :][:1]])
                runs += 1
            if disk.steps <= step:
                break
    assert runs > 200


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_system_call_fails(tmp_path: Path, number: int, lasting: bool) -> None:
    """An entry that could not be written is told to nobody; those after it are written, or refused as well."""

    class Failing(FaultyDisk):
        def reach(self) -> bool:
            return super().reach() or (
                lasting and self.steps - 1 in range(self.step, self.step + 2)
            )

    for folder, before in histories(tmp_path):
        for step in itertools.count():
            if before:
                with_bytes(folder, before)
            else:
                (folder / NAME).unlink(missing_ok=True)
            found = entries_of(folder) if before else []
            disk = Failing(folder / NAME, step, partial(OSError, number, "broken"), step % 40)
            answered = list(found)
            run(folder, disk, answered)
            left = entries_of(folder)
            assert [entry for entry in left if entry in answered] == answered
            assert len(left) <= len(answered) + 1
            if disk.steps <= step:
                break


def test_a_journal_that_cannot_be_repaired_takes_no_more(tmp_path: Path) -> None:
    class Stuck(Disk):
        full = False

        def sync(self, descriptor: int) -> None:
            if self.full:
                raise OSError(errno.EIO, "no disk")
            super().sync(descriptor)

    disk = Stuck()
    journal = LocalJournal(tmp_path, disk)
    journal.append(ENTRIES[0])
    disk.full = True
    with pytest.raises(OSError, match="no disk"):
        journal.append(ENTRIES[1])
    disk.full = False
    with pytest.raises(OSError, match="neither written nor removed"):
        journal.append(ENTRIES[2])
    journal.close()


def test_a_process_is_killed_while_it_writes(tmp_path: Path) -> None:
    """What it acknowledged is there, and at most one more; a successor goes on at once."""
    total = 0
    for round_ in range(12):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:  # pragma: no cover - the child
            journal = LocalJournal(tmp_path)
            for number in itertools.count(len(journal.entries)):
                journal.append({"number": number, "text": "x" * (number % 300)})
                os.write(theirs, b".")
        os.close(theirs)
        acknowledged = 0
        while acknowledged < 3 + 5 * round_ % 17:
            acknowledged += len(os.read(ours, 1))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while piece := os.read(ours, 4096):
            acknowledged += len(piece)
        os.close(ours)
        left = entries_of(tmp_path)
        assert [entry["number"] for entry in left] == list(range(len(left)))
        assert total + acknowledged <= len(left) <= total + acknowledged + 1
        total = len(left)


class TestAtAUrl:
    """Objects, one a line."""

    @pytest.fixture
    def url(self) -> Iterator[str]:
        fsspec = pytest.importorskip("fsspec")
        memory = fsspec.filesystem("memory")
        yield "memory://tests-journal/run"
        with suppress(FileNotFoundError):
            memory.rm("/tests-journal", recursive=True)

    def test_what_was_written_is_read(self, url: str) -> None:
        journal = open_journal(url)
        assert isinstance(journal, RemoteJournal)
        for entry in ENTRIES:
            journal.append(entry)

        again = open_journal(url)
        assert again.entries == ENTRIES
        again.append(AFTER)
        assert open_journal(url).entries == [*ENTRIES, AFTER]

    def test_the_one_that_is_behind_learns_it(self, url: str) -> None:
        first, second = open_journal(url), open_journal(url)
        second.append(AFTER)
        with pytest.raises(FileExistsError, match="another dispatcher has written"):
            first.append(ENTRIES[0])
        assert open_journal(url).entries == [AFTER]

    def test_a_line_that_is_missing_changed_or_cut(self, url: str) -> None:
        journal = open_journal(url)
        for entry in ENTRIES:
            journal.append(entry)
        store = open_store(url).subfolder(NAME)
        whole = store.read("00000004")

        store.remove("00000004")
        with pytest.raises(RecordCorruptError, match=r"00000004, byte 0: is missing"):
            open_journal(url)
        store.create("00000004", whole.replace(b'"x"', b'"y"'))
        with pytest.raises(RecordCorruptError, match="crc32"):
            open_journal(url)
        store.replace("00000004", whole[:-9])
        with pytest.raises(RecordCorruptError, match="is cut off"):
            open_journal(url)
        store.replace("00000004", whole)
        store.replace(f"{len(ENTRIES):08d}", store.read(f"{len(ENTRIES):08d}")[:-9])
        assert open_journal(url).entries == ENTRIES[:-1]
