"""The dtype of a batch's column: torch's rules, on numpy.

torch infers a dtype for each value and widens them pairwise, by kind before width: int64 with
float32 is float32 there, and float64 in numpy. `Rules` says how strict to be. A torch loader
refuses the arrays that no tensor can be; a numpy loader takes them, where the meaning is plain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Leaf = Callable[[np.ndarray, str | None], Any]
"""``leaf(array, torch_dtype)``: what stands in the batch for an array that torch makes a tensor.

`torch_dtype` names the dtype where numpy's does not say it; the array is then integers with the
same bits.
"""

TORCH_CHARS = frozenset("?bBhHiIlLqefdFD")  # every array dtype that torch takes: no ulonglong
_NUMPY_KINDS = frozenset("biufcmMV")
_WIDE_UNSIGNED = (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64))
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_DOUBLES = (np.dtype(np.float64), np.dtype(np.complex128))


def as_is(array: np.ndarray, torch_dtype: str | None) -> Any:
    """Return the leaf of a numpy loader: the array; a tensor if numpy has no such dtype."""
    if torch_dtype is None:
        return array
    torch = sys.modules["torch"]  # the array was copied from a tensor
    return torch.from_numpy(array).view(getattr(torch, torch_dtype))


@dataclass(frozen=True)
class Rules:
    """The rules of collating where numpy and torch differ.

    Parameters
    ----------
    torch : bool
        True for torch batches: tensors stay tensors, and what torch refuses is refused.
    leaf : callable
        Converts each array that torch would make a tensor.
    """

    torch: bool
    leaf: Leaf


NUMPY = Rules(torch=False, leaf=as_is)


def is_tensor(value: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def has_tensor(values: Sequence[Any]) -> bool:
    """Return True if any value is a torch tensor."""
    return "torch" in sys.modules and any(map(is_tensor, values))


def array_dtype(array: np.ndarray | np.generic, rules: Rules) -> np.dtype[Any]:
    """Return the dtype, in native byte order, of an array in a batch.

    Raises
    ------
    ValueError
        Under torch's rules: another byte order, or strides that a tensor cannot have.
    TypeError
        There is no such dtype in a batch: text, Python objects; under torch's rules times, records
        and extended precision too.
    """
    dtype = array.dtype
    if rules.torch:
        _check_layout(array)
    known = dtype.char in TORCH_CHARS if rules.torch else dtype.kind in _NUMPY_KINDS
    if not known or dtype.hasobject:
        kind = "a tensor" if rules.torch else "a batch"
        raise TypeError(f"can't convert an array of {dtype!r}: {kind} has no such dtype")
    return dtype if dtype.isnative and dtype.char != "q" else np.dtype(dtype.newbyteorder("=").str)


def _check_layout(array: np.ndarray | np.generic) -> None:
    width = array.dtype.itemsize
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            f"an array has negative strides {array.strides}, which a tensor cannot have; "
            "copy it, for example with array.copy()"
        )
    if width and any(stride % width for stride in array.strides):
        raise ValueError(
            f"an array has strides {array.strides} that are not multiples of its item size {width}, "
            "which a tensor cannot have; copy it, for example with array.copy()"
        )
    if not array.dtype.isnative:
        raise ValueError(
            f"an array of {array.dtype!r} has a byte order that is not this machine's, which a "
            "tensor cannot have; convert it, for example with array.astype"
        )


def value_dtype(value: Any, rules: Rules) -> np.dtype[Any]:
    """Return the dtype that torch infers for one number or array.

    Raises
    ------
    TypeError
        For text, sequences, and arrays that cannot be in a batch.
    RuntimeError
        For any other object.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return array_dtype(value, rules)
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int):
        return np.dtype(np.int64)
    if isinstance(value, float):
        return default_float(rules)
    if isinstance(value, complex):
        return np.promote_types(default_float(rules), np.complex64)
    if isinstance(value, Sequence):
        raise TypeError(f"{value!r}, a {type(value).__name__}, is not a number")
    raise RuntimeError(f"no dtype can be inferred for a {type(value).__name__}, {value!r}")


def default_float(rules: Rules) -> np.dtype[Any]:
    """Return the dtype of a Python float among other numbers: torch's default, float32."""
    torch = sys.modules.get("torch") if rules.torch else None
    name = str(torch.get_default_dtype()).removeprefix("torch.") if torch else "float32"
    return np.dtype(np.float32 if name == "bfloat16" else name)


def promoted(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """Return the common dtype of two, by torch's table, or by numpy's if torch lacks one of them.

    Raises
    ------
    TypeError
        No dtype holds both.

    Examples
    --------
    >>> promoted(np.dtype("int64"), np.dtype("float16"))
    dtype('float16')
    """
    if one == other:
        return one
    ranks = _RANK.get(one.kind), _RANK.get(other.kind)
    if None in ranks or one.char in "gG" or other.char in "gG":
        return np.promote_types(one, other)
    if one in _WIDE_UNSIGNED or other in _WIDE_UNSIGNED:
        partner = other if one in _WIDE_UNSIGNED else one
        if partner.kind != "f":
            raise TypeError("torch widens uint16, uint32 and uint64 to floats only")
        return partner
    if "c" in one.kind + other.kind:
        return np.dtype(np.complex128 if one in _DOUBLES or other in _DOUBLES else np.complex64)
    if ranks[0] != ranks[1]:
        return max(one, other, key=lambda dtype: _RANK[dtype.kind])
    return np.promote_types(one, other)
