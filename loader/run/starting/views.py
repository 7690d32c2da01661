"""Memoryviews that functions have captured: pickle has none, and cloudpickle makes bytes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["reduce_view"]


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    """As ``__reduce_ex__``: a view of the same format, shape and content; of large memory a read-only one.

    Parameters
    ----------
    view : memoryview
        Of any format numpy knows, or `struct` by one letter; strides are not kept.
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
