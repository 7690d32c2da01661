"""The arena: what it promises on every kind of memory, and when there is not enough of it."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tundish.errors import SharedMemoryError
from tundish.shm.memory import Arena, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.shm.conftest import Run

PAGE = mmap.PAGESIZE
MIB = 1 << 20
KINDS = ("memfd", "dev-shm", "tmpdir")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux's memory")


@pytest.fixture(params=[(kind, portable) for kind in KINDS for portable in ("0", "1")])
def arena(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    kind, portable = request.param
    monkeypatch.setenv("TUNDISH_MEMORY", kind)
    monkeypatch.setenv("TUNDISH_PORTABLE", portable)
    arena = Arena.create()
    assert arena.kind == kind
    yield arena
    arena.close()


def physical(arena: Arena) -> int:
    return os.fstat(arena.fd).st_blocks * 512


def test_an_arena_takes_addresses_but_no_memory(arena: Arena) -> None:
    assert arena.reserved == arena.stride * arena.slots == len(arena.map)
    assert arena.stride >= 64 * MIB
    assert arena.slots == 256
    assert physical(arena) <= PAGE  # the page that was probed


def test_slots_are_apart_and_start_as_zeros(arena: Arena) -> None:
    for slot in (0, 1, arena.slots - 1):
        arena.allocate(slot, 0, 2 * PAGE)
        root = arena.root(slot, 2 * PAGE)
        assert root.dtype == np.uint8
        assert root.flags.writeable
        assert not root.any()
        root[:] = slot % 251 + 1
    for slot in (0, 1, arena.slots - 1):
        assert (arena.root(slot, 2 * PAGE) == slot % 251 + 1).all()


def test_a_slot_grows_in_place(arena: Arena) -> None:
    arena.allocate(3, 0, 100)
    early = arena.root(3, 100)
    early[:] = 7
    arena.allocate(3, 100, 3 * MIB)
    arena.root(3, 100 + 3 * MIB)[100:] = 8
    assert (early == 7).all()
    assert physical(arena) >= 3 * MIB


@pytest.mark.parametrize("nbytes", [50, MIB, MIB + 50])
def test_allocating_leaves_the_neighbours_bytes_alone(arena: Arena, nbytes: int) -> None:
    arena.allocate(0, 0, 3 * MIB)
    root = arena.root(0, 3 * MIB)
    root[:] = 9
    arena.allocate(0, 100, nbytes)
    assert (root[:100] == 9).all()
    assert (root[100 + nbytes :] == 9).all()


def test_pages_go_back_to_the_system(arena: Arena) -> None:
    arena.allocate(1, 0, MIB)
    arena.allocate(2, 0, MIB)
    arena.root(1, MIB)[:] = 1
    arena.root(2, MIB)[:] = 2
    before = physical(arena)
    assert arena.discard(1, 0, arena.stride)
    assert physical(arena) <= before - MIB
    assert not arena.root(1, MIB).any()
    assert (arena.root(2, MIB) == 2).all()


def test_only_whole_pages_go_back(arena: Arena) -> None:
    arena.allocate(0, 0, 4 * PAGE)
    root = arena.root(0, 4 * PAGE)
    root[:] = 1
    assert arena.discard(0, 10, 3 * PAGE)
    assert (root[:PAGE] == 1).all()
    assert not root[PAGE : 3 * PAGE].any()
    assert (root[3 * PAGE :] == 1).all()
    assert arena.discard(0, 10, 20)
    assert (root[:PAGE] == 1).all()


def test_another_process_sees_what_is_written(arena: Arena, run: Run) -> None:
    arena.allocate(5, 0, 1000)
    arena.root(5, 1000)[:] = 42
    said = run(
        """
        import os, sys
        from tundish.shm.memory import Arena

        fd, stride, slots = map(int, sys.argv[1:])
        arena = Arena.attach(fd, stride, slots)
        assert not os.get_inheritable(arena.fd)
        print(arena.kind, arena.owner, arena.root(5, 1000).sum())
        arena.allocate(6, 0, 1000)
        arena.root(6, 1000)[:] = 24
        print(arena.discard(5, 0, arena.stride))
        """,
        arena.fd,
        arena.stride,
        arena.slots,
        fds=(arena.fd,),
    )
    assert said.split() == ["attached", "0", "42000", "False"]
    assert (arena.root(5, 1000) == 42).all()
    assert (arena.root(6, 1000) == 24).all()


def test_the_descriptor_is_closed_on_exec(arena: Arena) -> None:
    assert not os.get_inheritable(arena.fd)


def test_a_range_larger_than_a_slot_is_refused(arena: Arena) -> None:
    with pytest.raises(SharedMemoryError) as caught:
        arena.allocate(0, 10, arena.stride)
    assert caught.value.needed == arena.stride + 10
    assert caught.value.available == arena.stride


def test_closing_leaves_the_arrays_that_are_held(arena: Arena) -> None:
    arena.allocate(0, 0, PAGE)
    root = arena.root(0, PAGE)
    row = root[10:20]
    root[:] = 5
    del root
    arena.close()
    arena.close()
    assert (row == 5).all()


@linux_only
def test_nobody_can_shrink_a_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_MEMORY", "memfd")
    arena = Arena.create()
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    arena.close()


@linux_only
def test_a_kernel_that_does_not_know_the_newest_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_MEMORY", "memfd")
    original = os.memfd_create

    def old_kernel(name: str, flags: int) -> int:
        if flags & ~(os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING):
            raise OSError(errno.EINVAL, "Invalid argument")
        return original(name, flags)

    monkeypatch.setattr(os, "memfd_create", old_kernel)
    arena = Arena.create(stride=PAGE, slots=2)
    assert arena.kind == "memfd"
    arena.close()


def test_a_size_that_was_named_is_kept() -> None:
    arena = Arena.create(stride=PAGE + 1, slots=3)
    assert (arena.stride, arena.slots) == (2 * PAGE, 3)
    arena.close()


@linux_only
def test_without_memfd_the_next_kind_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.delenv("TUNDISH_MEMORY", raising=False)
    monkeypatch.setattr(os, "memfd_create", forbidden)
    arena = Arena.create(stride=PAGE, slots=2)
    assert arena.kind in ("dev-shm", "tmpdir")
    arena.close()


@linux_only
def test_memory_that_cannot_be_allocated_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.posix_fallocate

    def only_in_files_with_a_file_system(fd: int, start: int, nbytes: int) -> None:
        if not os.fstatvfs(fd).f_blocks:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        original(fd, start, nbytes)

    monkeypatch.delenv("TUNDISH_MEMORY", raising=False)
    monkeypatch.delenv("TUNDISH_PORTABLE", raising=False)
    monkeypatch.setattr(os, "posix_fallocate", only_in_files_with_a_file_system)
    arena = Arena.create(stride=PAGE, slots=2)
    assert arena.kind in ("dev-shm", "tmpdir")
    assert explain()[0] == ("memfd", False, "Operation not supported")
    arena.close()


@linux_only
def test_what_cannot_be_used_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_PORTABLE", "1")
    monkeypatch.setattr("tundish.shm.memory._USEFUL_DEV_SHM", 1 << 62)
    arena = Arena.create(stride=PAGE, slots=2)
    assert arena.kind == "tmpdir"
    arena.close()


def test_a_stride_beyond_all_limits_is_an_error() -> None:
    with pytest.raises(SharedMemoryError, match="leaves no room") as caught:
        Arena.create(stride=1 << 61, slots=3)
    assert caught.value.needed == 1 << 61


def test_without_any_memory_the_error_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_MEMORY", "none")
    with pytest.raises(
        SharedMemoryError, match=r"memfd: ruled out by TUNDISH_MEMORY=none; dev-shm"
    ):
        Arena.create()
    assert [usable for _, usable, _ in explain()] == [False, False, False]


def test_a_kind_that_does_not_exist_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNDISH_MEMORY", "hugetlb")
    with pytest.raises(
        ValueError, match="'hugetlb'; it must be one of memfd, dev-shm, tmpdir, none"
    ):
        Arena.create()


@linux_only
def test_explain_tells_what_create_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNDISH_MEMORY", raising=False)
    for portable in ("0", "1"):
        monkeypatch.setenv("TUNDISH_PORTABLE", portable)
        rows = explain()
        assert [kind for kind, _, _ in rows] == list(KINDS)
        assert all(reason for _, _, reason in rows)
        arena = Arena.create(stride=PAGE, slots=1)
        assert arena.kind == next(kind for kind, usable, _ in rows if usable)
        arena.close()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_has_a_name_that_a_kill_could_leave(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNDISH_MEMORY", kind)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arena = Arena.create()
    arena.allocate(0, 0, MIB)
    assert os.fstat(arena.fd).st_nlink == 0
    assert not list(tmp_path.iterdir())
    arena.close()


@linux_only
def test_a_forked_child_does_no_harm(run: Run) -> None:
    said = run(
        """
        import os
        from tundish.shm.memory import Arena

        arena = Arena.create()
        arena.allocate(0, 0, 8192)
        root = arena.root(0, 8192)
        root[:] = 3
        if (child := os.fork()) == 0:
            done = arena.discard(0, 0, 8192)
            arena.close()
            os._exit(done)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), root.sum())
        arena.allocate(1, 0, 8192)
        """
    )
    assert said == f"0 {3 * 8192}"


SHORTAGE = """
    import os, signal, sys
    from tundish.errors import SharedMemoryError
    from tundish.shm.memory import Arena

    arena = Arena.create()
    arena.allocate(0, 0, 1 << 18)
    kept = arena.root(0, 1 << 18)
    kept[:] = 1
    try:
        arena.allocate(1, 0, 1 << 22)
    except SharedMemoryError as error:
        print(arena.kind, error.needed, error.available < 1 << 20, error)
    else:
        arena.root(1, 1 << 22)[:] = 1
        print(arena.kind, "enough")
    assert (kept == 1).all()
    arena.discard(1, 0, arena.stride)
    arena.allocate(1, 0, 1 << 18)
    arena.root(1, 1 << 18)[:] = 1
    """


def in_a_small_dev_shm(script: str, **environ: str) -> str:
    """Run a script where /dev/shm has 1 MiB, in mounts of its own."""
    command = 'mount -t tmpfs -o size=1m tundish /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, sys.executable, textwrap.dedent(script)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts of one's own here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")  # -7 would be SIGBUS
    return done.stdout.strip()


@linux_only
@pytest.mark.parametrize("portable", ["0", "1"])
def test_a_full_dev_shm_is_an_error_with_numbers(portable: str) -> None:
    said = in_a_small_dev_shm(SHORTAGE, TUNDISH_MEMORY="dev-shm", TUNDISH_PORTABLE=portable)
    assert said.startswith("dev-shm 4194304 True a slot of shared memory (No space left on device)")
    assert "4,194,304 bytes" in said
    assert "--shm-size" in said


@linux_only
@pytest.mark.parametrize(("portable", "kind"), [("0", "memfd"), ("1", "tmpdir")])
def test_a_small_dev_shm_is_not_used(portable: str, kind: str) -> None:
    said = in_a_small_dev_shm(SHORTAGE, TUNDISH_MEMORY="", TUNDISH_PORTABLE=portable)
    assert said == f"{kind} enough"


@linux_only
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_size_limit_makes_a_smaller_arena(kind: str, run: Run) -> None:
    said = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, 100 << 20))
        from tundish.shm.memory import Arena

        arena = Arena.create()
        for slot in range(3):
            arena.allocate(slot, 0, arena.stride)
            arena.root(slot, arena.stride)[:] = 1
        print(arena.kind, arena.slots, arena.reserved > 50 << 20, arena.reserved <= 100 << 20)
        """,
        TUNDISH_MEMORY=kind,
    )
    assert said == f"{kind} 16 True True"


@linux_only
def test_a_file_size_limit_that_leaves_nothing_is_an_error(run: Run) -> None:
    said = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        from tundish.errors import SharedMemoryError
        from tundish.shm.memory import Arena

        try:
            Arena.create()
        except SharedMemoryError as error:
            print(error)
        """
    )
    assert said.count("the address or file size limit leaves no room") >= 2


@linux_only
def test_an_address_limit_makes_a_smaller_arena_and_leaves_room(run: Run) -> None:
    said = run(
        """
        import resource
        import numpy as np
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        from tundish.shm.memory import Arena

        arena = Arena.create()
        arena.allocate(0, 0, 1 << 20)
        others = np.empty(2 << 30, np.uint8)
        print(arena.stride >= 64 << 20, arena.slots >= 16, 1 << 30 < arena.reserved < 4 << 30)
        """
    )
    assert said == "True True True"


@linux_only
def test_the_lower_of_two_limits_counts(run: Run) -> None:
    said = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 20, 100 << 20))
        from tundish.shm.memory import Arena

        print(Arena.create().reserved <= 100 << 20)
        """
    )
    assert said == "True"


def test_the_temporary_folder_is_used_when_named(tmp_path: Path, run: Run) -> None:
    said = run(
        """
        import os
        from tundish.shm.memory import Arena
        arena = Arena.create(stride=4096, slots=1)
        print(os.fstat(arena.fd).st_dev == os.stat(os.environ["TMPDIR"]).st_dev, arena.capacity > 0)
        """,
        TUNDISH_MEMORY="tmpdir",
        TMPDIR=str(tmp_path),
    )
    assert said == "True True"
    assert not list(tmp_path.iterdir())


def test_no_more_than_the_file_system_has_may_be_used() -> None:
    arena = Arena.create(stride=4096, slots=1)
    arena.capacity = None
    assert arena.bounded(5) == 5
    arena.capacity = 3
    assert arena.bounded(5) == 3
    arena.close()
