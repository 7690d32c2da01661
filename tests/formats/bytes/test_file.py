"""A file that is read at any offset."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tundish.formats.bytes import file
from tundish.formats.bytes.file import open_file


@pytest.fixture(params=["local", "file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the path of a file that holds b"0123456789"."""
    some = tmp_path / "some"
    some.write_bytes(b"0123456789")
    if request.param == "memory":
        memory = fsspec.filesystem("memory")
        memory.pipe_file("/folder/some", b"0123456789")
        yield "memory://folder/some"
        memory.rm("/folder", recursive=True)
    else:
        yield f"file://{some}" if request.param == "file" else str(some)


def test_bytes_at_an_offset(path: str) -> None:
    with open_file(path) as opened:
        assert opened.path == path
        assert opened.size == 10
        assert opened.pread(2, 3) == b"234"
        assert opened.pread(8, 2**60) == b"89"  # and no such memory is asked for
        assert opened.pread(10, 1) == opened.pread(2**60, 1) == opened.pread(0, 0) == b""


def test_into_a_buffer(path: str) -> None:
    buffer = bytearray(b"xxxx")
    with open_file(path) as opened:
        assert opened.readinto(8, buffer) == 2
        assert buffer == b"89xx"
        assert opened.readinto(3, memoryview(buffer)[1:]) == 3
        assert buffer == b"8345"
        assert opened.readinto(11, buffer) == 0


def test_closing_twice(path: str) -> None:
    opened = open_file(path)
    opened.close()
    opened.close()


def test_what_a_file_says_of_itself_changes_with_it(tmp_path: Path) -> None:
    some = tmp_path / "some"
    some.write_bytes(b"abc")
    os.utime(some, ns=(0, 1_000))
    with open_file(str(some)) as opened:
        before = opened.identity
    os.utime(some, ns=(0, 2_000))
    with open_file(str(some)) as opened:
        assert (before, opened.identity) == ((3, 1_000), (3, 2_000))


def test_what_a_url_says_of_itself_changes_with_it() -> None:
    memory = fsspec.filesystem("memory")
    identities = []
    for content in (b"abc", b"abd"):
        memory.pipe_file("/some", content)
        with open_file("memory://some") as first, open_file("memory://some") as second:
            assert first.identity == second.identity
            identities.append(first.identity)
    memory.rm("/some")

    assert identities[0][0] == identities[1][0] == 3
    assert identities[0] != identities[1]


def test_a_file_has_the_size_it_had(tmp_path: Path) -> None:
    some = tmp_path / "some"
    some.write_bytes(b"0123456789")
    with open_file(str(some)) as opened:
        with some.open("ab") as more:
            more.write(b"more")
        buffer = bytearray(8)
        assert opened.pread(8, 10) == b"89"
        assert opened.readinto(8, buffer) == 2
        os.truncate(some, 4)
        assert opened.pread(2, 8) == b"23"
        assert opened.readinto(2, buffer) == 2


def test_pieces_that_come_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call may give less than it was asked for."""
    monkeypatch.setattr(file, "_PIECE", 3)
    some = tmp_path / "some"
    some.write_bytes(b"0123456789")
    buffer = bytearray(8)
    with open_file(str(some)) as opened:
        assert opened.pread(1, 9) == b"123456789"
        assert opened.readinto(2, buffer) == 8
    assert buffer == b"23456789"


@pytest.mark.parametrize("missing", ["pread", "preadv"])
def test_without_a_call_that_some_systems_lack(
    missing: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, missing)
    if missing == "pread":
        monkeypatch.delattr(os, "preadv")
    test_bytes_at_an_offset(path)
    test_into_a_buffer(path)


def failure(path: str, **options: Any) -> OSError:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller looks at it
        open_file(path, **options)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.filename == path
    assert isinstance(error, OSError)
    return error


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    assert isinstance(failure(str(tmp_path / "none")), FileNotFoundError)
    assert isinstance(failure(f"file://{tmp_path}/none"), FileNotFoundError)
    assert isinstance(failure(str(tmp_path)), IsADirectoryError)
    assert isinstance(failure(""), FileNotFoundError)
    assert failure("/dev/zero").errno == errno.ESPIPE


def test_a_local_path_may_look_like_a_url_further_on(tmp_path: Path) -> None:
    (tmp_path / "s3:").mkdir()
    for name in ("a::b", "s3:/c"):
        (tmp_path / name).write_bytes(b"x")
    for path in (f"{tmp_path}/a::b", f"{tmp_path}/s3://c"):
        with open_file(path) as file:
            assert file.pread(0, 9) == b"x"


def test_an_interrupt_while_a_file_is_closed_leaves_none_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    file = open_file(str(tmp_path / "x"))
    interrupted = type(file)

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(interrupted, "__del__", interrupt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it was not closed, and what was raised
        monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
        del file
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert failure(str(tmp_path / "pipe")).errno == errno.ESPIPE


def test_a_url_that_cannot_be_opened() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/folder/some", b"x")

    assert isinstance(failure("memory://none"), FileNotFoundError)
    assert isinstance(failure("memory://folder"), IsADirectoryError)
    memory.rm("/folder", recursive=True)
    with pytest.raises(ValueError, match="nosuch://x cannot be opened"):
        open_file("nosuch://x")


def test_a_filesystem_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)
    with pytest.raises(OSError, match="OSError: no route") as caught:
        open_file("hdfs://cluster/a")

    assert caught.value.filename == "hdfs://cluster/a"


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"pip install fsspec"):
        open_file("memory://x")


def test_an_error_of_a_filesystem_s_own_is_one_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OwnError(Exception):
        pass

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/some", b"0123456789")

    def broken(*_: object, **__: object) -> bytes:
        raise OwnError("the wire is cut")

    with open_file("memory://some") as opened:
        monkeypatch.setattr(type(memory), "cat_file", broken)
        with pytest.raises(OSError, match=r"OwnError: the wire is cut.*memory://some"):
            opened.pread(0, 1)
    memory.rm("/some")


@pytest.mark.parametrize("offset", [0, 4])
def test_a_server_that_sends_the_whole_file_for_a_part_is_refused(
    monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """As web servers may, whose answer fsspec gives back; its bytes are not those that were asked for."""
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/some", b"0123456789")

    def whole(*_: object, **__: object) -> bytes:
        return b"0123456789"

    with open_file("memory://some") as opened:
        monkeypatch.setattr(type(memory), "cat_file", whole)
        assert opened.pread(0, 10) == b"0123456789"
        with pytest.raises(OSError, match=rf"10 bytes came where 3 from byte {offset} on.*some"):
            opened.pread(offset, 3)
    memory.rm("/some")


AS_NOBODY = """
import os, sys
from tundish.formats.bytes.file import open_file
os.setuid(65534)
try:
    open_file(sys.argv[1])
except PermissionError as error:
    print(error.filename)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no users here")
def test_a_file_that_is_not_ours_to_read(tmp_path: Path) -> None:
    some = tmp_path / "some"
    some.write_bytes(b"x")
    some.chmod(0)
    if os.geteuid():
        assert isinstance(failure(str(some)), PermissionError)
        return
    # root reads everything: ask as somebody else, who may not even come near the folder
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(some)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(some)
