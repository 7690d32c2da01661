"""Nests of arrays as nests of tensors: over the same memory wherever that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tundish.nests import map_nest

__all__ = ["as_tensors", "moves_itself"]

_NUMBERS = "biufc"


def as_tensors(element: Any) -> Any:
    """A nest with its arrays as tensors.

    Parameters
    ----------
    element : nest
        Of dict, list, tuple and namedtuple; their types are kept.

    Returns
    -------
    nest
        Arrays of numbers are tensors over the same memory, which stays in use (a slot stays leased)
        as long as the tensor lives. Numpy's scalars are tensors without dimensions. Anything else
        is passed on as it is: ``str``, ``bytes``, Python's numbers, arrays of objects, of strings
        and of times, and what is a tensor already.

    Notes
    -----
    Copied are arrays that torch cannot stand on: read-only ones (a tensor has no such flag, and
    writing to one would write where it must not), those in another byte order, those with negative
    strides.

    Examples
    --------
    >>> import numpy as np
    >>> as_tensors({"x": np.zeros(2, np.float32), "name": "a"})
    {'x': tensor([0., 0.]), 'name': 'a'}
    """
    return map_nest(_tensor, element, moves_itself)


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _over(leaf) if leaf.dtype.kind in _NUMBERS else leaf
    if isinstance(leaf, np.generic) and leaf.dtype.kind in _NUMBERS:
        return torch.from_numpy(np.array(leaf))
    return leaf


def _over(array: np.ndarray) -> torch.Tensor:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def moves_itself(value: Any) -> bool:
    """Whether something has a method ``to``: a tensor, and what is a nest for its own purposes.

    Torch's packed sequences are namedtuples, and some of their parts must not move.
    """
    return hasattr(value, "to")
