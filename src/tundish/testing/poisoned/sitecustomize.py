"""Makes numpy allocate small arrays from the system, not from its own cache.

`tundish.testing.poison` puts this folder on ``PYTHONPATH``, so every interpreter imports this module
as it starts: zygotes, workers and helper programs too. An array of less than a kilobyte otherwise
reuses the memory of one that was freed, which the allocator, and so the pattern, never sees.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_GET_HANDLER = 305  # `PyDataMem_GetHandler` in numpy's table of C functions


class _Handler(ctypes.Structure):
    """NEP 49's ``PyDataMem_Handler``."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("ctx", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def take_no_small_ones_from_a_cache() -> None:
    """Replace ``malloc`` in numpy's default handler, for all threads of this process."""
    core: Any = getattr(np, "_core", None) or np.core  # before numpy 2
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = ctypes.cast(
        pointer(core._multiarray_umath._ARRAY_API, None),  # noqa: SLF001 - numpy's C functions
        ctypes.POINTER(ctypes.c_void_p),
    )
    capsule = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER])()
    handler = _Handler.from_address(pointer(capsule, b"mem_handler"))
    assert (handler.name, handler.version, handler.ctx) == (b"default_allocator", 1, None)
    # It is called as malloc(ctx, size): with the context that is null, realloc is malloc.
    handler.malloc = ctypes.cast(ctypes.CDLL(None).realloc, ctypes.c_void_p).value


if __name__ == "sitecustomize":  # and not where tests look through the modules of the package
    take_no_small_ones_from_a_cache()
