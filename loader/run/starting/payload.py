"""The payload of an iterator's workers: its functions and sources, once, in shared memory.

An unnamed file, written once and mapped read-only by all workers::

    head | pickles, one for each object | large buffers, aligned | index

- Functions are pickled by cloudpickle, and so are the classes of modules that a worker cannot import, such as the
  user's ``__main__``; a worker registers them in a module of that name, where pickle finds them. Instances are then
  sent by reference in both directions: ``type(x) is Thing`` holds in the consumer.
- Arrays and torch tensors from 64 KiB on, and Arrow's buffers, are not in the pickles. Workers get read-only views
  of the file, so they exist once, however many workers there are. (A ``bytes`` is copied by each worker, since
  Python has no views of that type.) An array over a mapped file maps that file again instead.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import linecache
import mmap
import os
import pickle
import struct
import sys
import traceback
import types
import weakref
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import cloudpickle
import numpy as np

from tundish.errors import SharedMemoryError
from tundish.forked import not_inherited
from tundish.loader.run.starting.byvalue import (
    ByValue,
    by_value,
    install,
    look_up,
    module_name,
    with_slots,
    without_hooks,
)
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.mapped import mapped_file, open_mapped
from tundish.loader.run.starting.preload import named_in
from tundish.loader.run.starting.reducers import (
    reduce_shared,
    reduce_view,
    reduce_wrapped,
    starting,
)
from tundish.loader.run.starting.tensors import reduce_shared_tensor, reduce_tensor
from tundish.shm.budget import default_budget
from tundish.shm.memory import NORESERVE

if sys.platform != "win32":
    import fcntl

_LARGE = 64 << 10  # bytes from which on a buffer is shared
_ALIGNMENT = 128
_MOST_PATHS = 200
_CHECKED = 64 << 20  # bytes from which on we look whether there is memory for them
_HEAD = struct.Struct("<QQQ")  # the end of the pickles, the position of the index, its length

_CACHED = type(functools.lru_cache(int))

Array = np.ndarray[Any, np.dtype[Any]]
Met = types.FunctionType | type


class Payload:
    """Packed objects; made by `pack`.

    Attributes
    ----------
    fd : int
        The file's descriptor, sent to workers.
    nbytes : int
        Its size.
    met : tuple of functions and types
        The functions in it, and the types of all its objects.
    modules : frozenset of str
        The modules that a worker needs to unpickle it.
    paths : tuple of str
        Files that it maps, and files of records that workers open, as far as they are known: the first 200.
    """

    def __init__(
        self, fd: int, met: tuple[Met, ...], named: Iterable[str], paths: Iterable[str] = ()
    ) -> None:
        self.fd, self.met = fd, met
        self.paths = tuple(paths)
        self.modules = frozenset({*map(module_name, met), *named})
        self.nbytes = os.fstat(fd).st_size
        self._close = weakref.finalize(self, os.close, fd)
        not_inherited(self, Payload.close)

    def close(self) -> None:
        """Close the file; workers that have received it keep it open. Safe to call twice."""
        self._close()


_ADVICE = "make it in worker_init=, make it when the function first needs it, or use workers=0"


def pack(objects: Sequence[tuple[str, object]], advice: str = _ADVICE) -> Payload:
    """Write objects to a file that workers can map.

    Parameters
    ----------
    objects : sequence of (str, object)
        Objects with their names for errors. What several of them refer to is stored once, and is one object
        again in the worker.
    advice : str
        What to do about an object that cannot be pickled, for the error.

    Returns
    -------
    Payload

    Raises
    ------
    TypeError
        Something cannot be pickled: what, where in which object, and what to do about it.
    SharedMemoryError
        There is not enough memory.
    """
    fd = scratch_file()
    try:
        with open(fd, "wb", closefd=False) as file, by_value() as modules, starting():
            pickler = _PayloadPickler(file, modules)
            _write(file, objects, pickler, advice)
        _seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return Payload(fd, tuple(pickler.met.values()), pickler.named, pickler.paths)


def met_in(value: object) -> tuple[tuple[Met, ...], frozenset[str]]:
    """Return the functions in an object and the types in it, and the modules that unpickling it imports.

    Raises
    ------
    Exception
        It cannot be pickled.
    """
    with by_value() as modules, starting():
        pickler = _PayloadPickler(io.BufferedWriter(_Nowhere()), modules)
        pickler.dump(value)
    met = tuple(pickler.met.values())
    return met, frozenset({*map(module_name, met), *pickler.named})


def _write(
    file: io.BufferedWriter,
    objects: Sequence[tuple[str, object]],
    pickler: _PayloadPickler,
    advice: str,
) -> None:
    file.write(bytes(_HEAD.size))
    for label, value in objects:
        try:
            pickler.dump(value)
        except Exception as error:
            raise _unpicklable(label, value, error, pickler.modules, advice) from error
    # The namespaces of functions that came by value are those of these functions, once more.
    pickler.dump((pickler.homes, pickler.sources, list(pickler.globals_ref.values())))
    pickles_end = end = file.tell()
    places = []
    for buffer in pickler.buffers:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = start + buffer.nbytes
        places.append((start, end))
    index = pickle.dumps(([label for label, _ in objects], places, pickler.order))
    _check_memory(end)
    try:
        for buffer, (start, _) in zip(pickler.buffers, places, strict=True):
            file.seek(start)
            file.write(buffer)
        file.seek(end)
        file.write(index)
        file.seek(0)
        file.write(_HEAD.pack(pickles_end, end, len(index)))
        file.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.ENOMEM):
            raise
        status = os.fstatvfs(file.fileno())
        raise _no_room(end, status.f_bavail * status.f_frsize) from error


def unpack(
    fd: int, *, writable: bool = False, namespaces: dict[str, dict[str, Any]] | None = None
) -> list[Any]:
    """Map a payload and return its objects; the caller may close the descriptor afterwards.

    Large arrays are views of the mapping: read-only, or if `writable`, copied page by page when they are written to.
    An error while an object is unpickled has a note that names the object. `namespaces` receives the globals of
    functions that were sent by value, by module name.
    """
    # Private and writable in any case: a tensor knows no read-only memory.
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    view = memoryview(mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE | NORESERVE, prot=protection))
    if not writable:
        view = view.toreadonly()
    pickles_end, start, length = _HEAD.unpack_from(view)
    labels, places, order = pickle.loads(view[start : start + length])
    buffers = [view[begin:end] for begin, end in places]
    reader = _Reader(view[_HEAD.size : pickles_end])
    unpickler = pickle.Unpickler(reader, buffers=(buffers[i] for i in order))
    objects = []
    for label in labels:
        try:
            objects.append(unpickler.load())
        except BaseException as error:
            error.add_note(f"while a worker unpickled {label}")
            if isinstance(error, RecursionError):
                _advise(error)
            raise
    homes, sources, by_value = unpickler.load()
    if namespaces is not None:
        namespaces.update((str(each.get("__name__")), each) for each in by_value)
    for module, qualname, cls in homes:
        install(module, qualname, cls)
    for filename, lines in sources.items():
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    return objects


def _advise(error: RecursionError) -> None:
    """Add a note to the error of a `__getattr__` that looks for an attribute by itself."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "__getattr__":
            error.add_note(
                f"`{frame.f_code.co_qualname}` is called before `__init__` has set attributes: raise AttributeError for names "
                'that begin with __, or use multiprocessing_context="fork" (in a pipeline, Options(start="fork"))'
            )
            return


# ---------------------------------------------------------------------------------------- pickling


class _PayloadPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle that keeps large buffers and arrays over mapped files out of the pickle.

    Attributes
    ----------
    buffers : list of memoryview
        The large buffers, each once.
    order : list of int
        The indices of buffers in the order in which the pickles ask for them.
    homes : list of (str, str, type or function)
        Module and qualified name of the classes and functions that are sent by value.
    sources : dict
        Source lines of code that is in no file (notebook cells), for tracebacks.
    modules : ByValue
        The modules whose functions and classes are sent by value.
    met : dict
        The functions found, and the types of all objects, by id.
    named : set of str
        Modules that the user's functions import.
    paths : dict of str
        Files that workers open.
    """

    def __init__(self, file: io.BufferedWriter, modules: ByValue) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._keep)
        self.buffers: list[memoryview] = []
        self.order: list[int] = []
        self.homes: list[tuple[str, str, Met]] = []
        self.sources: dict[str, list[str]] = {}
        self.modules = modules
        self.met: dict[int, Met] = {}
        self.named: set[str] = set()
        self.paths: dict[str, None] = {}
        self._places: dict[tuple[int, int], int] = {}

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep a large buffer out of the pickle; return True for a buffer that belongs in it."""
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        key = (np.frombuffer(raw, np.uint8).ctypes.data, raw.nbytes)
        if key not in self._places:
            self._places[key] = len(self.buffers)
            self.buffers.append(raw)
        self.order.append(self._places[key])
        return False

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        met = value if isinstance(value, (type, types.FunctionType)) else kind
        self.met[id(met)] = met
        opens = getattr(kind, "opens_paths", None)
        if opens is not None:
            self._opened(opens(value))
        if kind is types.MethodType or kind is _CACHED:
            function = value.__wrapped__ if kind is _CACHED else value.__func__
            if isinstance(function, types.FunctionType):  # not one of Cython's
                self.met[id(function)] = function
        if kind is types.CodeType:
            _, arguments = self.dispatch_table[kind](value)
            return _make_code, (value.co_filename, *arguments)
        if isinstance(value, np.ndarray):
            return self._reduce_array(value)
        if type(value) is memoryview:
            return reduce_view(value)
        if (torch := sys.modules.get("torch")) is not None and type(value) is torch.Tensor:
            shared = reduce_shared_tensor(value)
            return reduce_tensor(value) if shared is NotImplemented else shared
        for reduced in (reduce_shared(value), reduce_wrapped(value, self.modules.take)):
            if reduced is not NotImplemented:
                return reduced
        if isinstance(value, _FILES) and value not in (sys.stdin, sys.stdout, sys.stderr):
            raise pickle.PicklingError("an open file has a position that processes cannot share")
        if isinstance(value, type) and self.modules.take(module_name(value)):
            if look_up(value.__module__, value.__qualname__) is value:
                self.homes.append((value.__module__, value.__qualname__, value))
        elif isinstance(value, types.FunctionType):
            self.named.update(named_in(value))
            home, name = value.__module__, value.__qualname__
            if self.modules.take(home) and "." not in name and look_up(home, name) is value:
                # Where pickles of a pool within a worker look for it.
                self.homes.append((home, name, value))
            filename = value.__code__.co_filename
            cached = linecache.cache.get(filename)
            if cached is not None and len(cached) == 4 and cached[1] is None:
                self.sources[filename] = cached[2]
        elif isinstance(value, types.ModuleType):
            self.modules.take(value.__name__)
        reduced = super().reducer_override(value)
        is_made = isinstance(value, type) and reduced is not NotImplemented
        return without_hooks(value, with_slots(value, reduced)) if is_made else reduced

    def _opened(self, paths: Iterable[str]) -> None:
        for path in islice(paths, _MOST_PATHS - len(self.paths)):
            if "://" not in path:
                self.paths[os.path.abspath(path)] = None  # noqa: PTH100 - links stay as they are

    def _reduce_array(self, array: Array) -> Any:
        if (place := mapped_file(array)) is not None:
            self._opened([place.path])
            return open_mapped, (place,)
        if (
            type(array) is np.ndarray
            and array.nbytes >= _LARGE
            and not array.dtype.hasobject
            and not array.flags.forc
        ):
            # Numpy would put it into the pickle. Its axes keep their order in memory, because
            # the order in which a sum runs through an array shows in the sum's last bits.
            axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
            dense = np.ascontiguousarray(array.transpose(axes))
            return np.transpose, (dense, tuple(np.argsort(axes).tolist()))
        return NotImplemented


def _make_code(filename: str, *arguments: Any) -> types.CodeType:
    """Make code whose tracebacks name its file; from 3.1.3 on, cloudpickle leaves the file out."""
    return types.CodeType(*arguments).replace(co_filename=filename)


_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)


def _unpicklable(
    label: str, value: object, error: Exception, modules: ByValue, advice: str
) -> TypeError:
    def attempt(part: object) -> Exception | None:
        try:
            _PayloadPickler(io.BufferedWriter(_Nowhere()), modules).dump(part)
        except Exception as failure:  # noqa: BLE001 - anything can be raised by a __reduce__
            return failure
        return None

    from tundish.loader.run.starting.unpicklable import find_unpicklable  # noqa: PLC0415 - for an error

    where, what, reason = find_unpicklable(value, error, attempt)
    return TypeError(
        f"{label} cannot be sent to worker processes: {where} is a {what} ({reason}); {advice}"
    )


class _Nowhere(io.RawIOBase):
    """A file that discards what is written to it."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


# ------------------------------------------------------------------------------------- the file


class _Reader:
    """A file over a mapping, for an unpickler to read.

    The real file cannot be read, since all processes share its position.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    def read(self, size: int) -> bytes:
        start = self._position
        self._position += size
        return bytes(self._view[start : self._position])

    def readinto(self, buffer: memoryview) -> int:
        start = self._position
        self._position = min(start + len(buffer), len(self._view))
        buffer[: self._position - start] = self._view[start : self._position]
        return self._position - start

    def readline(self) -> bytes:
        line = self._view[self._position :].tobytes().partition(b"\n")[0] + b"\n"
        self._position += len(line)
        return line


def _check_memory(nbytes: int) -> None:
    """Raise if there is not enough memory, before the kernel kills for it."""
    if nbytes >= _CHECKED:
        import psutil  # noqa: PLC0415 - takes a while, and is needed for much memory only

        available = min(psutil.virtual_memory().available, default_budget().limit)
        if nbytes > available:
            raise _no_room(nbytes, available)


def _no_room(nbytes: int, available: int) -> SharedMemoryError:
    return SharedMemoryError(
        "what the functions and sources of a dataset hold",
        nbytes,
        available,
        "use np.memmap or a file for what is large, or workers=0",
    )


def _seal(fd: int) -> None:
    """Seal a memfd against changes; other files have no seals."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
