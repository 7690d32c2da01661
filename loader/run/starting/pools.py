"""The threads of libraries that are loaded already, where an environment variable comes too late."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["find_pools"]

_SETTERS = {
    "openblas": tuple(
        f"{prefix}openblas_set_num_threads{suffix}"
        for prefix in ("scipy_", "")
        for suffix in ("64_", "")
    ),
    "mkl_rt": ("MKL_Set_Num_Threads",),
    "blis": ("bli_thread_set_num_threads",),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
}
"""By a part of a library's file name: what sets how many threads it uses."""

_MODULES = {"torch": "set_num_threads", "cv2": "setNumThreads", "pyarrow": "set_cpu_count"}


def find_pools() -> list[Callable[[int], Any]]:
    """Find what sets how many threads a loaded library uses; each is to be called with a number.

    To be called in each worker, and not where workers are forked from: some begin their threads then.
    """
    found = []
    for path in _loaded():
        names = next((names for part, names in _SETTERS.items() if part in Path(path).name), ())
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path) if names else None
            found += [getattr(library, name) for name in names if hasattr(library, name)][:1]
    for module, name in _MODULES.items():
        setter = getattr(sys.modules.get(module), name, None)
        if setter is not None:
            found.append(setter)
    return found


def _loaded() -> list[str]:
    """The files that this process has mapped which may be libraries."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if ".so" in line}
    return sorted(paths)
