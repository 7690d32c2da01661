"""Reasons not to fork a process: accelerators in use, and threads that the child would lack."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from typing import Any

from tundish.shm.budget import portable
from tundish.tracebacks import callers_level

_SHOWN = 5
_OURS = "tundish-"
_told: set[int] = set()


def check_forkable() -> None:
    """Raise if children forked from this process could not work.

    Raises
    ------
    RuntimeError
        The system cannot fork, or an accelerator is in use; the message says what to do.
    """
    if portable() or not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise RuntimeError(
            'workers are forked from this process (start="fork", multiprocessing_context="fork") on Linux '
            "only, and not with TUNDISH_PORTABLE=1: leave it out, and give workers what they need as arguments"
        )
    if (found := _accelerator()) is not None:
        raise RuntimeError(
            f"workers cannot be forked from this process any more: {found}, whose driver does not survive "
            "a fork. Make the iterator before the accelerator is first used (persistent_workers=True keeps a "
            'DataLoader\'s workers), or leave start="fork" or multiprocessing_context="fork" out'
        )


def _accelerator() -> str | None:
    """Describe the accelerator that this process uses; None without one. Initializes nothing."""
    torch: Any = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        begun = getattr(getattr(torch, name, None), "is_initialized", None)
        if begun is not None and begun():
            return f"torch.{name} is initialized"
    bridge = sys.modules.get("jax._src.xla_bridge")
    backends = [name for name in getattr(bridge, "_backends", ()) if name != "cpu"]
    if backends:
        return f"JAX has begun to use {', '.join(map(str, backends))}"
    return _cuda_context()


def _cuda_context() -> str | None:
    """Describe the devices on which this process has a CUDA context; None if no library has loaded the driver."""
    try:
        # As it is loaded; else there is an error.
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        ask = driver.cuDevicePrimaryCtxGetState
    except (OSError, AttributeError):
        return None
    count, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)):  # it has not been initialized
        return None
    for device in range(count.value):
        failed = ask(device, ctypes.byref(flags), ctypes.byref(active))
        if not failed and active.value:
            return f"CUDA device {device} has a context"
    return None


def warn_of_threads() -> None:
    """Warn, once a process, that other threads may hold locks at the fork.

    Only Python's threads count: libraries prepare their pools of native threads (BLAS, Arrow, torch) for a fork,
    or use a single thread in workers.
    """
    others = [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and not thread.name.startswith(_OURS)
    ]
    if not others or os.getpid() in _told:
        return
    _told.add(os.getpid())
    shown = ", ".join(others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
    warnings.warn(
        f"workers are forked from this process while {len(others)} other thread(s) run in it ({shown}). "
        "A lock that one of them holds stays locked in workers: a worker that waits for it is ended, and the "
        'element\'s error is a StalledError. Leave start="fork" out, or make the iterator before these threads start',
        RuntimeWarning,
        stacklevel=callers_level(),
    )
