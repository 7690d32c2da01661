"""The arena: a process's shared memory, unnamed, sparse, mapped once, divided into slots.

The whole arena is reserved when it is made, which takes addresses but no memory, and is never
mapped again: a slot grows in place by allocating more pages of its own range, and shrinks by
releasing them. So there is one descriptor to send to a worker and no protocol for growth.

Pages are always allocated before they are written. A write to a page that cannot be allocated is a
SIGBUS, which no Python code can catch; an allocation that fails is an exception with numbers.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SharedMemoryError
from tundish.shm.budget import MEMORY_KINDS, forced_memory, portable

if sys.platform != "win32":
    import fcntl
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = mmap.PAGESIZE
MIB = 1 << 20
GIB = 1 << 30

# What is tried when nobody names a size. A slot must hold a batch, so strides are kept large at
# the cost of slots; below the floors, batches sent over the channel serve better than an arena.
_LARGEST_STRIDE, _USEFUL_STRIDE, _SMALLEST_STRIDE = 4 * GIB, 64 * MIB, MIB
_FEWEST_SLOTS = 16

# Containers often have a /dev/shm of 64 MiB, which is full after two batches.
_USEFUL_DEV_SHM = 128 * MIB

# fallocate on tmpfs gives everything back when a signal arrives (before Linux 6.14): a process
# with a profiler's timer would start a large allocation again for ever. Short steps get through.
_ALLOCATION_STEP = MIB

_MAP_FIXED = 0x10  # Linux and macOS
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform.startswith("linux") else 0)
_MFD_NOEXEC_SEAL = 0x8  # Python names it from 3.14 on


class Arena:
    """The shared memory of one process, divided into slots of one virtual size.

    Attributes
    ----------
    kind : str
        The kind of memory: ``memfd``, ``dev-shm``, ``tmpdir``; ``attached`` in a worker.
    fd : int
        The descriptor to send to workers. It is closed on exec.
    stride, slots, reserved : int
        Virtual bytes of a slot, the number of slots, and their product.
    capacity : int or None
        Free bytes of the filesystem when the arena was made; None if only RAM limits it.
    map : mmap.mmap
        The mapping of the whole arena.
    owner : int
        The process that made the arena and alone releases pages; 0 in a worker.
    """

    def __init__(self, fd: int, stride: int, slots: int, *, kind: str, owner: int) -> None:
        self.kind = kind
        self.fd = fd
        self.stride = stride
        self.slots = slots
        self.reserved = stride * slots
        self.owner = owner
        # Not `np.ndarray(buffer=map)` and no `map.close()` anywhere: the first holds no export,
        # so the second would succeed and the next access be a segmentation fault.
        self.map = mmap.mmap(fd, self.reserved)
        with contextlib.suppress(AttributeError, OSError):
            self.map.madvise(mmap.MADV_DONTDUMP)  # a core file need not walk a terabyte
        self.capacity = _free_bytes(fd)
        self._close_fd = weakref.finalize(self, os.close, fd)

    def bounded(self, nbytes: int) -> int:
        """Return a number of bytes, or the room of the file system if that is less."""
        return nbytes if self.capacity is None else min(nbytes, self.capacity)

    @classmethod
    def create(cls, *, stride: int | None = None, slots: int = 256) -> Arena:
        """Make the process's arena from the best available kind of memory.

        Parameters
        ----------
        stride : int, optional
            Virtual bytes of a slot. By default as large as the limits allow, up to 4 GiB; if
            an address or file size limit leaves little, there are fewer slots, too.
        slots : int
            The number of slots.

        Returns
        -------
        Arena

        Raises
        ------
        SharedMemoryError
            No kind of memory is usable. Batches can still be sent over the channel.
        """
        failures = []
        for kind in MEMORY_KINDS:
            try:
                return cls._create(kind, stride, slots)
            except OSError as error:
                failures.append(f"{kind}: {_reason(error)}")
        raise SharedMemoryError(
            "shared memory for batches",
            stride or _SMALLEST_STRIDE,
            0,
            f"nothing is usable ({'; '.join(failures)})",
        )

    @classmethod
    def _create(cls, kind: str, stride: int | None, slots: int) -> Arena:
        fd = _open(kind)
        for size, count in _sizes(stride, slots):
            try:
                os.ftruncate(fd, size * count)
                arena = cls(fd, size, count, kind=kind, owner=os.getpid())
            except (OSError, OverflowError, ValueError):
                continue
            if kind == "memfd":  # nobody can shrink it under us: that would be a SIGBUS, too
                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return arena
        os.close(fd)
        raise OSError(errno.ENOMEM, "the address or file size limit leaves no room for it")

    @classmethod
    def attach(cls, fd: int, stride: int, slots: int) -> Arena:
        """Map another process's arena; takes ownership of the received descriptor."""
        os.set_inheritable(fd, False)
        return cls(fd, stride, slots, kind="attached", owner=0)

    def make_private(self) -> None:
        """Turn the mapping into a private copy in a forked child, so that its writes reach no other process.

        Arrays over the mapping stay valid, with the contents that they have. If the system refuses, the mapping becomes
        read-only, so that writing ends the child.
        """
        import ctypes  # noqa: PLC0415 - takes a while, and few workers fork

        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
        ]  # fmt: skip
        at = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        flags = mmap.MAP_PRIVATE | _MAP_FIXED | NORESERVE
        found = libc.mmap(at, self.reserved, mmap.PROT_READ | mmap.PROT_WRITE, flags, self.fd, 0)
        if found != at:
            libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(self.reserved), mmap.PROT_READ)

    def allocate(self, slot: int, offset: int, nbytes: int) -> None:
        """Allocate pages for a range of a slot, so that writing to it cannot fail.

        Its contents are kept, except on systems without ``posix_fallocate`` (and with
        ``TUNDISH_PORTABLE=1``), where the range is filled with zeros: the caller must own the range
        it allocates. Adjacent bytes never change.

        Parameters
        ----------
        slot : int
            The slot's number.
        offset, nbytes : int
            The range within the slot.

        Raises
        ------
        SharedMemoryError
            There is not enough memory, or the range does not fit into a slot.
        """
        if offset + nbytes > self.stride:
            raise SharedMemoryError(
                "a batch",
                offset + nbytes,
                self.stride,
                "slots cannot be larger: use smaller batches",
            )
        if nbytes <= 0:
            return
        start = slot * self.stride + offset
        try:
            _allocate(self.fd, start, start + nbytes)
        except OSError as error:
            raise SharedMemoryError(
                f"a slot of shared memory ({_reason(error)})",
                nbytes,
                _available(self.fd),
                _remedy(error.errno),
            ) from error

    def discard(self, slot: int, offset: int, nbytes: int) -> bool:
        """Release a range's pages to the system; its bytes are zeros afterwards.

        Returns True if they were released: not every system can, and only the process that
        made the arena may (a forked child shares these pages with its parent).
        """
        if os.getpid() != self.owner:
            return False
        start = -(-(slot * self.stride + offset) // PAGE) * PAGE
        end = (slot * self.stride + offset + nbytes) // PAGE * PAGE
        if start >= end:
            return True
        try:
            self.map.madvise(mmap.MADV_REMOVE, start, end - start)
        except (AttributeError, OSError):
            return False
        return True

    def root(self, slot: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a slot's first bytes as a new writable array, which keeps the mapping alive."""
        return np.frombuffer(self.map, np.uint8, nbytes, slot * self.stride)

    def close(self) -> None:
        """Close the arena; the memory is freed when the last array over it is gone.

        Safe to call twice, and in a forked child.
        """
        self._close_fd()
        self.__dict__.pop("map", None)  # unmapped by the last root, never by force


def explain() -> list[tuple[str, bool, str]]:
    """Return which kinds of memory are usable here, and why or why not.

    Returns
    -------
    list of (str, bool, str)
        Kind, usable, reason; in order of preference.
    """
    rows = []
    for kind in MEMORY_KINDS:
        try:
            fd = _open(kind)
        except OSError as error:
            rows.append((kind, False, _reason(error)))
            continue
        free = _free_bytes(fd)
        rows.append((kind, True, "bounded by RAM" if free is None else f"{free:,} bytes free"))
        os.close(fd)
    return rows


def _open(kind: str) -> int:
    """Return an empty file of a kind of memory, after checking that it can allocate a page."""
    forced = forced_memory()
    if forced is not None and forced != kind:
        raise OSError(errno.EPERM, f"ruled out by TUNDISH_MEMORY={forced}")
    if kind == "memfd":
        fd = _open_memfd(forced=forced is not None)
    elif kind == "dev-shm":
        fd = _open_dev_shm(forced=forced is not None)
    else:
        fd = _open_unlinked()
    try:
        _allocate(fd, 0, PAGE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_memfd(*, forced: bool) -> int:
    if portable() and not forced:
        raise OSError(errno.EPERM, "ruled out by TUNDISH_PORTABLE")
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no memfd_create")
    return open_memfd("tundish")


def open_memfd(name: str) -> int:
    """Open an empty memory file, closed on exec, that may be sealed; Linux only.

    Parameters
    ----------
    name : str
        The name in ``/proc/PID/fd``; it is visible nowhere else.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: Linux before 6.3 does not know the flag
            raise
    return os.memfd_create(name, flags)


def _open_dev_shm(*, forced: bool) -> int:
    fd = _open_unlinked("/dev/shm")  # noqa: S108 - the file never has a name
    free = _free_bytes(fd)
    if free is not None and free < _USEFUL_DEV_SHM and not forced:
        os.close(fd)
        raise OSError(errno.ENOSPC, f"{free:,} bytes free; {_USEFUL_DEV_SHM:,} are of use")
    return fd


def _open_unlinked(folder: str | None = None) -> int:
    import tempfile  # noqa: PLC0415 - takes a while, and is needed where there is no memfd

    # O_TMPFILE where there is one: the file has no name from the start, so a kill leaves none.
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return os.dup(file.fileno())


def _sizes(stride: int | None, slots: int) -> Iterator[tuple[int, int]]:
    """Yield (stride, slots) to try, in order of preference."""
    if stride is not None:
        yield -(-stride // PAGE) * PAGE, slots
        return
    room = _room()
    size, count = _LARGEST_STRIDE, slots
    while size >= _SMALLEST_STRIDE:
        if size * count <= room:
            yield size, count
        if size <= _USEFUL_STRIDE and count > _FEWEST_SLOTS:
            count //= 2
        else:
            size //= 2


def _room() -> int:
    """Return how many bytes an arena may reserve: the file size limit, half of the free addresses."""
    # Asked for beforehand: to try a larger file raises SIGXFSZ, which Python ignores, but a user
    # may have restored. The other half of the addresses is for everything else the process does.
    room = sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY:
        room = limit
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        import psutil  # noqa: PLC0415 - takes a while, and few come here

        room = min(room, (limit - psutil.Process().memory_info().vms) // 2)
    return room


def _allocate(fd: int, start: int, end: int) -> None:
    # Exactly the range; the system rounds to whole pages. Others may be writing next to it, and
    # where the system does not know how, zeros are written, by the C library or here.
    if hasattr(os, "posix_fallocate") and not portable():
        for at in range(start, end, _ALLOCATION_STEP):
            os.posix_fallocate(fd, at, min(_ALLOCATION_STEP, end - at))
        return
    zeros = memoryview(bytes(min(_ALLOCATION_STEP, end - start)))
    while start < end:
        start += os.pwrite(fd, zeros[: end - start], start)


def _free_bytes(fd: int) -> int | None:
    """Return the free bytes of a file's filesystem; None if it has no size of its own."""
    status = os.fstatvfs(fd)
    return status.f_bavail * status.f_frsize if status.f_blocks else None


def _available(fd: int) -> int:
    free = _free_bytes(fd)
    if free is not None:
        return free
    import psutil  # noqa: PLC0415 - as in `_room`

    return int(psutil.virtual_memory().available)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _remedy(code: int | None) -> str:
    if code == errno.EFBIG:
        return "raise the file size limit (ulimit -f)"
    if code == errno.ENOSPC:
        return (
            "enlarge /dev/shm (docker run --shm-size), set TMPDIR to a roomier place, "
            "or lower the memory budget (TUNDISH_BUDGET)"
        )
    return "use smaller batches, or lower the memory budget (TUNDISH_BUDGET)"
