"""Reducers for objects that neither pickle nor cloudpickle handles, or not as needed.

- Objects around a function (caches, weak tables, TorchScript) are recreated around the function in the worker. A cache
  starts empty there; what weak tables and references point to survives in the worker if something else there
  holds it, as it did here.
- What multiprocessing shares (Value, Array, Event, Semaphore, Queue, Pipe) only travels while it
  starts a process, and our workers are no children of its own. Those of a ``spawn`` or
  ``forkserver`` context go by the name of a semaphore or the number of a descriptor, which a worker
  opens through ``/proc``. Those of a ``fork`` context can only be inherited.
- Memoryviews: pickle has none, and cloudpickle makes bytes of them.
- Modules of a class of their own, as several of torch's are.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import gc
import importlib
import io
import multiprocessing.context
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from tundish.loader.run.starting.byvalue import look_up, module_name

_Cached = type(functools.lru_cache(int))
_MADE_ANEW = ("__wrapped__", "cache_parameters")


def reduce_wrapped(value: Any, by_value: Callable[[str], bool]) -> Any:
    """Reduce an object around a function, or a module, like ``__reduce_ex__``; `NotImplemented` for any other.

    Parameters
    ----------
    value : object
        Any object.
    by_value : callable
        Returns True for a module whose functions are sent by value.
    """
    reduce = _REDUCERS.get(type(value))
    if reduce is not None:
        return reduce(value)
    if type(value) is _Cached:
        return _reduce_cached(value, by_value)
    if isinstance(value, functools.cached_property):
        return _reduce_property(value)
    if isinstance(value, types.ModuleType):
        return reduce_module(value)
    return _reduce_script(value)


def reduce_module(value: types.ModuleType) -> Any:
    """Reduce a module of a class of its own, which cloudpickle does not take for one, to its name.

    Cloudpickle comes upon ``torch.classes``, say, wherever code uses torch and an attribute or global named ``classes``.
    """
    name = vars(value).get("__name__")
    if type(value) is types.ModuleType or sys.modules.get(str(name)) is not value:
        return NotImplemented
    return importlib.import_module, (name,)


def _reduce_cached(value: Any, by_value: Callable[[str], bool]) -> Any:
    module = module_name(value)
    if not by_value(module) and look_up(module, value.__qualname__) is value:
        return NotImplemented  # its name is enough
    state = {name: part for name, part in vars(value).items() if name not in _MADE_ANEW}
    return _cached, (value.__wrapped__, value.cache_parameters()), state


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_property(value: functools.cached_property[Any]) -> Any:
    """Reduce a cached property without the lock that it has before Python 3.12."""
    state = {name: part for name, part in vars(value).items() if name != "lock"}
    made = (copyreg.__newobj__, (type(value),), state)  # type: ignore[attr-defined]
    return (*made, None, None, _set_unlocked) if hasattr(value, "lock") else made


def _set_unlocked(value: Any, state: dict[str, Any]) -> None:
    vars(value).update(state)
    value.lock = threading.RLock()


def _reduce_script(value: Any) -> Any:
    """Reduce TorchScript to the archive that ``torch.jit.save`` writes."""
    torch = sys.modules.get("torch")
    jit = getattr(torch, "jit", None)
    if jit is None:
        return NotImplemented
    if isinstance(value, jit.ScriptModule):
        return _load_script, (_archive(value, jit), None)
    if isinstance(value, jit.ScriptFunction):
        return _load_script, (_archive(value, jit), "forward")
    return NotImplemented


def _archive(script: Any, jit: Any) -> bytes:
    file = io.BytesIO()
    jit.save(script, file)
    return file.getvalue()


def _load_script(archive: bytes, method: str | None) -> Any:
    module = importlib.import_module("torch").jit.load(io.BytesIO(archive))
    return module if method is None else getattr(module, method)


def _reduce_reference(value: weakref.ref[Any]) -> Any:
    target = value()
    return (_dead, ()) if target is None else (weakref.ref, (target,))


class _Gone:
    """A stand-in for the dead target of a weak reference."""


def _dead() -> Any:
    return weakref.ref(_Gone())


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    # A view of the dict itself: `singledispatch` has one of the dict that it looks functions up in.
    types.MappingProxyType: lambda view: (types.MappingProxyType, (gc.get_referents(view)[0],)),
    weakref.WeakKeyDictionary: lambda table: (type(table), (), None, None, iter([*table.items()])),
    weakref.WeakValueDictionary: lambda table: (
        type(table),
        (),
        None,
        None,
        iter([*table.items()]),
    ),
    weakref.WeakSet: lambda table: (type(table), ([*table],)),
    weakref.ref: _reduce_reference,
}


_HOMES = {
    "multiprocessing.heap",
    "multiprocessing.sharedctypes",
    "multiprocessing.connection",
}


class Descriptor:
    """A file descriptor of another process.

    Parameters
    ----------
    fd : int
        Its number in that process.
    """

    def __init__(self, fd: int) -> None:
        self._path = f"/proc/{os.getpid()}/fd/{fd}"

    def detach(self) -> int:
        """Open it in this process."""
        return os.open(self._path, os.O_RDWR)


class _Starting:
    """A stand-in for the popen object that multiprocessing asks for descriptors while it starts a process."""

    DupFd = Descriptor

    def duplicate_for_child(self, fd: int) -> int:
        return fd


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Allow multiprocessing's objects to be pickled, within a block."""
    before = multiprocessing.context.get_spawning_popen()
    multiprocessing.context.set_spawning_popen(_Starting())  # type: ignore[arg-type]  # all it asks
    try:
        yield
    finally:
        multiprocessing.context.set_spawning_popen(before)


def reduce_shared(value: Any) -> Any:
    """Reduce memory and pipes of multiprocessing, like ``__reduce__``; else `NotImplemented`."""
    if not sys.platform.startswith("linux"):
        return NotImplemented
    reduce = getattr(ForkingPickler, "_extra_reducers", {}).get(type(value))
    if reduce is None or reduce.__module__ not in _HOMES:
        return NotImplemented
    return reduce(value)


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    """Reduce a view to one of the same format, shape and content; large ones become read-only.

    Parameters
    ----------
    view : memoryview
        A view of any format that numpy or, for a single letter, `struct` knows; strides are not kept.
    """
    if len(view.format.lstrip("@")) == 1 and all(view.shape or ()):
        # As an array's memory: a pickle.PickleBuffer over a memoryview crashes the garbage collector.
        dense = np.frombuffer(view if view.c_contiguous else bytearray(view.tobytes()), np.uint8)
        return _view, (dense, view.format, view.shape, view.readonly)
    return _data, (np.ascontiguousarray(view), view.shape, view.readonly)


def _view(memory: np.ndarray, letter: str, shape: tuple[int, ...], readonly: bool) -> memoryview:
    found: memoryview = memory.data.cast(letter, shape)  # type: ignore[call-overload]
    return found.toreadonly() if readonly else found


def _data(array: np.ndarray, shape: tuple[int, ...], readonly: bool) -> memoryview:
    found: memoryview = array.reshape(shape).data
    return found.toreadonly() if readonly else found
