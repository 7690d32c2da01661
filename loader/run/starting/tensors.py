"""Torch tensors pickled by protocol 5, as arrays whose memory need not be copied.

This module imports torch only when it meets a tensor; a process that has a tensor has already imported torch.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.reducers import Descriptor

if TYPE_CHECKING:
    import numpy as np


def as_array(tensor: Any) -> tuple[np.ndarray, str | None] | None:
    """Return a tensor's memory as an array.

    Parameters
    ----------
    tensor : torch.Tensor
        Any tensor.

    Returns
    -------
    (numpy.ndarray, str or None) or None
        An array over the tensor's own memory, and the name of its dtype if numpy has no such dtype (bfloat16, say), in
        which case the array is of ints. None for a tensor that is more than its memory: on a device, sparse,
        quantized, or with a gradient.
    """
    if tensor.requires_grad or tensor.layout is not _torch().strided or tensor.device.type != "cpu":
        return None
    try:
        return tensor.numpy(), None
    except RuntimeError:  # conjugate, nested, ...
        return None
    except TypeError:  # a dtype that numpy lacks
        pass
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        bits = tensor.view(getattr(_torch(), f"int{8 * tensor.element_size()}"))
    except (AttributeError, RuntimeError):
        return None
    return bits.numpy(), str(tensor.dtype).partition(".")[2]


def tensor_of(array: np.ndarray, dtype: str | None = None) -> Any:
    """Return a tensor over an array's memory.

    Parameters
    ----------
    array : numpy.ndarray
        The array; the tensor keeps it alive.
    dtype : str or None
        The name of torch's dtype, if numpy has no such dtype.
    """
    torch = _torch()
    if array.flags.writeable:
        tensor = torch.from_numpy(array)
    else:
        with warnings.catch_warnings():  # a mapping that seems to be read-only, but is our own
            warnings.simplefilter("ignore")
            tensor = torch.from_numpy(array)
    return tensor if dtype is None else tensor.view(getattr(torch, dtype))


def reduce_tensor(tensor: Any) -> Any:
    """Reduce a tensor, like ``__reduce_ex__``; `NotImplemented` if torch's own reduction should be used."""
    found = as_array(tensor)
    if found is None or type(tensor).__reduce_ex__ is not _torch().Tensor.__reduce_ex__:
        return NotImplemented
    return tensor_of, found


def reduce_shared_tensor(tensor: Any) -> Any:
    """Reduce a tensor in shared memory, like ``__reduce_ex__``, to the same memory in the other process.

    `NotImplemented` for any other tensor, and if torch shares memory by name.
    """
    if tensor.layout is not _torch().strided or tensor.device.type != "cpu":
        return NotImplemented
    if tensor.requires_grad or not tensor.is_shared():
        return NotImplemented
    if _torch().multiprocessing.get_sharing_strategy() != "file_descriptor":
        return NotImplemented
    storage = tensor.untyped_storage()
    fd, nbytes = storage._share_fd_cpu_()
    place = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    return _open_shared, (Descriptor(fd), nbytes, str(tensor.dtype).partition(".")[2], place)


def _open_shared(memory: Descriptor, nbytes: int, dtype: str, place: tuple[Any, ...]) -> Any:
    """Return a tensor over shared memory that torch knows to be shared, so that sharing it again copies nothing."""
    torch = _torch()
    fd = memory.detach()
    try:
        storage = torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)  # noqa: SLF001 - torch's own way
    finally:
        os.close(fd)  # the storage has one of its own
    return torch.empty(0, dtype=getattr(torch, dtype)).set_(storage, *place)


def _torch() -> Any:
    return sys.modules.get("torch") or importlib.import_module("torch")
